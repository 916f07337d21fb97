//! Rules that the API server cannot check because they span slices.

use std::collections::{BTreeMap, BTreeSet};

use super::{Pool, Resources};

/// The first contradiction, for people.
pub(super) fn resources(resources: &Resources) -> Result<(), String> {
    resources.pools.iter().try_for_each(|(name, pool)| {
        check(pool).map_err(|problem| format!("pool {name:?}: {problem}"))
    })
}

fn check(pool: &Pool) -> Result<(), String> {
    let mut counters: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for set in pool.slices.iter().flat_map(|slice| &slice.shared_counters) {
        let names = set.counters.keys().map(String::as_str).collect();
        if counters.insert(&set.name, names).is_some() {
            return Err(format!("duplicate counter set {:?}", set.name));
        }
    }
    let mut devices = BTreeSet::new();
    for device in pool.slices.iter().flat_map(|slice| &slice.devices) {
        if !devices.insert(&device.name) {
            return Err(format!("duplicate device {:?}", device.name));
        }
        for consumption in device.consumes_counters.iter().flatten() {
            let Some(known) = counters.get(consumption.counter_set.as_str()) else {
                return Err(format!(
                    "device {:?}: unknown counter set {:?}",
                    device.name, consumption.counter_set
                ));
            };
            if let Some(counter) = consumption
                .counters
                .keys()
                .find(|name| !known.contains(name.as_str()))
            {
                return Err(format!(
                    "device {:?}: unknown counter {counter:?} in counter set {:?}",
                    device.name, consumption.counter_set
                ));
            }
        }
    }
    Ok(())
}
