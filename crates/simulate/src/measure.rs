//! The state of the cluster at a moment, in numbers.

use std::time::Duration;

use allot_allocator::free_devices::WHOLE;
use allot_scheduler::core::Core;
use serde::{Deserialize, Serialize};

/// What was measured at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sample {
    /// When, in seconds from the start.
    pub at: f64,
    /// Pods on nodes.
    pub running: usize,
    /// Pods that wait for a node.
    pub waiting: usize,
    /// Units of devices in use, parts of units counted as such.
    pub devices_in_use: f64,
    /// Units of devices that there are.
    pub devices: u64,
    /// The share of free devices that a request cannot use, averaged over the sizes of requests; see
    /// [`FreeDevices::fragmentation`](allot_allocator::free_devices::FreeDevices::fragmentation).
    pub fragmentation: f64,
    /// The share of processors that pods request.
    pub cpu: f64,
    /// The share of memory that pods request.
    pub memory: f64,
}

/// Collects samples, and the means over time of what they measure.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    samples: Vec<Sample>,
}

/// Most samples that are kept. With more, every second one is left out.
const MOST_SAMPLES: usize = 4096;

impl Sampler {
    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Adds a sample. Says whether there are so many now that fewer should be taken.
    pub(crate) fn add(&mut self, sample: Sample) -> bool {
        match self.samples.last_mut() {
            Some(last) if last.at >= sample.at => *last = sample,
            _ => self.samples.push(sample),
        }
        let too_many = self.samples.len() > MOST_SAMPLES;
        if too_many {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
        }
        too_many
    }

    /// The mean over time of a measure, each value counting until the next one.
    pub(crate) fn mean(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        let pairs = self.samples.windows(2);
        let (sum, time) = pairs.fold((0.0, 0.0), |(sum, time), pair| {
            let span = pair[1].at - pair[0].at;
            (sum + of(&pair[0]) * span, time + span)
        });
        match time > 0.0 {
            true => sum / time,
            false => self.samples.last().map_or(0.0, of),
        }
    }
}

/// Seconds with their thousandths.
pub(crate) fn seconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64())
}

/// To thousandths, so that what is printed is short.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

fn part(of: f64, all: f64) -> f64 {
    match all > 0.0 {
        true => rounded(of / all),
        false => 0.0,
    }
}

/// What the nodes have, and what of it is in use.
pub(crate) fn of_cluster(core: &Core) -> Sample {
    let cluster = core.claims().cluster();
    let (mut free, mut total, mut wasted, mut missed) = (0, 0, 0, 0);
    let (mut cpu, mut memory) = ((0.0, 0.0), (0.0, 0.0));
    for node in &core.cache().snapshot().nodes {
        let devices = cluster.free_devices(&node.device_node);
        free += devices.free();
        total += devices.total();
        let (numerator, denominator) = devices.fragmentation();
        wasted += numerator;
        missed += denominator;
        cpu.0 += node.requested.milli_cpu as f64;
        cpu.1 += node.allocatable.milli_cpu as f64;
        memory.0 += node.requested.memory as f64;
        memory.1 += node.allocatable.memory as f64;
    }
    let whole = u64::from(WHOLE);
    Sample {
        devices: total / whole,
        devices_in_use: rounded((total - free.min(total)) as f64 / whole as f64),
        fragmentation: part(wasted as f64, missed as f64),
        cpu: part(cpu.0, cpu.1),
        memory: part(memory.0, memory.1),
        ..Sample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_until_the_next_one() {
        let mut sampler = Sampler::default();
        for (at, cpu) in [(0.0, 0.0), (10.0, 1.0), (40.0, 0.5)] {
            sampler.add(Sample {
                at,
                cpu,
                ..Sample::default()
            });
        }
        assert_eq!(sampler.mean(|s| s.cpu), 0.75);
        assert_eq!(Sampler::default().mean(|s| s.cpu), 0.0);
    }

    #[test]
    fn so_many_samples_are_kept_and_no_more() {
        let mut sampler = Sampler::default();
        for at in 0..3 * MOST_SAMPLES {
            sampler.add(Sample {
                at: at as f64,
                ..Sample::default()
            });
        }
        let kept = sampler.samples();
        assert!((MOST_SAMPLES / 2..=MOST_SAMPLES).contains(&kept.len()));
        assert!(kept.windows(2).all(|pair| pair[0].at < pair[1].at));
    }
}
