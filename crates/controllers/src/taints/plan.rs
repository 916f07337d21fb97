//! The plan of device taint eviction: which pods to evict, when, and for which reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use allot_resourceclaim::{claim_name, extended_resource_claim_name, is_for_pod};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{
    DeviceRequestAllocationResult, DeviceTaint, DeviceToleration, ResourceClaim, ResourceSlice,
};
use rustc_hash::FxHashMap;

use super::Rule;
use crate::claims::groups;
use crate::controller::clock::shifted;
use crate::controller::meta;

#[cfg(test)]
mod tests;

const NO_EXECUTE: &str = "NoExecute";

/// Identifies a pool of a driver; neither name can contain a line break.
pub(super) fn pool_key(driver: &str, pool: &str) -> String {
    format!("{driver}\n{pool}")
}

/// The devices allocated for a claim.
pub(super) fn results(
    claim: &ResourceClaim,
) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    claim
        .status
        .iter()
        .filter_map(|s| s.allocation.as_ref())
        .filter_map(|a| a.devices.as_ref())
        .flat_map(|d| d.results.iter().flatten())
}

/// The newest generation of each pool.
pub(super) fn newest_generations(slices: &[Arc<ResourceSlice>]) -> BTreeMap<String, i64> {
    let mut newest = BTreeMap::new();
    for slice in slices {
        let pool = &slice.spec.pool;
        let entry = newest
            .entry(pool_key(&slice.spec.driver, &pool.name))
            .or_insert(pool.generation);
        *entry = pool.generation.max(*entry);
    }
    newest
}

/// NoExecute taints that drivers have set, by pool and device, of the newest generations.
#[derive(Debug, Default)]
pub(super) struct Tainted {
    pools: FxHashMap<String, BTreeMap<String, Vec<(usize, DeviceTaint)>>>,
}

impl Tainted {
    pub(super) fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// Records the slices of a pool; returns whether its taints changed.
    pub(super) fn set_pool(&mut self, pool: &str, slices: &[Arc<ResourceSlice>]) -> bool {
        let newest = slices.iter().map(|s| s.spec.pool.generation).max();
        let mut devices: BTreeMap<String, Vec<(usize, DeviceTaint)>> = BTreeMap::new();
        for slice in slices
            .iter()
            .filter(|s| Some(s.spec.pool.generation) == newest)
        {
            for device in slice.spec.devices.iter().flatten() {
                let taints = device.taints.iter().flatten().enumerate();
                let taints: Vec<_> = taints
                    .filter(|(_, t)| t.effect == NO_EXECUTE)
                    .map(|(i, t)| (i, t.clone()))
                    .collect();
                if !taints.is_empty() {
                    devices.insert(device.name.clone(), taints);
                }
            }
        }
        let old = if devices.is_empty() {
            self.pools.remove(pool)
        } else {
            self.pools.insert(pool.to_owned(), devices.clone())
        };
        old.unwrap_or_default() != devices
    }

    fn of(&self, result: &DeviceRequestAllocationResult) -> &[(usize, DeviceTaint)] {
        if self.pools.is_empty() {
            return &[];
        }
        self.pools
            .get(&pool_key(&result.driver, &result.pool))
            .and_then(|p| p.get(&result.device))
            .map(Vec::as_slice)
            .unwrap_or_default()
    }
}

/// The reason for an eviction. Rules come first, then devices, as in upstream's messages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    Rule {
        name: String,
        uid: String,
    },
    Device {
        driver: String,
        pool: String,
        device: String,
        taint: usize,
    },
}

/// A pod to evict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Eviction {
    pub uid: String,
    pub at: Timestamp,
    pub reasons: BTreeSet<Reason>,
}

impl Eviction {
    /// The names of the rules among the reasons.
    pub(super) fn rules(&self) -> impl Iterator<Item = &str> {
        self.reasons.iter().filter_map(|r| match r {
            Reason::Rule { name, .. } => Some(name.as_str()),
            Reason::Device { .. } => None,
        })
    }
}

/// Whether a rule selects a device. A rule without a selector selects nothing; an empty selector
/// selects everything.
pub(super) fn rule_selects(rule: &Rule, driver: &str, pool: &str, device: &str) -> bool {
    let Some(selector) = &rule.spec.device_selector else {
        return false;
    };
    let fits = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|w| w == is);
    fits(&selector.driver, driver) && fits(&selector.pool, pool) && fits(&selector.device, device)
}

