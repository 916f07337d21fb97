//! How full a cluster is: devices by driver, class and state, and how much of a class one pool can still give.

use std::collections::BTreeMap;

use super::Cluster;
use super::count::ClassSelectors;
use crate::pool::ViewState;

/// The state of a device for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceState {
    /// A claim can have it.
    Free,
    /// A claim has it.
    InUse,
    /// Claims have shares of it, and others can have the rest.
    Shared,
    /// Its shared counters are used up.
    Blocked,
    /// Only claims that tolerate its taint can have it.
    Tainted,
    /// Its pool is incomplete or contradicts itself.
    Unusable,
}

impl DeviceState {
    /// Every state, each of which is a label value of the metrics.
    pub const ALL: [Self; 6] = [
        Self::Free,
        Self::InUse,
        Self::Shared,
        Self::Blocked,
        Self::Tainted,
        Self::Unusable,
    ];

    /// The name that `allot devices` shows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::InUse => "in-use",
            Self::Shared => "shared",
            Self::Blocked => "blocked",
            Self::Tainted => "tainted",
            Self::Unusable => "unusable",
        }
    }
}

/// Devices of one driver that a class selects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fullness {
    /// How many there are in each state.
    pub states: BTreeMap<DeviceState, u64>,
    /// The most free devices of one pool: a claim on one node can get no more than that.
    pub largest_free: u64,
    /// The most devices of one pool, in any state.
    pub largest: u64,
}

impl Fullness {
    /// The number of devices in a state.
    #[must_use]
    pub fn count(&self, state: DeviceState) -> u64 {
        self.states.get(&state).copied().unwrap_or_default()
    }

    /// Fragmentation of the free devices: 0 if one pool has as many as could be free in one, near 1 if they are
    /// scattered singly. `None` without free ones.
    #[must_use]
    pub fn fragmentation(&self) -> Option<f64> {
        let together = self.count(DeviceState::Free).min(self.largest);
        (together > 0).then(|| 1.0 - self.largest_free as f64 / together as f64)
    }
}

impl Cluster {
    /// Counts the devices of each driver and class, which are given by name; a device counts for every class that
    /// selects it, and for the name `""` in any case. A selector that cannot be evaluated selects nothing. Takes time
    /// in proportion to devices and classes.
    #[must_use]
    pub fn census(
        &self,
        classes: &[(String, ClassSelectors)],
    ) -> BTreeMap<(String, String), Fullness> {
        let mut all = BTreeMap::<(String, String), Fullness>::new();
        for id in 0..self.pools.len() {
            let pool = self.pools.get(id).pool(&self.rules);
            let mut here = BTreeMap::<&str, Fullness>::new();
            for part in pool.info.parts() {
                let is_usable = part.state == ViewState::Usable;
                for slot in part.slots {
                    let state = self.device_state(pool, slot, is_usable);
                    let device = pool.info.device(slot);
                    let selecting = classes
                        .iter()
                        .filter(|(_, class)| class.select(&device.cel).unwrap_or(false))
                        .map(|(name, _)| name.as_str());
                    for class in [""].into_iter().chain(selecting) {
                        let of_class = here.entry(class).or_default();
                        *of_class.states.entry(state).or_default() += 1;
                    }
                }
            }
            for (class, own) in here {
                let key = (pool.info.driver.to_string(), class.to_owned());
                let fullness = all.entry(key).or_default();
                fullness.largest_free = fullness.largest_free.max(own.count(DeviceState::Free));
                fullness.largest = fullness.largest.max(own.states.values().sum::<u64>());
                for (state, count) in own.states {
                    *fullness.states.entry(state).or_default() += count;
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Features, Holder, SelectorCache};

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("fixture")
    }

    /// A pool of devices of 1 and 2, of which claims have the first ones.
    fn pool(cluster: &mut Cluster, name: &str, devices: usize, in_use: usize) {
        let devices: Vec<Value> = (0..devices)
            .map(|n| json!({"name": format!("d{n}"), "attributes": {"size": {"int": n % 2 + 1}}}))
            .collect();
        cluster.apply(&read(json!({"metadata": {"name": name}, "spec": {
            "driver": "gpu.example.com", "nodeName": name, "devices": devices,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}}})));
        for n in 0..in_use {
            let result = json!({"request": "r", "driver": "gpu.example.com", "pool": name, "device": format!("d{n}")});
            let allocation = json!({"devices": {"results": [result]}});
            let holder = Holder {
                uid: format!("{name}-{n}").into(),
                ..Holder::default()
            };
            cluster.claim_allocated(&holder, &read(allocation));
        }
    }

    #[test]
    fn devices_are_counted_by_class_and_state() {
        let mut cluster = Cluster::new(Features::default());
        pool(&mut cluster, "a", 4, 3);
        pool(&mut cluster, "b", 4, 2);
        let class = read(
            json!({"metadata": {"name": "large"}, "spec": {"selectors": [
            {"cel": {"expression": "device.attributes['gpu.example.com'].size == 2"}}]}}),
        );
        let wrong = read(
            json!({"metadata": {"name": "wrong"}, "spec": {"selectors": [
            {"cel": {"expression": "device.attributes['other'].size == 2"}}]}}),
        );
        let selectors = SelectorCache::new();
        let compiled = |class| ClassSelectors::new(cluster.features(), &selectors, class);
        let classes = [
            ("large".to_owned(), compiled(&class)),
            ("wrong".to_owned(), compiled(&wrong)),
        ];
        let census = cluster.census(&classes);
        let of = |class: &str| census.get(&("gpu.example.com".to_owned(), class.to_owned()));
        let all = of("").expect("devices");
        assert_eq!(all.count(DeviceState::Free), 3);
        assert_eq!(all.count(DeviceState::InUse), 5);
        assert_eq!((all.largest_free, all.largest), (2, 4));
        assert_eq!(all.fragmentation(), Some(1.0 - 2.0 / 3.0));
        let large = of("large").expect("devices");
        assert_eq!(large.count(DeviceState::Free), 2);
        assert_eq!(large.count(DeviceState::InUse), 2);
        assert_eq!((large.largest_free, large.largest), (1, 2));
        assert_eq!(of("wrong"), None);
        assert_eq!(Fullness::default().fragmentation(), None);
    }
}
