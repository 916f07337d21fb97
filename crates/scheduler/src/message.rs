//! The text that explains to users why a pod is not scheduled.
//!
//! The condition has upstream's text to the letter (`0/5 nodes are available: 3 Insufficient cpu, …`), since tools
//! parse and compare it. The event begins with the same text and ends with the unsatisfied requests on the nearest
//! node.

use std::borrow::Cow;
use std::collections::BTreeMap;

use allot_apimachinery::truncate;

use crate::attempt::FitError;

/// Upstream's text for a cluster without nodes.
pub const NO_NODES: &str = "no nodes available to schedule pods";
/// Longest text that a condition may have, in bytes; far below what the API accepts.
const MESSAGE_LIMIT: usize = 4096;

/// Builds the text of the condition. `after` is what the PostFilter plugins said.
pub fn unschedulable(unplaced: &FitError, total: usize, after: &str) -> String {
    let mut text = format!("0/{total} nodes are available:");
    if let Some(before) = &unplaced.before {
        text.push_str(&format!(" {before}."));
    } else {
        let reasons = reasons(unplaced);
        if !reasons.is_empty() {
            text.push_str(&format!(" {}.", reasons.join(", ")));
        }
    }
    if !after.is_empty() {
        text.push(' ');
        text.push_str(after);
    }
    truncate(text, MESSAGE_LIMIT)
}

/// Builds the text of the event: that of the condition, then the explanation.
pub fn explained(message: &str, explanation: Option<&str>) -> String {
    let Some(explanation) = explanation else {
        return message.to_owned();
    };
    let end = if message.ends_with('.') { "" } else { "." };
    format!("{message}{end} {explanation}")
}

fn reasons(unplaced: &FitError) -> Vec<String> {
    let mut counts: BTreeMap<&Cow<'static, str>, usize> = BTreeMap::new();
    for reason in unplaced.nodes.iter().flatten().flat_map(|r| &r.reasons) {
        *counts.entry(reason).or_default() += 1;
    }
    let lines = counts
        .into_iter()
        .map(|(reason, n)| format!("{n} {reason}"));
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests;
