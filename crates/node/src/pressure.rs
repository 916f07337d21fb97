//! Pressure on the memory, disks and process IDs of the node: the kubelet's eviction signals and thresholds, as far as they decide
//! the conditions of the Node.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use allot_apimachinery::quantity::Quantity;
use tokio::time::Instant;

use crate::memory::Memory;
use crate::processes;

/// The kubelet's default of `evictionHard`. There is none for process IDs.
pub const EVICTION_HARD: &str = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%";

/// How long pressure is reported after it was last observed, so that the condition does not come and go: the kubelet's default of
/// `evictionPressureTransitionPeriod`.
const TRANSITION: Duration = Duration::from_secs(300);

/// What is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    Memory,
    /// The file system of the node's directory.
    NodeSpace,
    NodeInodes,
    /// The file system of the node's images.
    ImageSpace,
    ImageInodes,
    Processes,
}

const SIGNALS: [(&str, Signal); 6] = [
    ("memory.available", Signal::Memory),
    ("nodefs.available", Signal::NodeSpace),
    ("nodefs.inodesFree", Signal::NodeInodes),
    ("imagefs.available", Signal::ImageSpace),
    ("imagefs.inodesFree", Signal::ImageInodes),
    ("pid.available", Signal::Processes),
];

/// The least amount that has to be available.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    Amount(u64),
    /// Of the capacity.
    Percent(f64),
}

/// The amounts below which the node is under pressure; by default none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Thresholds(Vec<(Signal, Bound)>);

/// Why thresholds cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// A threshold without an operator.
    #[error("invalid eviction threshold {0:?}: expected SIGNAL<QUANTITY or SIGNAL<PERCENT%")]
    Form(String),
    /// A signal that is not observed.
    #[error("unsupported eviction signal {0:?}: expected one of {names}", names = SIGNALS.map(|it| it.0).join(", "))]
    Signal(String),
    /// Two thresholds for a signal.
    #[error("duplicate eviction threshold for {0}")]
    Duplicate(&'static str),
    /// What is neither an amount nor a percentage.
    #[error(
        "{signal}: expected a positive quantity or a percentage from 0% to 100%, not {value:?}"
    )]
    Value {
        /// The signal.
        signal: &'static str,
        /// What was found.
        value: String,
    },
}

impl FromStr for Thresholds {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut seen = Vec::new();
        let mut all = Vec::new();
        for part in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let (name, value) = part
                .split_once('<')
                .ok_or_else(|| ThresholdError::Form(part.to_owned()))?;
            let (name, value) = (name.trim(), value.trim());
            let known = SIGNALS.into_iter().find(|(known, _)| *known == name);
            let (signal, of) = known.ok_or_else(|| ThresholdError::Signal(name.to_owned()))?;
            if seen.contains(&signal) {
                return Err(ThresholdError::Duplicate(signal));
            }
            seen.push(signal);
            let bound = bound(value).ok_or_else(|| ThresholdError::Value {
                signal,
                value: value.to_owned(),
            })?;
            // As with a kubelet these switch a threshold off.
            if bound != Bound::Percent(0.0) && bound != Bound::Percent(100.0) {
                all.push((of, bound));
            }
        }
        Ok(Self(all))
    }
}

fn bound(text: &str) -> Option<Bound> {
    if let Some(percent) = text.strip_suffix('%') {
        let percent = percent.parse::<f64>().ok()?;
        return (0.0..=100.0)
            .contains(&percent)
            .then_some(Bound::Percent(percent));
    }
    let amount = text.parse::<Quantity>().ok()?;
    let amount = u64::try_from(amount.value()).ok()?;
    (amount > 0).then_some(Bound::Amount(amount))
}

/// The available amount and the capacity of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Amount {
    available: u64,
    capacity: u64,
}

impl Amount {
    fn is_below(self, bound: Bound) -> bool {
        match bound {
            Bound::Amount(least) => self.available < least,
            Bound::Percent(percent) => {
                self.available < (self.capacity as f64 * percent / 100.0) as u64
            }
        }
    }
}

/// The kinds of pressure that the node is under.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pressed {
    pub(crate) memory: bool,
    pub(crate) disk: bool,
    pub(crate) processes: bool,
}

/// Observes the node.
#[derive(Debug)]
pub(crate) struct Pressure {
    thresholds: Thresholds,
    /// When pressure was last observed: on memory, disks and process IDs.
    last: [Option<Instant>; 3],
}

impl Pressure {
    pub(crate) fn new(thresholds: Thresholds) -> Self {
        Self {
            thresholds,
            last: [None; 3],
        }
    }

    /// Observes the node whose directory is `root`.
    pub(crate) fn observe(&mut self, root: &Path) -> Pressed {
        self.evaluate(|signal| observe(signal, root), Instant::now())
    }

