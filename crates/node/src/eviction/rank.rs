//! Which pod is evicted first, and the message about it: the kubelet's rules. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use allot_apimachinery::quantity::{Format, Quantity};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::claims::containers;
use crate::disk::Used;
use crate::pods::{requests, storage};
use crate::pressure::{Reclaim, Resource, Signal};

/// Where images and containers are, which decides what relieves a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Everything is on one file system.
    One,
    /// Images and containers are on another one than the directory of the node.
    Images,
    /// Images are, and containers are not.
    ImagesWithoutContainers,
}

/// What of a pod is on the disk that has too little space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// The root directories of its containers.
    roots: bool,
    /// Logs and volumes.
    others: bool,
}

/// What of the node itself can be removed from a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Remains {
    pub(super) containers: bool,
    pub(super) images: bool,
}

impl Layout {
    /// What of pods is on the disk of a signal.
    pub(super) fn parts(self, signal: Signal) -> Parts {
        let (roots, others) = match (self, signal.is_of_images()) {
            (Self::One, _) | (Self::ImagesWithoutContainers, false) => (true, true),
            (Self::Images, true) => (true, false),
            (Self::Images, false) => (false, true),
            (Self::ImagesWithoutContainers, true) => (false, false),
        };
        Parts { roots, others }
    }

    /// What of the node can be removed from the disk of a signal.
    pub(super) fn remains(self, signal: Signal) -> Remains {
        if !signal.resource().is_on_disk() {
            return Remains::default();
        }
        let (containers, images) = match (self, signal.is_of_images()) {
            (Self::One, _) | (Self::Images, true) => (true, true),
            (Self::Images, false) => (false, false),
            (Self::ImagesWithoutContainers, of_images) => (!of_images, of_images),
        };
        Remains { containers, images }
    }
}

/// What a container uses, as far as it was measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ContainerUse {
    pub(super) name: String,
    pub(super) memory: Option<u64>,
    pub(super) processes: u64,
    pub(super) root: Used,
    pub(super) logs: Used,
}

/// What a pod uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PodUse {
    /// Those of its containers that run.
    pub(super) containers: Vec<ContainerUse>,
    pub(super) volumes: Used,
}

impl PodUse {
    fn memory(&self) -> u64 {
        let all = self.containers.iter().filter_map(|it| it.memory);
        all.fold(0, u64::saturating_add)
    }

    fn processes(&self) -> u64 {
        self.containers.iter().map(|it| it.processes).sum()
    }

    fn disk(&self, parts: Parts) -> Used {
        let counted = |counts: bool, used: Used| if counts { used } else { Used::default() };
        let roots: Used = self.containers.iter().map(|it| it.root).sum();
        let logs: Used = self.containers.iter().map(|it| it.logs).sum();
        counted(parts.roots, roots) + counted(parts.others, logs + self.volumes)
    }
}

/// A pod that could be evicted.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) pod: Arc<Pod>,
    /// `None` if nothing of it runs.
    pub(super) usage: Option<PodUse>,
}

/// The order of eviction by what a pod uses: first those that were not measured, then those that use more than they requested;
/// and those that use more of it before others.
fn excess(candidate: &Candidate, resource: Resource, parts: Parts) -> (u8, Reverse<i128>) {
    const UNKNOWN: u8 = 0;
    const MORE: u8 = 1;
    const WITHIN: u8 = 2;
    let pod = &candidate.pod;
    let Some(usage) = &candidate.usage else {
        let class = match resource {
            Resource::Processes => WITHIN,
            _ => UNKNOWN,
        };
        return (class, Reverse(i128::MAX));
    };
    let disk = usage.disk(parts);
    let (used, requested, less) = match resource {
        Resource::Memory => {
            let memory = requests(pod, &BTreeMap::new()).memory;
            (usage.memory(), memory, memory)
        }
        Resource::Storage => {
            let storage = storage::request(pod);
            (disk.bytes, storage, storage)
        }
        // Inodes cannot be requested; as with a kubelet the bytes that are requested count for the order.
        Resource::Inodes => (disk.inodes, 0, storage::request(pod)),
        // Nor can process IDs, for which priority counts before what is used.
        Resource::Processes => return (WITHIN, Reverse(usage.processes().into())),
    };
    let class = match i128::from(used) > i128::from(requested) {
        true => MORE,
        false => WITHIN,
    };
    (class, Reverse(i128::from(used) - i128::from(less)))
}

/// Orders pods by what is evicted first: those that use more than they requested, then by priority, then by how much more.
pub(super) fn rank(candidates: &mut [Candidate], resource: Resource, parts: Parts) {
    let key = |candidate: &Candidate| {
        let (class, by) = excess(candidate, resource, parts);
        let priority = candidate.pod.spec.as_ref().and_then(|spec| spec.priority);
        (class, priority.unwrap_or(0), by)
    };
    candidates.sort_by_cached_key(key);
}

/// The kubelet's message about an evicted pod.
pub(super) fn message(reclaim: &Reclaim, candidate: &Candidate) -> String {
    let resource = reclaim.resource();
    let name = resource.name();
    let mut text = format!("The node was low on resource: {name}. ");
    if let Some((least, available)) = &reclaim.amounts {
        text += &format!("Threshold quantity: {least}, available: {available}. ");
    }
    let Some(usage) = &candidate.usage else {
        return text;
    };
    let pod = &candidate.pod;
    let bytes =
        |bytes: u64| Quantity::new(i64::try_from(bytes).unwrap_or(i64::MAX), Format::BinarySi);
    let none = || "0".to_owned();
    let spec = pod.spec.as_ref();
    if resource == Resource::Memory
        && let Some(whole) = spec.and_then(|spec| spec.resources.as_ref())
        && let Some(request) = whole.requests.as_ref().and_then(|all| all.get(name))
    {
        text += &format!(
            "Pod {} was using {}, request is {}, has larger consumption of {name}. ",
            pod.name_any(),
            bytes(usage.memory()),
            request.0
        );
    }
    for container in containers(pod) {
        let Some(measured) = usage.containers.iter().find(|it| it.name == container.name) else {
            continue;
        };
        let used = match resource {
            Resource::Memory => measured.memory,
            Resource::Storage => Some((measured.root + measured.logs).bytes),
            Resource::Inodes | Resource::Processes => None,
        };
        let requests = container
            .resources
            .as_ref()
            .and_then(|it| it.requests.as_ref());
        let request = requests.and_then(|all| all.get(name));
        let shown = request.map_or_else(none, |it| it.0.clone());
        let request = shown.parse::<Quantity>().unwrap_or_default();
        if let Some(used) = used.map(bytes).filter(|used| *used > request) {
            text += &format!(
                "Container {} was using {used}, request is {shown}, has larger consumption of {name}. ",
                container.name
            );
        }
    }
    text
}

#[cfg(test)]
mod tests;
