//! Rules that the API server cannot check because they span slices.

use std::collections::{BTreeMap, BTreeSet};

use super::{Pool, Resources};
use crate::error::InvalidResources;

/// Finds the first contradiction.
pub(super) fn resources(resources: &Resources) -> Result<(), InvalidResources> {
    resources
        .pools
        .iter()
        .try_for_each(|(name, pool)| check(name, pool))
}

fn check(name: &str, pool: &Pool) -> Result<(), InvalidResources> {
    let mut counters: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for set in pool.slices.iter().flat_map(|slice| &slice.shared_counters) {
        let names = set.counters.keys().map(String::as_str).collect();
        if counters.insert(&set.name, names).is_some() {
            return Err(InvalidResources::DuplicateCounterSet {
                set: set.name.clone(),
                pool: name.to_owned(),
            });
        }
    }
    let mut devices = BTreeSet::new();
    for device in pool.slices.iter().flat_map(|slice| &slice.devices) {
        if !devices.insert(&device.name) {
            return Err(InvalidResources::DuplicateDevice {
                device: device.name.clone(),
                pool: name.to_owned(),
            });
        }
        for consumption in device.consumes_counters.iter().flatten() {
            let Some(known) = counters.get(consumption.counter_set.as_str()) else {
                return Err(InvalidResources::UnknownCounterSet {
                    set: consumption.counter_set.clone(),
                    device: device.name.clone(),
                });
            };
            if let Some(counter) = consumption
                .counters
                .keys()
                .find(|name| !known.contains(name.as_str()))
            {
                return Err(InvalidResources::UnknownCounter {
                    counter: counter.clone(),
                    device: device.name.clone(),
                    set: consumption.counter_set.clone(),
                });
            }
        }
    }
    Ok(())
}
