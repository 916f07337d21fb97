//! Nodes that say the same, together.

use std::io::{self, Write};

use allot_allocator::explain::{Explanation, RequestExplanation};

use super::{Answer, Rejected};
use crate::cmd::{count, some};

/// Nodes that say the same together, most first.
pub(super) fn groups(answers: &[Answer]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for answer in answers {
        let Some(rejected) = &answer.rejected else {
            continue;
        };
        let same = |g: &&mut Group<'_>| {
            g.rejected == rejected && shape(g.explanation) == shape(answer.explanation.as_ref())
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.nodes.push(&answer.node),
            None => groups.push(Group {
                rejected,
                explanation: answer.explanation.as_ref(),
                nodes: vec![&answer.node],
            }),
        }
    }
    groups.sort_by_key(|g| std::cmp::Reverse(g.nodes.len()));
    groups
}

/// What makes two explanations alike: how many devices each check leaves.
fn shape(explanation: Option<&Explanation>) -> Vec<(&str, &str, Vec<i64>)> {
    let requests = explanation.into_iter().flat_map(|e| &e.requests);
    let left = |r: &RequestExplanation| r.filter_counts.iter().map(|s| s.left).collect();
    requests
        .map(|r| (&*r.claim, &*r.request, left(r)))
        .collect()
}

/// Nodes that say the same.
pub(super) struct Group<'a> {
    rejected: &'a Rejected,
    explanation: Option<&'a Explanation>,
    nodes: Vec<&'a str>,
}

impl Group<'_> {
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let (nodes, reason) = (count(self.nodes.len(), "node"), &self.rejected.reason);
        writeln!(out, "  {nodes}: {reason} ({})", some(&self.nodes))?;
        let Some(explanation) = self.explanation.filter(|e| !e.fits) else {
            return Ok(());
        };
        if self.nodes.len() > 1 {
            writeln!(out, "    on {}, for example:", explanation.node)?;
        }
        for request in &explanation.requests {
            let (claim, name) = (&request.claim, &request.request);
            let devices = count(usize::try_from(request.needs).unwrap_or_default(), "device");
            writeln!(out, "    claim {claim}, request {name} needs {devices}:")?;
            // Nothing is left for the checks after the one that leaves none.
            let last = request.filter_counts.iter().position(|s| s.left == 0);
            for stage in request
                .filter_counts
                .iter()
                .take(last.map_or(usize::MAX, |at| at + 1))
            {
                writeln!(out, "      {}", stage.words(str::to_owned))?;
            }
            let held = request.in_use.iter();
            let held: Vec<String> = held
                .map(|d| format!("{} by {}", d.device, d.by.join(" and ")))
                .collect();
            if !held.is_empty() {
                writeln!(out, "      in use: {}", some(&held))?;
            }
            let near = request.nearest.as_ref();
            if let Some(near) = near.filter(|n| request.in_use.iter().all(|d| d.device != n.device))
            {
                writeln!(out, "      nearest: {}: {}", near.device, near.reason)?;
            }
        }
        for pool in &explanation.unusable_pools {
            let (driver, name, reason) = (&pool.driver, &pool.pool, &pool.reason);
            writeln!(out, "    pool {driver}/{name} can not be used: {reason}")?;
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
