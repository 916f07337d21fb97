//! The answer about one pod, for people and for programs.

use std::io::{self, Write};

use allot_allocator::explain::Explanation;
use allot_scheduler::core::{Chosen, NodeVerdict, Verdict};
use allot_scheduler::dra::resolve;
use allot_scheduler::framework::Plugin;
use allot_scheduler::plugins::taints::untolerated;
use allot_scheduler::pod::{PodInfo, scheduler_name};
use anyhow::Context as _;
use k8s_openapi::api::resource::v1::AllocationResult;
use serde::Serialize;

use super::world::Loaded;
use crate::cmd::count;
use crate::cmd::snapshot::names;

mod advice;
mod gang;
mod groups;
mod room;

use advice::advice;
use gang::Gang;
use groups::groups;
use room::Room;

/// What becomes of a pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `namespace/name` of the pod.
    pod: String,
    /// The node that it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// It ran to its end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    finished: bool,
    /// What its claims have. On a node, a claim without devices keeps it from starting.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    claims: Vec<ClaimDevices>,
    /// Some node can take it; of a pod in a gang, when the gang is placed.
    fits: bool,
    /// Resources that are not shown in the whole cluster: what fits may not fit because of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hidden: Vec<String>,
    /// Why no node is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<Rejected>,
    /// What can be done about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
    /// The node where room is made for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<Room>,
    /// Its gang.
    #[serde(skip_serializing_if = "Option::is_none")]
    gang: Option<Gang>,
    /// What each node says, to the pod alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<Answer>,
    /// Where it would go now.
    #[serde(skip_serializing_if = "Option::is_none")]
    would_go_to: Option<Place>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Rejected {
    plugin: &'static str,
    reason: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    node: String,
    fits: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<Rejected>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Explanation>,
    /// Other pods for which room is kept there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kept_for: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Place {
    node: String,
    /// What claims get that have nothing yet.
    claims: Vec<ClaimDevices>,
}

#[derive(Debug, Serialize)]
struct ClaimDevices {
    claim: String,
    devices: Vec<Device>,
}

#[derive(Debug, Serialize)]
struct Device {
    request: String,
    driver: String,
    pool: String,
    device: String,
}

impl Report {
    /// Asks about a pod.
    ///
    /// # Errors
    /// There is no such pod, or it is for another scheduler.
    pub fn new(loaded: &mut Loaded, namespace: &str, name: &str) -> anyhow::Result<Self> {
        let pod = loaded.pods.get(&(namespace.to_owned(), name.to_owned()));
        let pod = pod
            .cloned()
            .with_context(|| match loaded.unseen("Pod", namespace) {
                Some(pods) => {
                    format!("pod {namespace}/{name} is not shown: no right to list {pods}")
                }
                None => format!("there is no pod {namespace}/{name}"),
            })?;
        let mut report = Self {
            pod: format!("{namespace}/{name}"),
            node: pod.node_name().map(str::to_owned),
            finished: false,
            claims: Vec::new(),
            fits: false,
            hidden: Vec::new(),
            rejected: None,
            advice: None,
            expected: None,
            gang: None,
            nodes: Vec::new(),
            would_go_to: None,
        };
        report.finished = pod.is_finished();
        report.claims = held(loaded, &pod);
        if report.finished || report.node.is_some() {
            report.fits = true;
            if loaded.unseen("ResourceClaim", namespace).is_some() {
                report.claims.retain(|claim| !claim.devices.is_empty());
            }
            return Ok(report);
        }
        let lacking = loaded.lacking(&pod);
        anyhow::ensure!(
            lacking.is_empty(),
            "pod {namespace}/{name} is on no node, and why can not be said without the right to list {}",
            names(&lacking)
        );
        report.hidden = loaded.partly();
        // It is only asked where the others go.
        report.claims.retain(|claim| !claim.devices.is_empty());
        let verdict = loaded.core.explain(&pod, loaded.time).with_context(|| {
            let scheduler = scheduler_name(&pod.pod);
            format!(
                "pod {namespace}/{name} is for the scheduler {scheduler:?}, which has no profile here: see --config"
            )
        })?;
        let Verdict {
            before,
            nodes,
            chosen,
            expected,
            gang,
        } = verdict;
        report.expected = expected.map(Room::from);
        report.rejected = before.map(|r| rejected(&r));
        report.fits = match &gang {
            Some(_) => chosen.is_some(),
            None => nodes.iter().any(|n| n.rejection.is_none()),
        };
        report.nodes = answers(nodes, &pod, loaded);
        report.gang = gang.map(|gang| Gang::new(gang, loaded));
        let by = report.rejected.as_ref().map(|r| r.plugin);
        report.advice = advice(loaded, &pod, by, report.gang.as_ref());
        // Others may have what it would get.
        report.would_go_to = chosen.map(Place::from).filter(|_| report.hidden.is_empty());
        Ok(report)
    }

