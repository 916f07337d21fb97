//! Checks a result against the rules, without knowing how it was found.

use std::collections::BTreeMap;

use allot_allocator::problem::Problem;
use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::resource::v1 as api;

use crate::reference::{self, Pools, Reachable, Wanted};

/// What is wrong with a result, if anything.
pub fn verify(problem: &Problem, results: &[api::AllocationResult]) -> Result<(), String> {
    let pools = Pools::of(problem);
    if results.len() != problem.claims.len() {
        return Err("not one result per claim".into());
    }
    let mut holders: BTreeMap<(String, String), Vec<(usize, bool)>> = BTreeMap::new();
    let mut counted = BTreeMap::<_, Quantity>::new();
    let mut capacity = BTreeMap::<_, Quantity>::new();
    for (index, (claim, result)) in problem.claims.iter().zip(results).enumerate() {
        let devices = claim.spec.devices.as_ref().unwrap();
        let list = result
            .devices
            .as_ref()
            .and_then(|d| d.results.clone())
            .unwrap_or_default();
        if list.len() > 32 {
            return Err(format!("{} devices for one claim", list.len()));
        }
        let mut found = Vec::new();
        for one in &list {
            let device = pools
                .devices
                .iter()
                .find(|d| d.pool == one.pool && d.device.name == one.device);
            let Some(device) = device else {
                return Err(format!("{} cannot be reached", one.device));
            };
            let wanted = devices
                .requests
                .iter()
                .flatten()
                .flat_map(reference::alternatives);
            let Some(wanted) = wanted.into_iter().find(|w| w.name == one.request) else {
                return Err(format!("there is no request {}", one.request));
            };
            verify_device(problem, &wanted, device, one)?;
            let key = (one.pool.clone(), one.device.clone());
            let list = holders.entry(key.clone()).or_default();
            let shareable = reference::is_shareable(device);
            let twice = list
                .iter()
                .any(|(claim, admin)| (!admin && !wanted.admin) || *claim == index);
            if twice && !shareable {
                return Err(format!("{} is given twice", one.device));
            }
            let first =
                list.is_empty() && reference::consumed(problem, &one.pool, &one.device).is_none();
            if !shareable || first {
                for (key, amount) in reference::consumption(device) {
                    let sum = counted.entry(key).or_default();
                    *sum = sum.checked_add(&amount).unwrap();
                }
            }
            list.push((index, wanted.admin));
            if shareable {
                for (name, taken) in
                    reference::takes(&wanted, device).ok_or("takes what is not there")?
                {
                    let shown = one
                        .consumed_capacity
                        .as_ref()
                        .and_then(|c| c.get(&name))
                        .map(reference::quantity);
                    if shown.as_ref() != Some(&taken) {
                        return Err(format!("{}: {name} is {shown:?}, not {taken}", one.device));
                    }
                    let sum = capacity.entry((key.clone(), name)).or_default();
                    *sum = sum.checked_add(&taken).unwrap();
                }
            }
            found.push((one.request.as_str(), device));
        }
        verify_requests(problem, &pools, devices, &found)?;
        let lists = problem.features().list_type_attributes;
        if let Some(bad) = devices
            .constraints
            .iter()
            .flatten()
            .find(|c| !reference::satisfied(c, &found, lists))
        {
            return Err(format!("not satisfied: {bad:?}"));
        }
    }
    for (key, sum) in counted {
        if sum > pools.counters[&key] {
            return Err(format!("counter {key:?} is below zero"));
        }
    }
    for (((pool, device), name), sum) in capacity {
        let used = reference::consumed(problem, &pool, &device)
            .and_then(|u| u.get(&name).cloned())
            .unwrap_or_default();
        let published = pools
            .devices
            .iter()
            .find(|d| d.pool == pool && d.device.name == device)
            .unwrap();
        let limit = reference::quantity(&published.device.capacity.as_ref().unwrap()[&name].value);
        if sum.checked_add(&used).unwrap() > limit {
            return Err(format!("{name} of {device} is below zero"));
        }
    }
    Ok(())
}

fn verify_device(
    problem: &Problem,
    wanted: &Wanted,
    device: &Reachable,
    result: &api::DeviceRequestAllocationResult,
) -> Result<(), String> {
    let name = &device.device.name;
    if reference::selected(problem, wanted, device) != Ok(true) {
        return Err(format!("{name} is not selected"));
    }
    if !wanted.admin && reference::is_dedicated(problem, &device.pool, name) {
        return Err(format!("{name} is in use"));
    }
    if !wanted.tolerates
        && device
            .device
            .taints
            .iter()
            .flatten()
            .any(|t| t.effect != "None")
    {
        return Err(format!("{name} is tainted"));
    }
    if result.share_id.is_some() != reference::is_shareable(device) {
        return Err(format!("{name}: share ID {:?}", result.share_id));
    }
    if result.admin_access != wanted.admin.then_some(true) {
        return Err(format!("{name}: admin access {:?}", result.admin_access));
    }
    Ok(())
}

/// Each request has its number of devices, through exactly one of its alternatives.
fn verify_requests(
    problem: &Problem,
    pools: &Pools,
    devices: &api::DeviceClaim,
    found: &[(&str, &Reachable)],
) -> Result<(), String> {
    for request in devices.requests.iter().flatten() {
        let mut met = 0;
        for wanted in reference::alternatives(request) {
            let count = found
                .iter()
                .filter(|(name, _)| *name == wanted.name)
                .count();
            let expected = if wanted.all {
                let selected = pools
                    .devices
                    .iter()
                    .filter(|d| reference::selected(problem, &wanted, d) == Ok(true));
                selected
                    .filter(|d| reference::takes(&wanted, d).is_some())
                    .count()
            } else {
                wanted.count
            };
            if count > 0 {
                met += 1;
                // "All" leaves out devices without enough capacity left, which is looked at elsewhere.
                if count != expected && !(wanted.all && count < expected) {
                    return Err(format!(
                        "{} has {count} devices instead of {expected}",
                        wanted.name
                    ));
                }
            }
        }
        if met != 1 {
            return Err(format!("request {} is met {met} times", request.name));
        }
    }
    Ok(())
}
