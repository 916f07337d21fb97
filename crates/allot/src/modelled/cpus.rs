//! CPUs of modelled NUMA nodes: each claim gets its own, and a variable names them, as dra-driver-cpu does.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::quantity::Quantity;
use allot_driver::{Failure, PreparedClaim};
use allot_hardware::Cpus as Model;
use k8s_openapi::api::resource::v1::{Device, DeviceRequestAllocationResult};
use parking_lot::Mutex;

/// How many CPUs a NUMA node may have: Linux has at most so many in all.
const MOST: u64 = 8192;

/// The CPUs of a node.
#[derive(Debug)]
pub(super) struct Cpus {
    model: Model,
    /// The CPUs of each claim, by its UID.
    taken: Mutex<BTreeMap<String, BTreeSet<u64>>>,
}

impl Cpus {
    pub(super) fn new(model: Model) -> Self {
        Self {
            model,
            taken: Mutex::default(),
        }
    }

    /// Allocates CPUs for the results of a claim, or returns those that it already has.
    pub(super) fn take<'a>(
        &self,
        claim: &str,
        results: impl Iterator<Item = (&'a Device, &'a DeviceRequestAllocationResult)>,
    ) -> Result<BTreeSet<u64>, Failure> {
        let mut taken = self.taken.lock();
        if let Some(known) = taken.get(claim) {
            return Ok(known.clone());
        }
        let mut used: BTreeSet<u64> = taken.values().flatten().copied().collect();
        let mut own = BTreeSet::new();
        // Admin access does not exclude other claims.
        for (device, result) in results.filter(|(_, it)| it.admin_access != Some(true)) {
            let (first, count) = self.range(device)?;
            let consumed = result.consumed_capacity.as_ref();
            let consumed = consumed.and_then(|consumed| consumed.get(&self.model.amount));
            let wanted = match consumed {
                Some(amount) => {
                    let amount: Quantity = amount.0.parse().map_err(|_| "no amount of CPUs")?;
                    // Of a part of a CPU the claim has the whole one.
                    u64::try_from(amount.value()).unwrap_or(0)
                }
                None => count,
            };
            let free = (first..first.saturating_add(count)).filter(|cpu| !used.contains(cpu));
            let found: Vec<u64> = free.take(usize::try_from(wanted)?).collect();
            if (found.len() as u64) < wanted {
                let name = &device.name;
                return Err(format!("{name} has no {wanted} CPUs that no other claim has").into());
            }
            used.extend(&found);
            own.extend(found);
        }
        taken.insert(claim.to_owned(), own.clone());
        Ok(own)
    }

    /// The CPUs of a device: the first one and their number.
    fn range(&self, device: &Device) -> Result<(u64, u64), Failure> {
        let number = |name: &str| {
            let attributes = device.attributes.as_ref();
            let value = attributes.and_then(|attributes| attributes.get(name)?.int);
            let value = value.and_then(|value| u64::try_from(value).ok());
            value.ok_or_else(|| format!("{} has no number {name}", device.name))
        };
        let count = number(&self.model.count)?;
        if count > MOST {
            let name = &device.name;
            return Err(format!("{name} has {count} CPUs, and no machine more than {MOST}").into());
        }
        Ok((number(&self.model.numa)?.saturating_mul(count), count))
    }

    /// The variable for the containers of a claim.
    pub(super) fn variable(&self, claim: &str, cpus: &BTreeSet<u64>) -> String {
        format!("{}_{claim}={}", self.model.variable, list(cpus))
    }

    /// Restores the CPUs of claims that an earlier process prepared.
    pub(super) fn restore(&self, claims: &[PreparedClaim]) -> Result<(), Failure> {
        let mut taken = self.taken.lock();
        for claim in claims {
            if let Some(cpus) = claim.state::<BTreeSet<u64>>()? {
                taken.insert(claim.reference().uid.clone(), cpus);
            }
        }
        Ok(())
    }

    pub(super) fn release(&self, claim: &str) {
        self.taken.lock().remove(claim);
    }
}

/// CPUs as the kernel lists them: `0-3,8`.
fn list(cpus: &BTreeSet<u64>) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let texts = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_have_cpus_of_their_own() {
        let model = json!({
            "variable": "DRA_CPUSET", "amount": "dra.cpu/cpu", "numa": "node", "count": "cpus",
        });
        let cpus = Cpus::new(serde_json::from_value(model).unwrap());
        let device: Device = serde_json::from_value(json!({
            "name": "numa1", "attributes": {"node": {"int": 1}, "cpus": {"int": 8}},
        }))
        .unwrap();
        let result = |more: serde_json::Value| {
            let mut result =
                json!({"request": "r", "driver": "dra.cpu", "pool": "p", "device": "numa1"});
            let more = more.as_object().unwrap().clone();
            result.as_object_mut().unwrap().extend(more);
            serde_json::from_value::<DeviceRequestAllocationResult>(result).unwrap()
        };
        let take = |claim: &str, amount: &str| {
            let result = result(json!({"consumedCapacity": {"dra.cpu/cpu": amount}}));
            let taken = cpus.take(claim, [(&device, &result)].into_iter());
            taken.map(|taken| cpus.variable(claim, &taken)).ok()
        };
        let check = |claim, amount, expected: &str| {
            assert_eq!(take(claim, amount).as_deref(), Some(expected));
        };
        check("a", "2", "DRA_CPUSET_a=8-9");
        check("b", "1500m", "DRA_CPUSET_b=10-11");
        check("a", "2", "DRA_CPUSET_a=8-9");
        check("c", "1", "DRA_CPUSET_c=12");
        cpus.release("b");
        check("d", "4", "DRA_CPUSET_d=10-11,13-14");
        assert_eq!(take("e", "2"), None);
        check("e", "1", "DRA_CPUSET_e=15");
        let monitor = result(json!({"adminAccess": true}));
        let none = cpus.take("monitor", [(&device, &monitor)].into_iter());
        assert_eq!(none.expect("no error"), BTreeSet::new());
    }

    /// An enormous count used all memory of the machine.
    #[test]
    fn regression_the_count_of_cpus_is_bounded() {
        let model = json!({
            "variable": "DRA_CPUSET", "amount": "dra.cpu/cpu", "numa": "node", "count": "cpus",
        });
        let cpus = Cpus::new(serde_json::from_value(model).unwrap());
        let result = json!({"request": "r", "driver": "dra.cpu", "pool": "p", "device": "numa1"});
        let result: DeviceRequestAllocationResult = serde_json::from_value(result).unwrap();
        let taken = |count: u64| {
            let device: Device = serde_json::from_value(json!({
                "name": "numa1", "attributes": {"node": {"int": 0}, "cpus": {"int": count}},
            }))
            .unwrap();
            let taken = cpus.take(&count.to_string(), [(&device, &result)].into_iter());
            taken
                .map(|taken| taken.len())
                .map_err(|error| error.to_string())
        };
        let refused = taken(MOST + 1).unwrap_err();
        assert_eq!(
            refused,
            "numa1 has 8193 CPUs, and no machine more than 8192"
        );
        assert_eq!(taken(MOST), Ok(8192));
    }
}
