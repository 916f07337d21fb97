//! Nodes with the same verdict, the nearest first.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use allot_allocator::explain::{Explanation, RequestExplanation, Stage};
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
            None => groups.push(Group {
                rejected,
                explanation: answer.explanation.as_ref(),
                unavailable: &answer.unavailable,
                nodes: vec![&answer.node],
            }),
        }
    }
    groups
}

/// The key of equal explanations: the check at which each request has too few devices, not their number.
fn shape(explanation: Option<&Explanation>) -> Vec<(&str, &str, Option<String>)> {
    let requests = explanation.into_iter().flat_map(|e| &e.requests);
    let kind = |stage: &Stage| format!("{:?} {:?}", stage.kind, stage.detail);
    let failing = |r: &RequestExplanation| failing(r).map(|at| kind(&r.filter_counts[at]));
    requests
        .map(|r| (&*r.claim, &*r.request, failing(r)))
        .collect()
}

/// The check that leaves too few devices.
pub(super) fn failing(request: &RequestExplanation) -> Option<usize> {
    let mut stages = request.filter_counts.iter();
    stages.position(|stage| stage.left < request.needs.max(1))
}

/// Nodes with the same verdict.
pub(super) struct Group<'a> {
    pub(super) rejected: &'a Rejected,
    pub(super) explanation: Option<&'a Explanation>,
    pub(super) unavailable: &'a [String],
    pub(super) nodes: Vec<&'a str>,
}

impl Group<'_> {
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
            let (driver, name, reason) = (&pool.driver, &pool.pool, &pool.reason);
            writeln!(out, "    pool {driver}/{name} cannot be used: {reason}")?;
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

fn print_request(request: &RequestExplanation, out: &mut impl Write) -> io::Result<()> {
    let (claim, name) = (&request.claim, &request.request);
    let devices = count(usize::try_from(request.needs).unwrap_or_default(), "device");
    writeln!(out, "    claim {claim}, request {name} needs {devices}:")?;
    // Checks after the one that leaves no device have none.
    let last = request.filter_counts.iter().position(|s| s.left == 0);
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
    let near = request.nearest.as_ref();
    if let Some(near) = near.filter(|n| request.in_use.iter().all(|d| d.device != n.device)) {
        let gone = match near.reason.contains(DRIVER_GONE) {
            true => ": its driver does not run there",
            false => "",
        };
        writeln!(out, "      nearest: {}: {}{gone}", near.device, near.reason)?;
    }
    Ok(())
}

/// Which pods hold the devices: `7 by pod team/full-2`, most first.
fn holders(request: &RequestExplanation) -> Vec<String> {
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
