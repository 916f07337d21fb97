//! The objects of the cluster, as the API server would keep them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use allot_scheduler::pod::{Key, PodInfo, Uid};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::prepare::text;

/// Kind, namespace, name.
pub(crate) type Identity = (String, String, String);

/// A pod that has not ended.
#[derive(Debug)]
pub(crate) struct LivePod {
    pub(crate) key: Key,
    /// The pod as it is stored, with everything that was written.
    pub(crate) pod: Arc<Pod>,
    pub(crate) node: Option<Arc<str>>,
    /// The claims that it uses.
    pub(crate) claims: Vec<Key>,
    /// How long it runs once it is on a node; `None` for as long as the simulation lasts.
    pub(crate) duration: Option<Duration>,
    /// How long it may run by its own deadline.
    pub(crate) deadline: Option<Duration>,
    /// The number of its record.
    pub(crate) record: usize,
    /// The job that it is one of.
    pub(crate) job: Option<u32>,
    pub(crate) terminating: bool,
    /// It makes way for a pod of higher priority.
    pub(crate) preempted: bool,
}

/// What is stored. Pods and claims are kept in the form that the scheduler takes; the other kinds, which change seldom,
/// as they were written.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    version: u64,
    identities: u64,
    pub(crate) others: BTreeMap<Identity, Value>,
    pub(crate) pods: FxHashMap<Uid, LivePod>,
    pub(crate) names: FxHashMap<Key, Uid>,
    /// Pods that have ended, where they are kept.
    pub(crate) finished: BTreeMap<Key, Value>,
    pub(crate) claims: FxHashMap<Key, Arc<ResourceClaim>>,
    pub(crate) templates: FxHashMap<Key, ResourceClaimTemplate>,
}

/// A pod as it is stored, and as the scheduler sees it: its copy of a pod on a node lacks parts.
pub(crate) fn stored(pod: Pod) -> (Arc<Pod>, Arc<PodInfo>) {
    let node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref());
    let is_bound = node.is_some_and(|node| !node.is_empty());
    let whole = is_bound.then(|| Arc::new(pod.clone()));
    let info = Arc::new(PodInfo::observed(pod));
    (whole.unwrap_or_else(|| info.pod.clone()), info)
}

pub(crate) fn identity(object: &Value) -> Identity {
    let part = |pointer| text(object, pointer).to_owned();
    (
        part("/kind"),
        part("/metadata/namespace"),
        part("/metadata/name"),
    )
}

impl Objects {
    /// The version of the next write.
    pub(crate) fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// Later versions are newer than this one, which an object came with.
    pub(crate) fn note_version(&mut self, version: &str) {
        // Servers are free in what they call a version; numbers are all that is compared.
        if let Ok(version) = version.parse::<u64>() {
            self.version = self.version.max(version);
        }
    }

    /// The identity of the next object that is created.
    pub(crate) fn next_uid(&mut self) -> String {
        self.identities += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.identities)
    }

    pub(crate) fn pod(&self, uid: &str) -> Option<&LivePod> {
        self.pods.get(uid)
    }

    /// The pod of that name.
    pub(crate) fn pod_named(&self, key: &Key) -> Option<(&Uid, &LivePod)> {
        let uid = self.names.get(key)?;
        self.pods.get(uid).map(|pod| (uid, pod))
    }

    /// All objects of a kind, by namespace and name.
    pub(crate) fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        let kind = kind.to_owned();
        let first = (kind.clone(), String::new(), String::new());
        let range = self.others.range(first..);
        range
            .take_while(move |((k, ..), _)| *k == kind)
            .map(|(_, object)| object)
    }

    /// The value of a PriorityClass; that of the global default class if no name is given.
    pub(crate) fn priority(&self, class: Option<&str>) -> Option<(i32, Option<String>)> {
        let mut classes = self.of_kind("PriorityClass");
        let found = match class.filter(|name| !name.is_empty()) {
            Some("system-node-critical") => return Some((2_000_001_000, None)),
            Some("system-cluster-critical") => return Some((2_000_000_000, None)),
            Some(name) => classes.find(|c| c["metadata"]["name"] == name)?,
            None => classes.find(|c| c["globalDefault"] == true)?,
        };
        let value = i32::try_from(found["value"].as_i64()?).ok()?;
        let policy = found["preemptionPolicy"].as_str().map(str::to_owned);
        Some((value, policy))
    }
}
