//! Nodes with the same verdict, the nearest first.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use allot_allocator::explain::{Explanation, RequestExplanation, Stage, StageKind, UnusablePool};
use allot_controllers::liveness::TAINT as DRIVER_GONE;

use super::{Answer, Rejected};
use crate::cmd::{count, some};

/// Groups nodes with the same verdict, the nearest first, which represents its group. Among equally near nodes it is the
/// first in the scheduler's order, which the event names as well.
pub(super) fn groups(answers: &[Answer]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut answers: Vec<&Answer> = answers.iter().collect();
    answers.sort_by_key(|answer| Reverse(answer.rank));
    for answer in answers {
        let Some(rejected) = &answer.rejected else {
            continue;
        };
        let same = |g: &&mut Group<'_>| {
            g.rejected == rejected
                && g.unavailable == answer.unavailable
                && shape(g.explanation) == shape(answer.explanation.as_ref())
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.nodes.push(&answer.node),
            None => groups.push(Group::of(answer, rejected)),
        }
    }
    groups
}

/// The verdict of the nearest node, which represents the first of the [`groups`], without the other nodes.
pub(super) fn nearest_group(answers: &[Answer]) -> Option<Group<'_>> {
    let rejected = answers.iter();
    let rejected = rejected.filter_map(|answer| Some((answer, answer.rejected.as_ref()?)));
    // The first of equally near ones.
    let nearest = rejected.min_by_key(|(answer, _)| Reverse(answer.rank));
    nearest.map(|(answer, rejected)| Group::of(answer, rejected))
}

/// The key of equal explanations.
#[derive(PartialEq)]
struct Shape<'a> {
    /// Claim and name of each request; the checks at which it has too few devices and none, not their numbers.
    requests: Vec<(&'a str, &'a str, [Option<String>; 2])>,
    has_unusable_pools: bool,
}

fn shape(explanation: Option<&Explanation>) -> Shape<'_> {
    let requests = explanation.into_iter().flat_map(|e| &e.requests);
    let kind = |r: &RequestExplanation, at: Option<usize>| {
        let stage = &r.filter_counts[at?];
        Some(format!("{:?} {:?}", stage.kind, stage.detail))
    };
    let checks = |r: &RequestExplanation| [kind(r, failing(r)), kind(r, none_left(r))];
    Shape {
        requests: requests
            .map(|r| (&*r.claim, &*r.request, checks(r)))
            .collect(),
        has_unusable_pools: explanation.is_some_and(|e| !e.unusable_pools.is_empty()),
    }
}

/// The check that leaves too few devices. That a node has devices at all is no check.
pub(super) fn failing(request: &RequestExplanation) -> Option<usize> {
    let too_few =
        |stage: &Stage| stage.kind != StageKind::Seen && stage.left < request.needs.max(1);
    request.filter_counts.iter().position(too_few)
}

/// The check that leaves no device: the last one that is printed.
fn none_left(request: &RequestExplanation) -> Option<usize> {
    let mut stages = request.filter_counts.iter();
    stages.position(|stage| stage.left == 0)
}

/// Prints verdicts of nodes, those that are the same together.
pub fn print_verdicts(answers: &[Answer], out: &mut impl Write) -> io::Result<()> {
    for group in groups(answers) {
        group.print(out)?;
    }
    Ok(())
}

/// Nodes with the same verdict.
pub(super) struct Group<'a> {
    pub(super) rejected: &'a Rejected,
    pub(super) explanation: Option<&'a Explanation>,
    pub(super) unavailable: &'a [String],
    pub(super) nodes: Vec<&'a str>,
}

impl<'a> Group<'a> {
    fn of(answer: &'a Answer, rejected: &'a Rejected) -> Self {
        Self {
            rejected,
            explanation: answer.explanation.as_ref(),
            unavailable: &answer.unavailable,
            nodes: vec![&answer.node],
        }
    }

    /// The requests for which too few devices are left.
    pub(super) fn failed_requests(&self) -> impl Iterator<Item = &'a RequestExplanation> + use<'a> {
        let requests = self.explanation.into_iter().flat_map(|e| &e.requests);
        requests.filter(|request| failing(request).is_some())
    }

    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let (nodes, reason) = (count(self.nodes.len(), "node"), &self.rejected.reason);
        writeln!(out, "  {nodes}: {reason} ({})", some(&self.nodes))?;
        for claim in self.unavailable {
            writeln!(out, "    {claim}")?;
        }
        let Some(explanation) = self.explanation.filter(|e| !e.fits) else {
            return Ok(());
        };
        if self.nodes.len() > 1 {
            writeln!(out, "    on {}, for example:", explanation.node)?;
        }
        for request in &explanation.requests {
            print_request(request, out)?;
        }
        for pool in &explanation.unusable_pools {
            writeln!(out, "    {}", unusable(pool))?;
        }
        if explanation
            .requests
            .iter()
            .all(|r| r.left() >= r.needs.max(1))
        {
            writeln!(out, "    {}", explanation.line)?;
        }
        Ok(())
    }
}

/// `pool gpu.example.com/node-1 cannot be used: some of its slices are not published yet`
pub(super) fn unusable(pool: &UnusablePool) -> String {
    let (driver, name, reason) = (&pool.driver, &pool.pool, &pool.reason);
    format!("pool {driver}/{name} cannot be used: {reason}")
}

fn print_request(request: &RequestExplanation, out: &mut impl Write) -> io::Result<()> {
    let (claim, name) = (&request.claim, &request.request);
    // Without any device, `All` counts none but needs at least one.
    let needs = usize::try_from(request.needs.max(1)).unwrap_or(usize::MAX);
    let devices = count(needs, "device");
    writeln!(out, "    claim {claim}, request {name} needs {devices}:")?;
    // Checks after the one that leaves no device have none.
    let last = none_left(request);
    for stage in request
        .filter_counts
        .iter()
        .take(last.map_or(usize::MAX, |at| at + 1))
    {
        writeln!(out, "      {}", stage.words(str::to_owned))?;
    }
    let held = holders(request);
    if !held.is_empty() {
        writeln!(out, "      in use: {}", some(&held))?;
    }
    if let Some(near) = nearest_device(request) {
        writeln!(out, "      nearest: {near}")?;
    }
    Ok(())
}

/// `b/x: taint k=v:NoSchedule is not tolerated`; `None` if it is in use: it is then listed with the pod that has it.
pub(super) fn nearest_device(request: &RequestExplanation) -> Option<String> {
    let near = request.nearest.as_ref();
    let near = near.filter(|n| request.in_use.iter().all(|d| d.device != n.device))?;
    let gone = match near.reason.contains(DRIVER_GONE) {
        true => ": its driver does not run there",
        false => "",
    };
    Some(format!("{}: {}{gone}", near.device, near.reason))
}

/// Which pods hold the devices: `7 by pod team/full-2`, most first.
pub(super) fn holders(request: &RequestExplanation) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for device in &request.in_use {
        *counts.entry(device.by.join(" and ")).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    let words = |(by, count): (String, usize)| match by.is_empty() {
        true => format!("{count}"),
        false => format!("{count} by {by}"),
    };
    counts.into_iter().map(words).collect()
}
