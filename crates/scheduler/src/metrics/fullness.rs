//! How full the cluster is: devices by driver, class and state, fragmentation of the free ones, and how long claims
//! wait for allocation.

use std::collections::BTreeMap;
use std::time::Duration;

use allot_allocator::{DeviceState, Fullness};
use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

type Of = [(&'static str, String); 2];
type OfState = [(&'static str, String); 3];

/// Limit of drivers and classes with their own series; others are not shown. Users that may create classes must not
/// fill the memory.
const MOST: usize = 1000;

/// The metrics.
#[derive(Debug)]
pub(super) struct Devices {
    devices: Family<OfState, Gauge>,
    largest: Family<Of, Gauge>,
    fragmentation: Family<Of, Gauge<f64, std::sync::atomic::AtomicU64>>,
    allocation: Histogram,
    /// The series shown now; those that no longer exist must be removed.
    shown: Mutex<Vec<(String, String)>>,
}

impl Devices {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let all = Self {
            devices: Family::default(),
            largest: Family::default(),
            fragmentation: Family::default(),
            allocation: Histogram::new(exponential_buckets(0.01, 2.0, 20)),
            shown: Mutex::default(),
        };
        registry.register(
            "scheduler_allot_devices",
            "Devices by driver, device class and state; the empty class counts every device once",
            all.devices.clone(),
        );
        registry.register(
            "scheduler_allot_largest_free_devices",
            "The most free devices of one pool: a claim on one node can get no more",
            all.largest.clone(),
        );
        registry.register(
            "scheduler_allot_device_fragmentation_ratio",
            "How scattered free devices are over pools: 0 when one pool has as many as could be together, towards 1 when they lie singly",
            all.fragmentation.clone(),
        );
        registry.register(
            "scheduler_allot_allocation_duration_seconds",
            "Time from a pod with claims entering the queue to its being bound with its devices",
            all.allocation.clone(),
        );
        all
    }

    /// Records that a pod with claims was bound, `waited` after it was added to the queue.
    pub(super) fn allocated(&self, waited: Duration) {
        self.allocation.observe(waited.as_secs_f64());
    }

    /// Replaces the shown counts.
    pub(super) fn show(&self, census: BTreeMap<(String, String), Fullness>) {
        let census: BTreeMap<_, _> = census.into_iter().take(MOST).collect();
        let mut shown = self.shown.lock();
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        for key in shown.drain(..).filter(|key| !census.contains_key(key)) {
            for state in DeviceState::ALL {
                self.devices.remove(&of_state(&key, state));
            }
            self.largest.remove(&of(&key));
            self.fragmentation.remove(&of(&key));
        }
        for (key, fullness) in census {
            for state in DeviceState::ALL {
                let gauge = self.devices.get_or_create(&of_state(&key, state));
                gauge.set(number(fullness.count(state)));
            }
            let largest = self.largest.get_or_create(&of(&key));
            largest.set(number(fullness.largest_free));
            match fullness.fragmentation() {
                Some(ratio) => {
                    self.fragmentation.get_or_create(&of(&key)).set(ratio);
                }
                None => {
                    self.fragmentation.remove(&of(&key));
                }
            }
            shown.push(key);
        }
    }
}

fn of((driver, class): &(String, String)) -> Of {
    [("driver", driver.clone()), ("class", class.clone())]
}

fn of_state(key: &(String, String), state: DeviceState) -> OfState {
    let [driver, class] = of(key);
    [driver, class, ("state", state.name().to_owned())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_removed_drivers_are_not_shown() {
        let mut registry = Registry::default();
        let devices = Devices::register(&mut registry);
        let key = |driver: &str| (driver.to_owned(), String::new());
        let full = |free| Fullness {
            states: [(DeviceState::Free, free), (DeviceState::InUse, 1)].into(),
            largest_free: 1,
            largest: 4,
        };
        devices.show([(key("a"), full(2)), (key("b"), full(0))].into());
        let page = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).expect("encoded");
            text
        };
        for line in [
            "scheduler_allot_devices{driver=\"a\",class=\"\",state=\"free\"} 2\n",
            "scheduler_allot_devices{driver=\"b\",class=\"\",state=\"in-use\"} 1\n",
            "scheduler_allot_devices{driver=\"b\",class=\"\",state=\"blocked\"} 0\n",
            "scheduler_allot_device_fragmentation_ratio{driver=\"a\",class=\"\"} 0.5\n",
            "scheduler_allot_largest_free_devices{driver=\"a\",class=\"\"} 1\n",
        ] {
            assert!(page().contains(line), "{line} in {}", page());
        }
        assert!(
            !page().contains("fragmentation_ratio{driver=\"b\""),
            "{}",
            page()
        );
        devices.show([(key("b"), full(0))].into());
        assert!(!page().contains("driver=\"a\""), "{}", page());
    }

    /// Gauges of a driver that others pushed beyond the bound stayed for the life of the process.
    #[test]
    fn regression_what_is_beyond_the_bound_goes() {
        let mut registry = Registry::default();
        let devices = Devices::register(&mut registry);
        let key = |n: usize| (format!("{n:05}"), String::new());
        devices.show([(key(MOST), Fullness::default())].into());
        devices.show((0..=MOST).map(|n| (key(n), Fullness::default())).collect());
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).expect("encoded");
        assert!(!page.contains(&format!("driver=\"{MOST:05}\"")), "{page}");
    }
}