    /// Prints it, as one line of JSON or as text.
    pub fn print(&self, out: &mut impl Write, json: bool) -> io::Result<()> {
        if json {
            serde_json::to_writer(&mut *out, self)?;
            return writeln!(out);
        }
        let pod = &self.pod;
        if self.finished {
            return writeln!(out, "pod {pod} has finished");
        }
        if let Some(node) = &self.node {
            writeln!(out, "pod {pod} is on node {node}")?;
            return print_claims(out, &self.claims);
        }
        if let Some(rejected) = &self.rejected {
            let Rejected { plugin, reason } = rejected;
            writeln!(out, "pod {pod} goes to no node: {reason} ({plugin})")?;
            if let Some(gang) = &self.gang {
                gang.print(pod, Some(reason), out)?;
            }
            return self.print_advice(out);
        }
        if let Some(gang) = &self.gang {
            gang.print_head(pod, self.fits, self.hidden.is_empty(), out)?;
            gang.print(pod, None, out)?;
            if gang.fits && !self.hidden.is_empty() {
                writeln!(out, "  not all is known of {}", self.hidden.join(", "))?;
            }
        } else {
            self.print_alone(out)?;
        }
        if let Some(place) = &self.would_go_to {
            place.print(out)?;
        } else {
            self.print_room(out)?;
        }
        if !self.claims.is_empty() {
            writeln!(out, "  it already has")?;
            print_claims(out, &self.claims)?;
        }
        // Where a pod of a gang fits alone the others are in its way, of which the gang has told.
        let alone = |gang: &Gang| self.nodes.iter().all(|n| !n.fits) && !gang.tells_of(pod);
        if self.gang.as_ref().is_none_or(alone) {
            if self.gang.is_some() {
                writeln!(out, "  {pod} alone:")?;
            }
            for group in groups(&self.nodes) {
                group.print(out)?;
            }
        }
        self.print_advice(out)
    }

    fn print_advice(&self, out: &mut impl Write) -> io::Result<()> {
        match &self.advice {
            Some(advice) => writeln!(out, "  {advice}"),
            None => Ok(()),
        }
    }

    /// On how many nodes it fits.
    fn print_alone(&self, out: &mut impl Write) -> io::Result<()> {
        let pod = &self.pod;
        let fitting = self.nodes.iter().filter(|n| n.fits).count();
        let nodes = count(self.nodes.len(), "node");
        match fitting {
            0 => writeln!(out, "pod {pod} fits on none of {nodes}"),
            _ if self.hidden.is_empty() => writeln!(out, "pod {pod} fits on {fitting} of {nodes}"),
            _ => {
                let hidden = self.hidden.join(", ");
                writeln!(
                    out,
                    "pod {pod} may fit on {fitting} of {nodes}: not all is known of {hidden}"
                )
            }
        }
    }
}

impl Place {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let with = if self.claims.is_empty() { "" } else { " with" };
        writeln!(out, "  it would go to {}{with}", self.node)?;
        print_claims(out, &self.claims)
    }
}

fn print_claims(out: &mut impl Write, claims: &[ClaimDevices]) -> io::Result<()> {
    for ClaimDevices { claim, devices } in claims {
        if devices.is_empty() {
            writeln!(
                out,
                "    claim {claim} has no devices, which the pod waits for"
            )?;
        }
        for device in devices {
            let Device {
                request,
                driver,
                pool,
                device,
            } = device;
            writeln!(
                out,
                "    claim {claim}, request {request}: {driver}/{pool}/{device}"
            )?;
        }
    }
    Ok(())
}

/// What the claims of a pod have.
fn held(loaded: &Loaded, pod: &PodInfo) -> Vec<ClaimDevices> {
    let entries = pod.spec().resource_claims.iter().flatten();
    let keys = entries.filter_map(|entry| resolve::name(pod, entry).ok().flatten());
    keys.map(|key| {
        let claim = loaded.core.claims().get(&key);
        let allocation = claim.and_then(|claim| claim.status.as_ref()?.allocation.as_ref());
        ClaimDevices {
            claim: key.to_string(),
            devices: allocation.map(devices).unwrap_or_default(),
        }
    })
    .collect()
}

impl From<NodeVerdict> for Answer {
    fn from(verdict: NodeVerdict) -> Self {
        Self {
            node: verdict.name.to_string(),
            fits: verdict.rejection.is_none(),
            rejected: verdict.rejection.as_ref().map(rejected),
            explanation: verdict.explanation,
            kept_for: verdict.kept_for.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<Chosen> for Place {
    fn from(chosen: Chosen) -> Self {
        let claims = chosen
            .allocations
            .iter()
            .map(|(key, allocation)| ClaimDevices {
                claim: key.to_string(),
                devices: devices(allocation),
            });
        Self {
            node: chosen.node.to_string(),
            claims: claims.collect(),
        }
    }
}

fn devices(allocation: &AllocationResult) -> Vec<Device> {
    let results = allocation.devices.iter().filter_map(|d| d.results.as_ref());
    let device = |r: &k8s_openapi::api::resource::v1::DeviceRequestAllocationResult| Device {
        request: r.request.clone(),
        driver: r.driver.clone(),
        pool: r.pool.clone(),
        device: r.device.clone(),
    };
    results.flatten().map(device).collect()
}

fn rejected(rejection: &allot_scheduler::status::Rejection) -> Rejected {
    Rejected {
        plugin: rejection.plugin.name(),
        reason: rejection.message(),
    }
}

/// What nodes say to a pod.
fn answers(nodes: Vec<NodeVerdict>, pod: &PodInfo, loaded: &Loaded) -> Vec<Answer> {
    let mut answers: Vec<Answer> = nodes.into_iter().map(Answer::from).collect();
    for answer in &mut answers {
        name_taint(answer, pod, loaded);
    }
    answers
}

/// The scheduler's message, which counts nodes, leaves out which taint it is.
fn name_taint(answer: &mut Answer, pod: &PodInfo, loaded: &Loaded) {
    let is_taint = |r: &&mut Rejected| r.plugin == Plugin::TaintToleration.name();
    let Some(rejected) = answer.rejected.as_mut().filter(is_taint) else {
        return;
    };
    let tolerations = pod.spec().tolerations.as_deref().unwrap_or_default();
    let taints = loaded.taints.get(&answer.node).map(Vec::as_slice);
    if let Some(taint) = untolerated(tolerations, taints.unwrap_or_default()) {
        let (key, value) = (&taint.key, taint.value.as_deref().unwrap_or_default());
        rejected.reason = format!("node(s) had untolerated taint {{{key}: {value}}}");
    }
}
