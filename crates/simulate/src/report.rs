//! What came of a simulation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::history::{End, Record};
use crate::measure::{Sample, rounded, seconds};
use crate::simulation::{FirstUnschedulable, Simulation};

/// The number of names that are listed for pods with something in common.
const SHOWN: usize = 5;

/// What came of a simulation. The same simulation has the same report, byte for byte.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// How it was simulated, as the caller describes it.
    pub about: BTreeMap<String, String>,
    /// The figures of the whole simulation.
    pub summary: Summary,
    /// The pods that wait in the end, by what the scheduler says.
    pub waiting: Vec<Waiting>,
    /// Which pods were preempted, and for which.
    pub preemptions: Vec<Preempted>,
    /// What became of each pod, in the order of arrival.
    pub pods: Vec<Pod>,
    /// The course of things.
    pub samples: Vec<Sample>,
    /// What was not simulated.
    pub notes: Vec<String>,
}

/// The numbers of a simulation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Summary {
    /// How much time passed in the simulation, in seconds.
    pub duration: f64,
    /// Nodes in the end.
    pub nodes: usize,
    /// Units of devices: devices that are given or shared as a whole, and sets of counters that partitions draw from.
    pub devices: u64,
    /// Pods that were there from the start.
    pub found: usize,
    /// Pods that arrived.
    pub arrived: usize,
    /// Pods that got a node, of those that arrived or were found waiting.
    pub placed: usize,
    /// Pods that ran for their time.
    pub completed: usize,
    /// Pods that had to make way.
    pub preempted: usize,
    /// Pods that wait in the end.
    pub waiting: usize,
    /// Attempts of the scheduler.
    pub attempts: u64,
    /// The pod that fitted nowhere at its turn before any other did.
    pub first_refusal: Option<Refusal>,
    /// Seconds between arrival and placement.
    pub wait: Spread,
    /// The share of devices in use: in the mean over time, and in the end.
    pub devices_in_use: TimeSeries,
    /// The share of free devices that is of no use to requests, see [`Sample::fragmentation`].
    pub fragmentation: TimeSeries,
    /// The share of processors that pods request.
    pub cpu: TimeSeries,
    /// The share of memory that pods request.
    pub memory: TimeSeries,
}

/// Some numbers in order.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Spread {
    /// Their mean.
    pub mean: f64,
    /// Half of them are not above.
    pub p50: f64,
    /// Nine of ten are not above.
    pub p90: f64,
    /// Ninety-nine of a hundred are not above.
    pub p99: f64,
    /// The largest value.
    pub max: f64,
}

/// A measure over time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeSeries {
    /// In the mean over time.
    pub mean: f64,
    /// The most that was measured.
    pub peak: f64,
    /// The value at the end of the simulation.
    pub end: f64,
}

/// The first pod that fitted nowhere.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Refusal {
    /// The pod, `namespace/name`.
    pub pod: String,
    /// When, in seconds from the start.
    pub at: f64,
    /// How many pods had got a node before.
    pub placed_before: usize,
    /// What the scheduler said.
    pub message: String,
}

/// Pods that wait for the same reason.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// What the scheduler says; empty where it does not try: gates, or claims that are missing.
    pub message: String,
    /// How many pods.
    pub count: usize,
    /// The first of them.
    pub pods: Vec<String>,
}

/// A pod that was preempted for another one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Preempted {
    /// When, in seconds from the start.
    pub at: f64,
    /// The pod that was preempted, `namespace/name`.
    pub victim: String,
    /// For whom.
    pub preemptor: String,
    /// From where.
    pub node: String,
}

/// What became of a pod of the workload.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    /// `namespace/name`.
    pub pod: String,
    /// When it arrived, in seconds from the start.
    pub arrived: f64,
    /// When it got its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placed: Option<f64>,
    /// Name of the node; empty if the pod never got one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// `driver/pool/device` of its devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<f64>,
    /// How it ended: `completed`, `preempted` or `deleted`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub end: String,
}

