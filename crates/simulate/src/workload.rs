//! What arrives: manifests turned into pods with their times.

use std::time::Duration;

use allot_apimachinery::well_known::DAEMON_POD_TOLERATIONS;
use allot_model::features::Features;
use allot_model::quota::allocated_class;
use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::prepare::{self, text, title};
use crate::show::parsed;
use crate::time::duration;

/// Annotation of a pod or of its workload: how long it runs.
pub const DURATION: &str = "simulate.allot.dev/duration";
/// Annotation of a pod or of its workload: when it arrives, counted from the start.
pub const ARRIVAL: &str = "simulate.allot.dev/arrival";

/// Most pods that a workload may have: what fits into memory many times over.
pub(crate) const MOST_PODS: usize = 10_000_000;

/// A pod that others are copies of.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Name of the workload that it is from.
    pub name: String,
    /// The pod, in its namespace.
    pub pod: Pod,
    /// How long its copies run, unless their arrival says otherwise.
    pub duration: Option<Duration>,
}

/// A pod that arrives.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// When, counted from the start.
    pub at: Duration,
    /// The name of the pod, unique in the workload.
    pub name: Box<str>,
    /// The number of its draft.
    pub draft: u32,
    /// How long it runs once it is on a node; `None` for as long as the simulation lasts.
    pub duration: Option<Duration>,
    /// Its priority, where that is not the draft's.
    pub priority: Option<i32>,
    /// The number of the job that continues with another pod when this one has ended.
    pub job: Option<u32>,
}

/// In which order pods arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// At their times.
    #[default]
    AsGiven,
    /// One after the other, drawn from all by the seed, again and again; none ends, and with the first that fits nowhere
    /// the simulation ends. It measures how much of a workload fits.
    Fill,
}

/// A job that has pods to run after the first ones.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) draft: u32,
    /// How many pods are still to be started.
    pub(crate) left: usize,
    /// The number of the next pod.
    pub(crate) next: usize,
}

/// What arrives.
#[derive(Debug, Clone, Default)]
pub struct Workload {
    /// Objects that are there from the start: classes, templates, claims, nodes, slices and the like.
    pub objects: Vec<Value>,
    /// Pods to copy.
    pub drafts: Vec<Draft>,
    /// The pods that arrive.
    pub arrivals: Vec<Arrival>,
    /// What is not simulated, for the report.
    pub notes: Vec<String>,
    pub(crate) jobs: Vec<Job>,
}

/// Kinds that say nothing about where pods go.
const WITHOUT_EFFECT: [&str; 14] = [
    "ServiceAccount",
    "Service",
    "ConfigMap",
    "Secret",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "NetworkPolicy",
    "Ingress",
    "Event",
    "Lease",
    "CustomResourceDefinition",
    "HorizontalPodAutoscaler",
];

impl Workload {
    /// Adds manifests: pods and workloads become arrivals, other objects are there from the start. `nodes` are those that
    /// pods of DaemonSets are made for. `namespace` is meant where none is given.
    ///
    /// # Errors
    /// An object that an API server would refuse, or of a kind that is not simulated.
    pub fn add(
        &mut self,
        objects: Vec<Value>,
        namespace: &str,
        nodes: &[Value],
        features: &Features,
        now: Timestamp,
    ) -> anyhow::Result<()> {
        let added: Vec<Value> = objects
            .iter()
            .filter(|object| object["kind"] == "Node")
            .cloned()
            .collect();
        for object in objects {
            let kind = text(&object, "/kind").to_owned();
            let is_workload = matches!(
                &*kind,
                "Pod" | "Deployment" | "ReplicaSet" | "StatefulSet" | "Job" | "DaemonSet"
            );
            if is_workload {
                let expanded = Expanded::new(&object, namespace, features, now)?;
                let copies = expanded.copies(&object, nodes.iter().chain(&added))?;
                self.push(expanded, copies)?;
            } else if WITHOUT_EFFECT.contains(&&*kind) {
                self.note(format!("{kind} is not simulated"));
            } else {
                if kind == "ResourceQuota" && has_more_than_devices(&object) {
                    self.note("ResourceQuota is simulated for allocated devices only".to_owned());
                }
                let stored = prepare::stored(object, namespace, features, now)?;
                self.objects.push(stored);
            }
        }
        Ok(())
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn push(&mut self, expanded: Expanded, copies: Copies) -> anyhow::Result<()> {
        let draft = u32::try_from(self.drafts.len()).context("too many workloads")?;
        let job = match copies.later {
            0 => None,
            left => {
                let next = copies.names.len();
                self.jobs.push(Job { draft, left, next });
                u32::try_from(self.jobs.len() - 1).ok()
            }
        };
        let total = self.arrivals.len() + copies.names.len() + copies.later;
        anyhow::ensure!(
            total <= MOST_PODS,
            "{}: more than {MOST_PODS} pods",
            expanded.draft.name
        );
        for (name, node) in copies.names {
            let mut draft = draft;
            if let Some(node) = node {
                // Each pod of a DaemonSet is for one node.
                draft = u32::try_from(self.drafts.len()).context("too many pods")?;
                let mut own = expanded.draft.clone();
                bind_to(&mut own.pod, &node)?;
                self.drafts.push(own);
            }
            self.arrivals.push(Arrival {
                at: expanded.at,
                name: name.into(),
                draft,
                duration: expanded.draft.duration,
                priority: None,
                job,
            });
        }
        if self.drafts.len() == draft as usize {
            self.drafts.push(expanded.draft);
        }
        Ok(())
    }

    /// The number of the draft with a name.
    #[must_use]
    pub fn draft_named(&self, name: &str) -> Option<u32> {
        let at = self.drafts.iter().position(|draft| draft.name == name)?;
        u32::try_from(at).ok()
    }
}

/// Whether a quota limits what admission counts, which is not simulated.
fn has_more_than_devices(quota: &Value) -> bool {
    let hard = quota.pointer("/spec/hard").and_then(Value::as_object);
    let mut names = hard.into_iter().flatten().map(|(name, _)| name);
    names.any(|name| allocated_class(name).is_none())
}

/// A workload as one pod.
struct Expanded {
    draft: Draft,
    at: Duration,
}

/// The pods of a workload.
struct Copies {
    /// Their names, and the node that each is for.
    names: Vec<(String, Option<String>)>,
    /// The number of pods that are created when earlier ones have ended.
    later: usize,
}

impl Expanded {
    fn new(
        object: &Value,
        namespace: &str,
        features: &Features,
        now: Timestamp,
    ) -> anyhow::Result<Self> {
        let mut pod = match text(object, "/kind") {
            "Pod" => object.clone(),
            _ => of_template(object),
        };
        let name = text(object, "/metadata/name").to_owned();
        if text(&pod, "/metadata/name").is_empty()
            && let Some(prefix) = pod["metadata"]["generateName"].as_str()
        {
            pod["metadata"]["name"] = json!(format!("{prefix}0"));
        }
        let written = |annotation: &str| {
            let of = |object: &Value| object["metadata"]["annotations"][annotation].clone();
            let found = [of(&pod), of(object)]
                .into_iter()
                .find(|value| !value.is_null());
            let Some(value) = found else {
                return Ok(None);
            };
            let text = value.as_str().unwrap_or_default();
            let context = || format!("{}: annotation {annotation}", title(object));
            duration(text).map(Some).with_context(context)
        };
        let at = written(ARRIVAL)?.unwrap_or_default();
        let duration = written(DURATION)?;
        let pod = prepare::stored(pod, namespace, features, now)?;
        let name = match name.is_empty() {
            true => text(&pod, "/metadata/name").to_owned(),
            false => name,
        };
        let pod: Pod = parsed(pod)?;
        Ok(Self {
            draft: Draft {
                name,
                pod,
                duration,
            },
            at,
        })
    }