    fn evaluate(&mut self, observe: impl Fn(Signal) -> Option<Amount>, now: Instant) -> Pressed {
        for (signal, bound) in &self.thresholds.0 {
            // A signal that cannot be observed is no pressure.
            if observe(*signal).is_some_and(|amount| amount.is_below(*bound)) {
                let place = match signal {
                    Signal::Memory => 0,
                    Signal::Processes => 2,
                    _ => 1,
                };
                self.last[place] = Some(now);
            }
        }
        let [memory, disk, processes] = self
            .last
            .map(|last| last.is_some_and(|last| now.duration_since(last) < TRANSITION));
        Pressed {
            memory,
            disk,
            processes,
        }
    }
}

fn observe(signal: Signal, root: &Path) -> Option<Amount> {
    let disk = |path: &Path, inodes: bool| {
        let stat = rustix::fs::statvfs(path).ok()?;
        let amount = match inodes {
            true => Amount {
                available: stat.f_favail,
                capacity: stat.f_files,
            },
            false => Amount {
                available: stat.f_bavail.saturating_mul(stat.f_frsize),
                capacity: stat.f_blocks.saturating_mul(stat.f_frsize),
            },
        };
        // Some file systems do not count their inodes.
        (amount.capacity > 0).then_some(amount)
    };
    // It exists if the node has images of its own.
    let images = || disk(&root.join("images"), signal == Signal::ImageInodes);
    match signal {
        Signal::Memory => {
            let memory = Memory::read()?;
            Some(Amount {
                available: memory.available,
                capacity: memory.total,
            })
        }
        Signal::NodeSpace => disk(root, false),
        Signal::NodeInodes => disk(root, true),
        Signal::ImageSpace => images().or_else(|| disk(root, false)),
        Signal::ImageInodes => images().or_else(|| disk(root, true)),
        Signal::Processes => {
            let number = |path: &str| {
                let text = std::fs::read_to_string(path).ok()?;
                text.trim().parse::<u64>().ok()
            };
            let capacity =
                number("/proc/sys/kernel/pid_max")?.min(number("/proc/sys/kernel/threads-max")?);
            Some(Amount {
                available: capacity.saturating_sub(processes::count()?),
                capacity,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thresholds(text: &str) -> Thresholds {
        text.parse().expect("thresholds")
    }

    #[test]
    fn thresholds_are_read_as_by_a_kubelet() {
        let all = thresholds(EVICTION_HARD);
        let expected = vec![
            (Signal::Memory, Bound::Amount(100 << 20)),
            (Signal::NodeSpace, Bound::Percent(10.0)),
            (Signal::NodeInodes, Bound::Percent(5.0)),
            (Signal::ImageSpace, Bound::Percent(15.0)),
            (Signal::ImageInodes, Bound::Percent(5.0)),
        ];
        assert_eq!(all, Thresholds(expected));
        for off in ["", "nodefs.available<0%, imagefs.available<100%"] {
            assert_eq!(thresholds(off), Thresholds::default());
        }
        for (text, expected) in [
            ("memory.available", "invalid eviction threshold"),
            ("memory.available>1", "invalid eviction threshold"),
            ("memory<1", "unsupported eviction signal \"memory\""),
            ("pid.available<0", "expected a positive quantity"),
            ("pid.available<-1%", "expected a positive quantity"),
            ("pid.available<NaN%", "expected a positive quantity"),
            ("pid.available<101%", "expected a positive quantity"),
            ("pid.available<x", "expected a positive quantity"),
            (
                "pid.available<1,pid.available<2",
                "duplicate eviction threshold",
            ),
        ] {
            let error = text.parse::<Thresholds>().expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn pressure_is_reported_until_it_was_away_for_five_minutes() {
        let all = "memory.available<10,nodefs.inodesFree<5%,pid.available<100";
        let mut pressure = Pressure::new(thresholds(all));
        let begin = Instant::now();
        let mut at = |seconds: u64, memory: u64, inodes: u64, processes: u64| {
            let amount = |signal| {
                let available = match signal {
                    Signal::Memory => memory,
                    Signal::NodeInodes => inodes,
                    Signal::Processes => processes,
                    _ => return None,
                };
                Some(Amount {
                    available,
                    capacity: 1000,
                })
            };
            let now = begin + Duration::from_secs(seconds);
            let pressed = pressure.evaluate(amount, now);
            (pressed.memory, pressed.disk, pressed.processes)
        };
        assert_eq!(at(0, 10, 50, 100), (false, false, false));
        assert_eq!(at(10, 9, 50, 100), (true, false, false));
        assert_eq!(at(20, 10, 49, 99), (true, true, true));
        assert_eq!(at(309, 10, 50, 100), (true, true, true));
        assert_eq!(at(310, 10, 50, 100), (false, true, true));
        assert_eq!(at(320, 10, 50, 100), (false, false, false));
    }

    #[test]
    fn the_node_can_be_observed() {
        let root = tempfile::tempdir().expect("a directory");
        for (name, signal) in SIGNALS {
            let amount = observe(signal, root.path());
            // A file system may have no inodes to count.
            let counted = !matches!(signal, Signal::NodeInodes | Signal::ImageInodes);
            assert!(amount.is_some() || !counted, "{name}");
            assert!(
                amount.is_none_or(|it| it.available <= it.capacity),
                "{name} {amount:?}"
            );
        }
    }
}
