//! All pending pods, by reason.

use std::collections::HashMap;
use std::io::{self, Write};

use allot_scheduler::dra::claims::allocation_of;
use allot_scheduler::pod::PodInfo;
use allot_scheduler::pod::claims::claim_key;
use serde::Serialize;
use serde_json::json;

use super::Outcome;
use super::cluster_objects::LoadedScheduler;
use super::report::{Cause, NotShown, Report};
use crate::cmd::{count, some};

/// Pods that are pending for the same reason.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Waiting {
    #[serde(flatten)]
    cause: Cause,
    /// `namespace/name` of each.
    pods: Vec<String>,
}

/// The pending pods, grouped by reason.
#[derive(Debug, Default)]
pub struct Pending {
    groups: Vec<Waiting>,
    /// How many pods wait in other namespaces.
    elsewhere: usize,
    /// What could not be answered about a pod.
    errors: Vec<String>,
    /// The reason of some is not known.
    is_incomplete: bool,
}

impl Pending {
    /// Explains every pending pod in a namespace, or in all.
    pub fn new(loaded: &mut LoadedScheduler, namespace: Option<&str>) -> Self {
        let is_wanted = |of: &str| namespace.is_none_or(|wanted| wanted == of);
        let others = loaded.pods.iter().filter(|((of, _), _)| !is_wanted(of));
        let mut pending = Self {
            elsewhere: others.filter(|(_, pod)| is_pending(pod)).count(),
            ..Self::default()
        };
        let mut keys: Vec<(String, String)> = loaded.pods.keys().cloned().collect();
        keys.retain(|(of, _)| is_wanted(of));
        keys.sort();
        let mut known: HashMap<String, Option<Cause>> = HashMap::new();
        for key in keys {
            let Some(pod) = loaded.pods.get(&key).cloned() else {
                continue;
            };
            if !is_pending(&pod) {
                continue;
            }
            let likeness = likeness(loaded, &pod);
            let cause = match likeness.as_ref().and_then(|l| known.get(l)) {
                Some(cause) => cause.clone(),
                None => match Report::new(loaded, &key.0, &key.1) {
                    Ok(report) => {
                        let cause = report.cause();
                        if let Some(likeness) = likeness.filter(|_| !report.is_in_gang()) {
                            known.insert(likeness, cause.clone());
                        }
                        cause
                    }
                    Err(error) if error.is::<NotShown>() => {
                        pending.is_incomplete = true;
                        error.downcast_ref().map(Cause::not_shown)
                    }
                    Err(error) => {
                        pending.errors.push(format!("{error:#}"));
                        continue;
                    }
                },
            };
            if let Some(cause) = cause {
                pending.add(cause, format!("{}/{}", key.0, key.1));
            }
        }
        // Pods that wait for a change come first.
        pending
            .groups
            .sort_by_key(|g| (g.cause.fits, std::cmp::Reverse(g.pods.len())));
        pending
    }

    fn add(&mut self, cause: Cause, pod: String) {
        let same = |g: &&mut Waiting| g.cause.fits == cause.fits && g.cause.reason == cause.reason;
        match self.groups.iter_mut().find(same) {
            Some(group) => {
                // Each pod of a DaemonSet has a node of its own.
                if group.cause.nearest != cause.nearest {
                    group.cause.nearest = None;
                }
                group.pods.push(pod);
            }
            None => self.groups.push(Waiting {
                cause,
                pods: vec![pod],
            }),
        }
    }

    /// Whether no pod waits for a change, or that cannot be said of some.
    pub fn outcome(&self) -> Outcome {
        match self.is_incomplete || !self.errors.is_empty() {
            true => Outcome::Failed,
            false => Outcome::of(self.groups.iter().all(|g| g.cause.fits)),
        }
    }

    /// The answer if no pod waits in the namespace.
    pub fn nothing(&self) -> String {
        match self.elsewhere {
            0 => "no pod waits".to_owned(),
            pods => format!(
                "no pod waits in this namespace; -A shows {} of others",
                count(pods, "pod")
            ),
        }
    }

    /// Prints a line for each reason: a JSON object, or the sentence with the pods below it.
    pub fn print(&self, out: &mut impl Write, json: bool) -> io::Result<()> {
        for group in &self.groups {
            if json {
                serde_json::to_writer(&mut *out, group)?;
                writeln!(out)?;
                continue;
            }
            let Cause {
                reason, nearest, ..
            } = &group.cause;
            let (pods, nearest) = (
                count(group.pods.len(), "pod"),
                match nearest {
                    Some(node) if group.cause.fits => format!(" (on {node})"),
                    Some(node) => format!(" (nearest: {node})"),
                    None => String::new(),
                },
            );
            writeln!(out, "{pods}: {reason}{nearest}")?;
            writeln!(out, "  {}", some(&group.pods))?;
        }
        for error in &self.errors {
            writeln!(io::stderr(), "error: {error}")?;
        }
        if self.groups.is_empty() && self.errors.is_empty() && !json {
            writeln!(io::stderr(), "{}", self.nothing())?;
        }
        Ok(())
    }
}

/// It has no node, or has one and did not start there yet.
fn is_pending(pod: &PodInfo) -> bool {
    let status = pod.pod.status.as_ref();
    let phase = status.and_then(|s| s.phase.as_deref()).unwrap_or("Pending");
    phase == "Pending" && !pod.is_finished() && pod.pod.metadata.deletion_timestamp.is_none()
}

/// The key of pods with equal answers: their specification, with the requests of their claims instead of the claims'
/// names. `None` if that is not sufficient.
fn likeness(loaded: &LoadedScheduler, pod: &PodInfo) -> Option<String> {
    if pod.node_name().is_some() || pod.group().is_some() {
        return None;
    }
    let mut claims = Vec::new();
    for entry in pod.spec().resource_claims.iter().flatten() {
        let key = claim_key(pod, entry).ok()??;
        let claim = loaded.core.claims().get(&key)?;
        if allocation_of(claim).is_some() || entry.resource_claim_name.is_some() {
            return None;
        }
        claims.push(json!({"name": entry.name, "spec": claim.spec}));
    }
    let mut spec = serde_json::to_value(pod.spec()).ok()?;
    spec.as_object_mut()?.remove("resourceClaims");
    // Volumes of service accounts have generated names.
    let volumes = spec.get_mut("volumes").and_then(|v| v.as_array_mut());
    volumes
        .into_iter()
        .for_each(|v| v.retain(|v| v.get("projected").is_none()));
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(|c| c.as_array_mut());
        for container in containers.into_iter().flatten() {
            container.as_object_mut()?.remove("volumeMounts");
        }
    }
    let status = pod.pod.status.as_ref();
    let nominated = status.and_then(|s| s.nominated_node_name.as_ref());
    let meta = &pod.pod.metadata;
    Some(json!([meta.namespace, meta.labels, spec, claims, nominated]).to_string())
}
