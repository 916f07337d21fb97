//! Rules that the API server cannot check because they span slices.

use std::collections::{BTreeMap, BTreeSet};

use super::{Pool, Resources};

/// The first contradiction, as a readable text.
pub(super) fn resources(resources: &Resources) -> Result<(), String> {
    resources
        .pools
        .iter()
        .try_for_each(|(name, pool)| check(name, pool))
}

fn check(name: &str, pool: &Pool) -> Result<(), String> {
    let mut counters: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for set in pool.slices.iter().flat_map(|slice| &slice.shared_counters) {
        let names = set.counters.keys().map(String::as_str).collect();
        if counters.insert(&set.name, names).is_some() {
            return Err(format!(
                "found duplicate counter set {:?} in pool {name:?}",
                set.name
            ));
        }
    }
    let mut devices = BTreeSet::new();
    for device in pool.slices.iter().flat_map(|slice| &slice.devices) {
        if !devices.insert(&device.name) {
            return Err(format!(
                "found duplicate device {:?} in pool {name:?}",
                device.name
            ));
        }
        for consumption in device.consumes_counters.iter().flatten() {
            let Some(known) = counters.get(consumption.counter_set.as_str()) else {
                return Err(format!(
                    "counter set {:?} referenced by device {:?} not found",
                    consumption.counter_set, device.name
                ));
            };
            if let Some(counter) = consumption
                .counters
                .keys()
                .find(|name| !known.contains(name.as_str()))
            {
                return Err(format!(
                    "counter {counter:?} referenced by device {:?} not found in counter set {:?}",
                    device.name, consumption.counter_set
                ));
            }
        }
    }
    Ok(())
}