    fn copies<'a>(
        &self,
        object: &Value,
        nodes: impl Iterator<Item = &'a Value>,
    ) -> anyhow::Result<Copies> {
        let number = |pointer: &str| -> anyhow::Result<Option<usize>> {
            match object.pointer(pointer) {
                None | Some(Value::Null) => Ok(None),
                Some(value) => {
                    let number = value.as_u64().and_then(|n| usize::try_from(n).ok());
                    let number = number.filter(|n| *n <= MOST_PODS);
                    let context =
                        || format!("{}: {pointer} is no number of pods: {value}", title(object));
                    number.map(Some).with_context(context)
                }
            }
        };
        let name = &self.draft.name;
        let numbered = |count: usize| (0..count).map(|i| (format!("{name}-{i}"), None)).collect();
        let (names, later) = match text(object, "/kind") {
            "Pod" => {
                let name = self.draft.pod.metadata.name.clone();
                (vec![(name.unwrap_or_default(), None)], 0)
            }
            "Job" => {
                let parallel = number("/spec/parallelism")?.unwrap_or(1);
                let total = number("/spec/completions")?.unwrap_or(parallel);
                (
                    numbered(parallel.min(total)),
                    total.saturating_sub(parallel),
                )
            }
            "DaemonSet" => {
                let wanted = object["spec"]["template"]["spec"]["nodeSelector"].as_object();
                let fits = |node: &&Value| {
                    let labels = &node["metadata"]["labels"];
                    wanted.is_none_or(|w| w.iter().all(|(k, v)| labels[k] == *v))
                };
                let node = |node: &Value| text(node, "/metadata/name").to_owned();
                let each = nodes.filter(fits).map(node);
                (each.map(|n| (format!("{name}-{n}"), Some(n))).collect(), 0)
            }
            _ => (numbered(number("/spec/replicas")?.unwrap_or(1)), 0),
        };
        Ok(Copies { names, later })
    }
}

/// The pod of a workload.
fn of_template(object: &Value) -> Value {
    let mut pod = object["spec"]["template"].clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    for field in ["name", "namespace"] {
        pod["metadata"][field] = object["metadata"][field].clone();
    }
    // So that pods of one set are recognised as such: they are spread by default.
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": object["apiVersion"],
        "kind": match text(object, "/kind") {
            "Deployment" => "ReplicaSet",
            kind => kind,
        },
        "name": object["metadata"]["name"],
        "uid": format!("{}-{}", text(object, "/kind"), text(object, "/metadata/name")),
        "controller": true,
    }]);
    pod
}

/// What a DaemonSet's controller adds to a pod.
fn bind_to(pod: &mut Pod, node: &str) -> anyhow::Result<()> {
    let spec = pod.spec.get_or_insert_default();
    let affinity = spec.affinity.get_or_insert_default();
    let affinity = affinity.node_affinity.get_or_insert_default();
    let terms = json!({"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": [node]},
    ]}]});
    affinity.required_during_scheduling_ignored_during_execution =
        Some(serde_json::from_value(terms)?);
    for (key, effect) in DAEMON_POD_TOLERATIONS {
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        let toleration = serde_json::from_value(toleration)?;
        spec.tolerations.get_or_insert_default().push(toleration);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
