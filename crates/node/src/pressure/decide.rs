//! From observations to conditions and to the resource that is reclaimed, by the kubelet's rules. Without I/O and without a clock of
//! its own.

use std::time::Duration;

use allot_apimachinery::quantity::Quantity;
use tokio::time::Instant;

use super::thresholds::{Eviction, Threshold, available};
use super::{Observations, Pressed, Resource, Signal};

/// Remembers since when thresholds are met, and when pressure was last observed.
#[derive(Debug)]
pub(crate) struct Decider {
    thresholds: Vec<Threshold>,
    transition: Duration,
    max_pod_grace: Duration,
    /// Since when each threshold is met.
    since: Vec<Option<Instant>>,
    /// Whether it was met for its grace period, and is not resolved.
    due: Vec<bool>,
    /// When pressure was last observed: on memory, disks and process IDs.
    last: [Option<Instant>; 3],
}

/// A resource that has to be reclaimed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reclaim {
    pub(crate) signal: Signal,
    /// The least amount that has to be available, and the amount that is.
    pub(crate) amounts: Option<(Quantity, Quantity)>,
    /// What an evicted pod has to end at most; `None` for a hard threshold, which leaves it no time.
    pub(crate) grace: Option<Duration>,
}

impl Reclaim {
    pub(crate) fn resource(&self) -> Resource {
        self.signal.resource()
    }
}

/// The place of a signal's condition.
fn condition(signal: Signal) -> usize {
    match signal.resource() {
        Resource::Memory => 0,
        Resource::Storage | Resource::Inodes => 1,
        Resource::Processes => 2,
    }
}

impl Decider {
    pub(crate) fn new(eviction: &Eviction) -> Self {
        let thresholds = eviction.thresholds.clone();
        Self {
            since: vec![None; thresholds.len()],
            due: vec![false; thresholds.len()],
            thresholds,
            transition: eviction.transition,
            max_pod_grace: eviction.max_pod_grace,
            last: [None; 3],
        }
    }

    /// What the node is short of, and what has to be reclaimed now.
    pub(crate) fn decide(
        &mut self,
        observed: &Observations,
        now: Instant,
    ) -> (Pressed, Option<Reclaim>) {
        for (index, threshold) in self.thresholds.iter().enumerate() {
            let amount = observed.get(&threshold.signal);
            // One that was due counts until what is to be reclaimed besides is there as well.
            let met = amount.is_some_and(|it| threshold.is_met(*it, self.due[index]));
            if !met {
                self.since[index] = None;
                self.due[index] = false;
                continue;
            }
            self.last[condition(threshold.signal)] = Some(now);
            let since = *self.since[index].get_or_insert(now);
            self.due[index] = now.duration_since(since) >= threshold.grace;
        }
        let [memory, disk, processes] = self.last.map(|last| {
            last.is_some_and(|last| now == last || now.duration_since(last) < self.transition)
        });
        let pressed = Pressed {
            memory,
            disk,
            processes,
        };
        (pressed, self.reclaim(observed))
    }

    /// Memory before everything else.
    fn reclaim(&self, observed: &Observations) -> Option<Reclaim> {
        let due = self.thresholds.iter().zip(&self.due);
        let due: Vec<&Threshold> = due.filter(|(_, due)| **due).map(|(it, _)| it).collect();
        let memory = due.iter().find(|it| it.signal == Signal::Memory);
        let first = memory.or_else(|| due.first())?;
        let resource = first.signal.resource();
        // As with a kubelet, those of the first threshold for the same resource.
        let mut same = due.iter().filter(|it| it.signal.resource() == resource);
        let amounts = same.find_map(|it| {
            let amount = *observed.get(&it.signal)?;
            Some((it.least(amount), available(it.signal, amount)))
        });
        Some(Reclaim {
            signal: first.signal,
            amounts,
            grace: (!first.is_hard()).then_some(self.max_pod_grace),
        })
    }

    /// Whether there is as much of everything as has to be there until nothing is reclaimed any longer.
    pub(crate) fn is_resolved(&self, observed: &Observations) -> bool {
        let amounts = |it: &Threshold| observed.get(&it.signal).copied();
        let met = |it: &Threshold| amounts(it).is_some_and(|amount| it.is_met(amount, true));
        !self.thresholds.iter().any(met)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Amount, Reclaims, Thresholds};
    use super::*;

    fn decider(hard: &str, soft: &str, reclaims: &str) -> Decider {
        let grace = [("nodefs.available".to_owned(), Duration::from_secs(30))];
        let [hard, soft] = [hard, soft].map(|it| it.parse::<Thresholds>().expect("thresholds"));
        let reclaims: Reclaims = reclaims.parse().expect("amounts");
        let eviction = Eviction::new(hard, soft, &grace, &reclaims).expect("thresholds");
        Decider::new(&Eviction {
            max_pod_grace: Duration::from_secs(7),
            ..eviction
        })
    }

