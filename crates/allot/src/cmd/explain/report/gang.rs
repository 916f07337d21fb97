//! The explanation of a pod's gang.

use std::io::{self, Write};

use allot_scheduler::core::{GangOutcome, GangVerdict, MemberVerdict, UnscheduledMember};
use serde::Serialize;

use super::groups::groups;
use super::missing;
use super::{Answer, answers};
use crate::cmd::explain::cluster_objects::LoadedScheduler;
use crate::cmd::{count, some};

/// The gang of a pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gang {
    /// `namespace/name` of the PodGroup.
    group: String,
    min_count: usize,
    /// Number of its existing pods.
    pods: usize,
    /// How many of these are on nodes.
    placed: usize,
    /// As many as are needed have places.
    pub(super) fits: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Pods that are in its way, and would have to leave first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    must_go: Vec<String>,
    members: Vec<Member>,
    /// The pod that has no place beside the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<Without>,
}

#[derive(Debug, Serialize)]
struct Member {
    pod: String,
    placed: bool,
    /// The node it is on, or would be placed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// Why it cannot be tried, or has no place.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct Without {
    pod: String,
    reason: String,
    nodes: Vec<Answer>,
}

impl Gang {
    pub(super) fn new(verdict: GangVerdict, loaded: &LoadedScheduler) -> Self {
        let placed = verdict.placed();
        let GangVerdict {
            group,
            min_count,
            members,
            outcome,
            left_out,
        } = verdict;
        let fits = outcome == GangOutcome::Fits;
        let (reason, must_go) = match outcome {
            GangOutcome::Fits => (None, Vec::new()),
            GangOutcome::Preempts(pods) => {
                let pods: Vec<String> = pods.iter().map(ToString::to_string).collect();
                (Some("others are in its way".to_owned()), pods)
            }
            GangOutcome::TooFewPlaces(why) | GangOutcome::Waits(why) | GangOutcome::Fails(why) => {
                (Some(why), Vec::new())
            }
        };
        let namespace = &group.namespace;
        let member = |member: MemberVerdict| {
            let key = (namespace.to_string(), member.name.to_string());
            let template = loaded.pods.get(&key);
            let template = template.and_then(|pod| missing::template(loaded, pod));
            Member {
                pod: format!("{namespace}/{}", member.name),
                placed: member.is_placed,
                node: member.node.map(|n| n.to_string()),
                reason: member.why_not.map(|why| match template {
                    Some(template) => format!("{why}: {template}"),
                    None => why,
                }),
            }
        };
        let without = |UnscheduledMember { pod, why, nodes }: UnscheduledMember| {
            let key = (pod.namespace.to_string(), pod.name.to_string());
            Without {
                pod: pod.to_string(),
                reason: why,
                nodes: match loaded.pods.get(&key) {
                    Some(info) => answers(nodes, info, loaded),
                    None => Vec::new(),
                },
            }
        };
        Self {
            group: group.to_string(),
            min_count,
            pods: members.len(),
            placed,
            fits,
            reason,
            must_go,
            members: members.into_iter().map(member).collect(),
            left_out: left_out.map(without),
        }
    }

    /// The first line, about the pod that was asked about. `known` when no objects are hidden.
    pub(super) fn print_head(
        &self,
        pod: &str,
        fits: bool,
        known: bool,
        out: &mut impl Write,
    ) -> io::Result<()> {
        match (self.fits, fits, known) {
            (true, true, true) => writeln!(out, "pod {pod} fits, and so does its gang"),
            (true, true, false) => writeln!(out, "pod {pod} may fit, and so may its gang"),
            (true, false, _) => writeln!(out, "pod {pod} fits on no node beside its gang"),
            (false, ..) if self.must_go.is_empty() => {
                writeln!(out, "pod {pod} goes to no node: its gang does not")
            }
            (false, ..) => writeln!(
                out,
                "pod {pod} goes to no node yet: others have to leave for its gang"
            ),
        }
    }

    /// Prints the gang, and what it lacks. `said` was printed about the pod already.
    pub(super) fn print(
        &self,
        asked: &str,
        said: Option<&str>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let Self {
            group,
            min_count,
            placed,
            ..
        } = self;
        let pods = count(self.pods, "pod");
        let are = if self.pods == 1 { "is" } else { "are" };
        writeln!(
            out,
            "  gang {group}: minCount {min_count}, {pods} {are} there, {placed} placed"
        )?;
        match &self.reason {
            Some(_) if !self.must_go.is_empty() => {
                let pods = some(&self.must_go);
                writeln!(out, "  it fits when these have left: {pods}")?;
            }
            Some(reason) if said == Some(reason) => {}
            Some(reason) => writeln!(out, "  it waits: {reason}")?,
            None => {}
        }
        let news = |pod: &str, reason: &str| {
            self.reason.as_deref() != Some(reason) && (said.is_none() || pod != asked)
        };
        let held = self.members.iter().filter(|m| m.node.is_none());
        let held = held.filter_map(|m| Some((&m.pod, m.reason.as_ref()?)));
        let told = self.left_out.as_ref().map(|l| &l.pod);
        let held = held.filter(|(pod, reason)| Some(*pod) != told && news(pod, reason));
        for (pod, reason) in held {
            writeln!(out, "  {pod}: {reason}")?;
        }
        let Some(left_out) = &self.left_out else {
            return Ok(());
        };
        let Without { pod, reason, nodes } = left_out;
        let groups = groups(nodes);
        if groups.is_empty() {
            return writeln!(out, "  {pod} has no place: {reason}");
        }
        writeln!(out, "  {pod} has no place beside the others:")?;
        for group in groups {
            group.print(out)?;
        }
        Ok(())
    }

    /// Why it is not placed.
    pub(super) fn why(&self) -> Option<String> {
        let why = match self.must_go.is_empty() {
            true => self.reason.clone()?,
            false => format!("others are in its way: {}", some(&self.must_go)),
        };
        Some(format!("gang {}: {why}", self.group))
    }

    /// Whether it includes the nodes' verdicts about the pod.
    pub(super) fn tells_of(&self, pod: &str) -> bool {
        self.left_out.as_ref().is_some_and(|l| l.pod == pod)
    }

    /// How many more of its pods must be created before it is tried.
    pub(super) fn lacks(&self) -> usize {
        self.min_count.saturating_sub(self.pods)
    }
}
