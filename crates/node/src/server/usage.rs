//! What pods and the node use: `/stats/summary`, `/metrics/resource` and `/metrics/cadvisor`.
//!
//! Containers are measured by the kernel, in their cgroups, or by a runtime that manages them itself. The node's own figures
//! are those of the kernel.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

use crate::claims;
use crate::memory::{self, Memory};
use crate::oci::measure::Figures;
use crate::pods::Node;
use crate::processes;
use crate::runtime::{Measured, RuntimeError};

mod cadvisor;
mod exposition;
mod resource;
mod summary;
#[cfg(test)]
mod tests;

/// A pod with its containers.
#[derive(Debug, Default)]
struct Pod {
    namespace: String,
    name: String,
    uid: String,
    started: Option<Timestamp>,
    containers: Vec<Container>,
}

impl Pod {
    /// The sum of a figure of all containers; `None` if one of them, or all, do not have it.
    fn sum(&self, value: fn(&Figures) -> Option<u64>) -> Option<u64> {
        let values = self.containers.iter().map(|it| value(&it.usage.figures));
        let values: Option<Vec<u64>> = values.collect();
        let values = values.filter(|values| !values.is_empty())?;
        Some(values.into_iter().fold(0, u64::saturating_add))
    }

    /// When a container was measured last.
    fn measured(&self) -> Option<Timestamp> {
        self.containers.iter().map(|it| it.usage.at).max()
    }
}

#[derive(Debug)]
struct Container {
    started: Timestamp,
    image: String,
    /// Bytes of memory.
    memory_limit: Option<u64>,
    usage: Measured,
}

/// What the kernel says about the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Machine {
    at: Timestamp,
    booted: Option<Timestamp>,
    processors: u64,
    cpu_nanoseconds: u64,
    memory: u64,
    available: u64,
    swap: u64,
    processes: Option<u64>,
    most_processes: Option<u64>,
}

impl Machine {
    /// Reads `/proc`.
    fn read() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let ticks = rustix::param::clock_ticks_per_second();
        let machine = Self::parse(&stat, Memory::read()?, ticks, Timestamp::now())?;
        let most = std::fs::read_to_string("/proc/sys/kernel/pid_max").ok();
        Some(Self {
            processes: processes::count(),
            most_processes: most.and_then(|text| text.trim().parse().ok()),
            ..machine
        })
    }

    fn parse(stat: &str, memory: Memory, ticks: u64, at: Timestamp) -> Option<Self> {
        let times = stat.lines().next()?.strip_prefix("cpu ")?;
        let times = times.split_whitespace().map(str::parse::<u64>);
        let times: Vec<u64> = times.collect::<Result<_, _>>().ok()?;
        // user, nice, system, idle, iowait, irq, softirq, steal; those of guests are in the first two.
        let used = [0, 1, 2, 5, 6, 7].map(|index| times.get(index).copied().unwrap_or(0));
        let used: u64 = used.iter().sum();
        let mut lines = stat.lines();
        let booted = lines.find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
        let each = |line: &&str| {
            let number = line
                .strip_prefix("cpu")
                .and_then(|rest| rest.chars().next());
            number.is_some_and(|first| first.is_ascii_digit())
        };
        Some(Self {
            at,
            booted: booted.and_then(|seconds| Timestamp::from_second(seconds).ok()),
            processors: stat.lines().filter(each).count() as u64,
            cpu_nanoseconds: used.saturating_mul(1_000_000_000 / ticks.max(1)),
            memory: memory.total.saturating_sub(memory.available),
            available: memory.available,
            swap: memory.swap,
            processes: None,
            most_processes: None,
        })
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Each measured container, with the pod that it belongs to.
fn containers(pods: &[Pod]) -> impl Iterator<Item = (&Pod, &Container)> {
    pods.iter()
        .flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)))
}

/// The pods of the node, with the containers that were measured.
async fn pods(node: &Node) -> Result<Vec<Pod>, RuntimeError> {
    let mut by_pod: BTreeMap<String, Vec<Measured>> = BTreeMap::new();
    for usage in node.runtime.usage().await? {
        by_pod.entry(usage.pod_uid.clone()).or_default().push(usage);
    }
    let entries = node.pods.lock();
    let pods = entries.iter().map(|(uid, entry)| {
        let pod = node.allocations.allocated(&entry.update.borrow().pod);
        let states = entry.containers.lock();
        let containers = by_pod.remove(uid).into_iter().flatten();
        // Only those that run: the runtime may still know the last run of one.
        let containers = containers.filter_map(|usage| {
            let running = states.get(&usage.container)?.running()?;
            let spec = claims::containers(&pod).find(|it| it.name == usage.container);
            let image = spec.and_then(|spec| spec.image.clone());
            (running.id == usage.id).then(|| Container {
                started: running.started,
                image: image.unwrap_or_default(),
                memory_limit: spec.and_then(memory::limit_of),
                usage,
            })
        });
        let created = pod.metadata.creation_timestamp.as_ref();
        let started = pod.status.as_ref().and_then(|it| it.start_time.as_ref());
        Pod {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: uid.clone(),
            started: started.or(created).map(|time| time.0),
            containers: containers.collect(),
        }
    });
    let mut pods: Vec<Pod> = pods.collect();
    pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Ok(pods)
}

/// The answer to `/stats/summary`.
///
/// # Errors
/// The runtime does not answer.
pub(super) async fn summary(node: &Node) -> Result<Value, RuntimeError> {
    let pods = pods(node).await?;
    let disk = summary::Disk::of(&node.config.root_dir);
    let name = &node.config.node_name;
    Ok(summary::of(name, Machine::read(), disk, &pods))
}

/// The answer to `/metrics/resource`. A runtime that does not answer is reported in it, as by a kubelet.
pub(super) async fn resources(node: &Node) -> String {
    let (pods, failed) = pods_or_none(node).await;
    resource::text(Machine::read(), &pods, failed)
}

/// The answer to `/metrics/cadvisor`.
pub(super) async fn cadvisor(node: &Node) -> String {
    let (pods, failed) = pods_or_none(node).await;
    cadvisor::text(Machine::read(), &pods, failed)
}

async fn pods_or_none(node: &Node) -> (Vec<Pod>, bool) {
    match pods(node).await {
        Ok(pods) => (pods, false),
        Err(error) => {
            tracing::warn!(%error, "containers were not measured");
            (Vec::new(), true)
        }
    }
}