/// When a taint takes effect: `None` if it is tolerated without limit.
fn takes_effect(
    key: &str,
    value: &str,
    added: Timestamp,
    tolerations: &[DeviceToleration],
) -> Option<Timestamp> {
    let mut seconds: Option<i64> = None;
    for toleration in tolerations {
        // As in upstream, an empty effect tolerates for scheduling only.
        if toleration.effect.as_deref() != Some(NO_EXECUTE) {
            continue;
        }
        let wanted = toleration.key.as_deref().unwrap_or_default();
        // Without a key it matches every key, also if the operator compares values.
        let about = wanted.is_empty() || wanted == key;
        let exists = toleration.operator.as_deref() == Some("Exists");
        if !about || !(exists || toleration.value.as_deref().unwrap_or_default() == value) {
            continue;
        }
        let tolerated = toleration.toleration_seconds?.max(0);
        seconds = Some(seconds.map_or(tolerated, |s| s.min(tolerated)));
    }
    let wait = SignedDuration::from_secs(seconds.unwrap_or(0));
    Some(shifted(added, wait))
}

/// When the consumers of a claim must be evicted, and why.
fn claim_eviction(
    claim: &ResourceClaim,
    tainted: &Tainted,
    rules: &[Arc<Rule>],
    now: Timestamp,
) -> Option<(Timestamp, BTreeSet<Reason>)> {
    let mut earliest: Option<Timestamp> = None;
    let mut reasons = BTreeSet::new();
    for result in results(claim) {
        let tolerations = result.tolerations.as_deref().unwrap_or_default();
        let mut add = |at: Option<Timestamp>, reason: Reason| {
            if let Some(at) = at {
                earliest = Some(earliest.map_or(at, |e| e.min(at)));
                reasons.insert(reason);
            }
        };
        for (index, taint) in tainted.of(result) {
            let added = taint.time_added.as_ref().map_or(now, |t| t.0);
            let value = taint.value.as_deref().unwrap_or_default();
            add(
                takes_effect(&taint.key, value, added, tolerations),
                Reason::Device {
                    driver: result.driver.clone(),
                    pool: result.pool.clone(),
                    device: result.device.clone(),
                    taint: *index,
                },
            );
        }
        for rule in rules {
            let taint = &rule.spec.taint;
            if taint.effect != NO_EXECUTE
                || !rule_selects(rule, &result.driver, &result.pool, &result.device)
            {
                continue;
            }
            let added = taint.time_added.as_ref().map_or(now, |t| t.0);
            let value = taint.value.as_deref().unwrap_or_default();
            add(
                takes_effect(&taint.key, value, added, tolerations),
                Reason::Rule {
                    name: rule.metadata.name.clone().unwrap_or_default(),
                    uid: rule.metadata.uid.clone().unwrap_or_default(),
                },
            );
        }
    }
    earliest.map(|at| (at, reasons))
}

/// Whether a pod has claims that may be allocated tainted devices.
pub(super) fn has_claims(pod: &Pod) -> bool {
    let listed = pod.spec.as_ref().and_then(|s| s.resource_claims.as_ref());
    listed.is_some_and(|list| !list.is_empty()) || extended_resource_claim_name(pod).is_some()
}

/// Whether a pod must be evicted because of its claims, including the one for its extended resources. Upstream 1.36
/// does not check that one.
pub(super) fn eviction(
    pod: &Pod,
    claim: impl Fn(&str) -> Option<Arc<ResourceClaim>>,
    tainted: &Tainted,
    rules: &[Arc<Rule>],
    now: Timestamp,
) -> Option<Eviction> {
    if (tainted.is_empty() && rules.is_empty())
        || meta::node_name(pod).is_empty()
        // Until the claim controller sees it, a pod that is done still has its reservation.
        || meta::is_finished(pod)
    {
        return None;
    }
    let mut found: Option<Eviction> = None;
    let entries = pod
        .spec
        .iter()
        .flat_map(|s| s.resource_claims.iter().flatten());
    let listed = entries.map(|pod_claim| {
        let generated = pod_claim.resource_claim_template_name.is_some();
        let name = claim_name(pod, pod_claim).ok().flatten();
        (name, generated)
    });
    let extended = extended_resource_claim_name(pod).map(|name| (Some(name), true));
    for (name, generated) in listed.chain(extended) {
        let Some(claim) = name.and_then(&claim) else {
            continue;
        };
        let is_owner = is_for_pod(pod, &claim) || groups::is_for_group_of(&claim, pod);
        if (generated && !is_owner) || !groups::is_reserved_for(&claim, pod) {
            continue;
        }
        let Some((at, reasons)) = claim_eviction(&claim, tainted, rules, now) else {
            continue;
        };
        let eviction = found.get_or_insert_with(|| Eviction {
            uid: meta::uid(pod).to_owned(),
            at,
            reasons: BTreeSet::new(),
        });
        eviction.at = eviction.at.min(at);
        eviction.reasons.extend(reasons);
    }
    found
}