    fn observed(all: &[(Signal, u64)]) -> Observations {
        let of = |available| Amount {
            available,
            capacity: 1000,
        };
        all.iter().map(|(it, left)| (*it, of(*left))).collect()
    }

    #[test]
    fn pressure_is_reported_until_it_was_away_for_five_minutes() {
        let all = "memory.available<10,nodefs.inodesFree<5%,pid.available<100";
        let mut decider = decider(all, "", "");
        let begin = Instant::now();
        let mut at = |seconds: u64, memory: u64, inodes: u64, processes: u64| {
            let observed = observed(&[
                (Signal::Memory, memory),
                (Signal::NodeInodes, inodes),
                (Signal::Processes, processes),
            ]);
            let now = begin + Duration::from_secs(seconds);
            let (pressed, reclaim) = decider.decide(&observed, now);
            let reclaim = reclaim.map_or("", |it| it.resource().name());
            (pressed.conditions().join(" "), reclaim)
        };
        assert_eq!(at(0, 10, 50, 100), (String::new(), ""));
        assert_eq!(at(10, 9, 50, 100), ("MemoryPressure".to_owned(), "memory"));
        let all = "MemoryPressure DiskPressure PIDPressure";
        assert_eq!(at(20, 10, 49, 99), (all.to_owned(), "inodes"));
        // The conditions stay; nothing is reclaimed any longer.
        assert_eq!(at(309, 10, 50, 100), (all.to_owned(), ""));
        let rest = "DiskPressure PIDPressure";
        assert_eq!(at(310, 10, 50, 100), (rest.to_owned(), ""));
        assert_eq!(at(320, 10, 50, 100), (String::new(), ""));
    }

    #[test]
    fn memory_is_reclaimed_first_and_signals_that_are_not_observed_never() {
        let all = "nodefs.available<10,pid.available<10,memory.available<10";
        let mut decider = decider(all, "", "");
        let now = Instant::now();
        let mut first = |all: &[(Signal, u64)]| {
            let (_, reclaim) = decider.decide(&observed(all), now);
            reclaim.map(|it| it.signal)
        };
        let (disk, ids) = ((Signal::NodeSpace, 1), (Signal::Processes, 1));
        assert_eq!(
            first(&[disk, ids, (Signal::Memory, 1)]),
            Some(Signal::Memory)
        );
        assert_eq!(
            first(&[disk, ids, (Signal::Memory, 10)]),
            Some(Signal::NodeSpace)
        );
        assert_eq!(first(&[ids]), Some(Signal::Processes));
        assert_eq!(first(&[]), None);
    }

    #[test]
    fn soft_thresholds_wait_for_their_grace_period_and_leave_pods_time() {
        let mut decider = decider("nodefs.available<10", "nodefs.available<100", "");
        let begin = Instant::now();
        let mut at = |seconds: u64, left: u64| {
            let observed = observed(&[(Signal::NodeSpace, left)]);
            let (pressed, reclaim) =
                decider.decide(&observed, begin + Duration::from_secs(seconds));
            (pressed.disk, reclaim.map(|it| it.grace))
        };
        let soft = Some(Some(Duration::from_secs(7)));
        // The condition is reported at once.
        assert_eq!(at(0, 99), (true, None));
        assert_eq!(at(29, 50), (true, None));
        assert_eq!(at(30, 50), (true, soft));
        // It was away for a moment: its grace period begins again.
        assert_eq!(at(40, 100), (true, None));
        assert_eq!(at(50, 99), (true, None));
        assert_eq!(at(80, 99), (true, soft));
        // A hard one is due at once.
        assert_eq!(at(81, 9), (true, Some(None)));
    }

    #[test]
    fn more_than_the_threshold_is_reclaimed() {
        let mut decider = decider("nodefs.available<100", "", "nodefs.available=50");
        let now = Instant::now();
        let mut left = |left: u64| {
            let observed = observed(&[(Signal::NodeSpace, left)]);
            let resolved = decider.is_resolved(&observed);
            let (_, reclaim) = decider.decide(&observed, now);
            let amounts = reclaim.and_then(|it| it.amounts);
            let amounts = amounts.map(|(least, left)| format!("{least} {left}"));
            (resolved, amounts.unwrap_or_default())
        };
        // Nothing was short of it yet.
        assert_eq!(left(120), (false, String::new()));
        assert_eq!(left(99), (false, "100 99".to_owned()));
        assert_eq!(left(149), (false, "100 149".to_owned()));
        assert_eq!(left(150), (true, String::new()));
        assert_eq!(left(149), (false, String::new()));
    }
}
