//! `/stats/summary`: the same figures as an object.

use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Container, Machine, Pod};

/// The disk of the node's directory, which is also that of its images and pods.
#[derive(Debug, Clone, Copy)]
pub(super) struct Disk {
    at: Timestamp,
    capacity: u64,
    available: u64,
    used: u64,
    inodes: u64,
    inodes_free: u64,
}

impl Disk {
    pub(super) fn of(directory: &Path) -> Option<Self> {
        let found = rustix::fs::statvfs(directory).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Some(Self {
            at: Timestamp::now(),
            capacity: bytes(found.f_blocks),
            available: bytes(found.f_bavail),
            used: bytes(found.f_blocks.saturating_sub(found.f_bfree)),
            inodes: found.f_files,
            inodes_free: found.f_ffree,
        })
    }

    fn json(self) -> Value {
        json!({"time": self.at, "availableBytes": self.available, "capacityBytes": self.capacity,
            "usedBytes": self.used, "inodesFree": self.inodes_free, "inodes": self.inodes,
            "inodesUsed": self.inodes.saturating_sub(self.inodes_free)})
    }
}

/// Adds figures with their time to parts of an object, as far as there are some.
fn add(shown: &mut Value, at: Timestamp, figures: &[(&str, &str, Option<u64>)]) {
    for (part, name, value) in figures {
        if let Some(value) = value {
            shown[*part]["time"] = json!(at);
            shown[*part][*name] = json!(value);
        }
    }
}

/// The summary of a node and its pods.
pub(super) fn of(name: &str, machine: Option<Machine>, disk: Option<Disk>, pods: &[Pod]) -> Value {
    let mut node = json!({"nodeName": name});
    if let Some(machine) = machine {
        node["startTime"] = json!(machine.booted);
        node["cpu"] = json!({"time": machine.at, "usageCoreNanoSeconds": machine.cpu_nanoseconds});
        node["memory"] = json!({"time": machine.at, "workingSetBytes": machine.memory,
            "usageBytes": machine.memory, "availableBytes": machine.available});
        node["swap"] = json!({"time": machine.at, "swapUsageBytes": machine.swap});
        if let Some(processes) = machine.processes {
            let most = machine.most_processes;
            node["rlimit"] = json!({"time": machine.at, "maxpid": most, "curproc": processes});
        }
    }
    if let Some(disk) = disk {
        node["fs"] = disk.json();
        node["runtime"] = json!({"imageFs": disk.json()});
    }
    let pods: Vec<Value> = pods.iter().map(pod).collect();
    json!({"node": node, "pods": pods})
}

fn pod(pod: &Pod) -> Value {
    let reference = json!({"name": pod.name, "namespace": pod.namespace, "uid": pod.uid});
    let containers: Vec<Value> = pod.containers.iter().map(container).collect();
    let mut shown =
        json!({"podRef": reference, "startTime": pod.started, "containers": containers});
    let Some(at) = pod.measured() else {
        return shown;
    };
    let figures = [
        ("cpu", "usageCoreNanoSeconds", pod.sum(|it| it.cpu)),
        ("memory", "workingSetBytes", pod.sum(|it| it.working_set)),
        ("memory", "usageBytes", pod.sum(|it| it.memory)),
        ("memory", "rssBytes", pod.sum(|it| it.rss)),
        ("swap", "swapUsageBytes", pod.sum(|it| it.swap)),
    ];
    add(&mut shown, at, &figures);
    if let Some(count) = pod.sum(|it| it.processes) {
        shown["process_stats"] = json!({"process_count": count});
    }
    shown
}

fn container(container: &Container) -> Value {
    let usage = &container.usage;
    let figures = &usage.figures;
    let mut shown = json!({"name": usage.container, "startTime": container.started});
    let left = container.memory_limit.zip(figures.working_set);
    let left = left.map(|(limit, used)| limit.saturating_sub(used));
    let figures = [
        ("cpu", "usageCoreNanoSeconds", figures.cpu),
        ("cpu", "usageNanoCores", usage.cpu_nanocores),
        ("memory", "workingSetBytes", figures.working_set),
        ("memory", "usageBytes", figures.memory),
        ("memory", "rssBytes", figures.rss),
        ("memory", "pageFaults", figures.page_faults),
        ("memory", "majorPageFaults", figures.major_page_faults),
        ("memory", "availableBytes", left),
        ("swap", "swapUsageBytes", figures.swap),
    ];
    add(&mut shown, usage.at, &figures);
    shown
}
