//! What requests ask for, and whether a device is it.

use std::collections::BTreeMap;

use allot_allocator::problem::Problem;
use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::resource::v1 as api;

use super::pools::{Reachable, quantity, reaches};
use crate::generate::EXPRESSIONS;

/// What requests and sub-requests have in common.
#[derive(Clone)]
pub struct Wanted {
    pub name: String,
    pub class: String,
    pub all: bool,
    pub count: usize,
    pub admin: bool,
    pub expressions: Vec<String>,
    pub tolerates: bool,
    pub capacity: BTreeMap<String, Quantity>,
}

pub fn alternatives(request: &api::DeviceRequest) -> Vec<Wanted> {
    fn make(
        (name, class): (String, &str),
        mode: &Option<String>,
        count: Option<i64>,
        admin: Option<bool>,
        selectors: &Option<Vec<api::DeviceSelector>>,
        tolerations: &Option<Vec<api::DeviceToleration>>,
        capacity: &Option<api::CapacityRequirements>,
    ) -> Wanted {
        let requests = capacity.iter().flat_map(|c| c.requests.iter().flatten());
        Wanted {
            name,
            class: class.to_owned(),
            all: mode.as_deref() == Some("All"),
            count: count.unwrap_or(0) as usize,
            admin: admin == Some(true),
            expressions: selectors
                .iter()
                .flatten()
                .map(|s| s.cel.clone().unwrap().expression)
                .collect(),
            tolerates: tolerations.is_some(),
            capacity: requests
                .map(|(name, q)| (name.clone(), quantity(q)))
                .collect(),
        }
    }
    match (&request.exactly, &request.first_available) {
        (Some(e), _) => vec![make(
            (request.name.clone(), &e.device_class_name),
            &e.allocation_mode,
            e.count,
            e.admin_access,
            &e.selectors,
            &e.tolerations,
            &e.capacity,
        )],
        (_, Some(list)) => list
            .iter()
            .map(|s| {
                let name = format!("{}/{}", request.name, s.name);
                make(
                    (name, &s.device_class_name),
                    &s.allocation_mode,
                    s.count,
                    None,
                    &s.selectors,
                    &s.tolerations,
                    &s.capacity,
                )
            })
            .collect(),
        _ => vec![],
    }
}

/// `Err` = the evaluation fails.
pub fn selected(problem: &Problem, wanted: &Wanted, device: &Reachable) -> Result<bool, ()> {
    for expression in &wanted.expressions {
        let (_, predicate) = EXPRESSIONS.iter().find(|(e, _)| e == expression).unwrap();
        if !predicate(&device.device).ok_or(())? {
            return Ok(false);
        }
    }
    let d = &device.device;
    Ok(!device.per_device || reaches(problem, &d.node_name, d.all_nodes, &d.node_selector))
}

pub fn is_shareable(device: &Reachable) -> bool {
    device.device.allow_multiple_allocations == Some(true)
}

/// What a request takes of each capacity; `None` when the device cannot give it.
pub fn takes(wanted: &Wanted, device: &Reachable) -> Option<BTreeMap<String, Quantity>> {
    let capacity = device.device.capacity.clone().unwrap_or_default();
    if wanted
        .capacity
        .keys()
        .any(|name| !capacity.contains_key(name))
    {
        return None;
    }
    let mut taken = BTreeMap::new();
    for (name, capacity) in &capacity {
        let policy = capacity.request_policy.clone();
        let default = policy
            .as_ref()
            .and_then(|p| p.default.as_ref())
            .map(quantity);
        let amount = match (wanted.capacity.get(name), &policy) {
            (None, _) => default.clone().unwrap_or_else(|| quantity(&capacity.value)),
            (Some(asked), None) => asked.clone(),
            (Some(asked), Some(policy)) => {
                if let Some(range) = &policy.valid_range {
                    let (min, step) = (
                        quantity(&range.min).value(),
                        range.step.as_ref().map(|s| quantity(s).value()),
                    );
                    let asked = asked.value().max(min);
                    let rounded =
                        step.map_or(asked, |step| min + (asked - min + step - 1) / step * step);
                    if range
                        .max
                        .as_ref()
                        .is_some_and(|max| rounded > quantity(max).value())
                        && default.as_ref() != Some(&Quantity::from(rounded))
                    {
                        return None;
                    }
                    Quantity::from(rounded)
                } else {
                    let values: Vec<_> =
                        policy.valid_values.iter().flatten().map(quantity).collect();
                    values.iter().find(|v| *v >= asked)?.clone()
                }
            }
        };
        taken.insert(name.clone(), amount);
    }
    Some(taken)
}