impl From<&Record> for Pod {
    fn from(record: &Record) -> Self {
        let placed = record.placed.as_ref();
        Self {
            pod: record.key.to_string(),
            arrived: seconds(record.arrived),
            placed: placed.map(|p| seconds(p.at)),
            node: placed.map_or_else(String::new, |p| p.node.to_string()),
            devices: placed.map_or_else(Vec::new, |p| {
                p.devices.iter().map(|d| d.to_string()).collect()
            }),
            ended: record.ended.map(|(at, _)| seconds(at)),
            end: match record.ended {
                None => "",
                Some((_, End::Completed)) => "completed",
                Some((_, End::Preempted)) => "preempted",
                Some((_, End::Deleted)) => "deleted",
            }
            .to_owned(),
        }
    }
}

impl Spread {
    fn of(mut numbers: Vec<f64>) -> Self {
        if numbers.is_empty() {
            return Self::default();
        }
        numbers.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let rank = (numbers.len() * percent).div_ceil(100);
            numbers[rank.clamp(1, numbers.len()) - 1]
        };
        Self {
            mean: rounded(numbers.iter().sum::<f64>() / numbers.len() as f64),
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max: at(100),
        }
    }
}

impl Simulation {
    /// What came of it so far.
    #[must_use]
    pub fn report(&self) -> Report {
        Report {
            about: BTreeMap::new(),
            summary: self.summary(),
            waiting: self.waiting(),
            preemptions: self
                .preemptions
                .iter()
                .map(|p| Preempted {
                    at: seconds(p.at),
                    victim: p.victim.to_string(),
                    preemptor: p.preemptor.to_string(),
                    node: p.node.to_string(),
                })
                .collect(),
            pods: self.records.iter().map(Pod::from).collect(),
            samples: self.sampler.samples().to_vec(),
            notes: self.workload.notes.clone(),
        }
    }

    fn summary(&self) -> Summary {
        let records = &self.records;
        let count = |is: &dyn Fn(&Record) -> bool| records.iter().filter(|r| is(r)).count();
        let ended = |end: End| count(&|r| r.ended.is_some_and(|(_, how)| how == end));
        // Pods that were found on nodes were placed by another scheduler.
        let placed = records.iter().filter(|r| !r.was_running);
        let waits: Vec<f64> = placed.filter_map(Record::waited).map(seconds).collect();
        let course = |of: fn(&Sample) -> f64| {
            let samples = self.sampler.samples();
            TimeSeries {
                mean: rounded(self.sampler.mean(of)),
                peak: samples.iter().map(of).fold(0.0, f64::max),
                end: samples.last().map_or(0.0, of),
            }
        };
        let last = self.sampler.samples().last();
        Summary {
            duration: seconds(self.now),
            nodes: self.core.cache().snapshot().nodes.len(),
            devices: last.map_or(0, |s| s.devices),
            found: count(&|r| r.found),
            arrived: count(&|r| !r.found),
            placed: waits.len(),
            completed: ended(End::Completed),
            preempted: ended(End::Preempted),
            waiting: count(&Record::is_waiting),
            attempts: self.attempts,
            first_refusal: self.first_refusal.as_ref().map(|first| self.refusal(first)),
            wait: Spread::of(waits),
            devices_in_use: course(|s| match s.devices {
                0 => 0.0,
                devices => rounded(s.devices_in_use / devices as f64),
            }),
            fragmentation: course(|s| s.fragmentation),
            cpu: course(|s| s.cpu),
            memory: course(|s| s.memory),
        }
    }

    fn refusal(&self, first: &FirstUnschedulable) -> Refusal {
        Refusal {
            pod: self.records[first.record].key.to_string(),
            at: seconds(first.at),
            placed_before: first.placed,
            message: first.message.clone(),
        }
    }

    fn waiting(&self) -> Vec<Waiting> {
        let mut groups: BTreeMap<&str, Waiting> = BTreeMap::new();
        for record in self.records.iter().filter(|r| r.is_waiting()) {
            let message = record.reason.as_deref().unwrap_or_default();
            let group = groups.entry(message).or_insert_with(|| Waiting {
                message: message.to_owned(),
                ..Waiting::default()
            });
            group.count += 1;
            if group.pods.len() < SHOWN {
                group.pods.push(record.key.to_string());
            }
        }
        let mut groups: Vec<Waiting> = groups.into_values().collect();
        groups.sort_by_key(|group| (std::cmp::Reverse(group.count), group.message.is_empty()));
        groups
    }
}
