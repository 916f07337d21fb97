//! The text that tells a user why a pod is not scheduled.
//!
//! It begins exactly as upstream's (`0/5 nodes are available: 3 Insufficient cpu, …`), since tools parse it. Where
//! devices are the reason, the allocator's explanation follows the count in parentheses.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::attempt::Unplaced;

/// What upstream says without any node.
pub const NO_NODES: &str = "no nodes available to schedule pods";
/// Longest explanation that is added to a reason, in bytes.
const EXPLANATION_LIMIT: usize = 512;
/// Longest text that a condition may have, in bytes; far below what the API accepts.
const MESSAGE_LIMIT: usize = 4096;

/// Builds the text. `explanation` is added to its reason; `after` is what the last plugins said.
pub fn unschedulable(
    unplaced: &Unplaced,
    total: usize,
    explanation: Option<(&str, &str)>,
    after: &str,
) -> String {
    let mut text = format!("0/{total} nodes are available:");
    if let Some(before) = &unplaced.before {
        text.push_str(&format!(" {before}."));
    } else {
        let reasons = reasons(unplaced, explanation);
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

fn reasons(unplaced: &Unplaced, explanation: Option<(&str, &str)>) -> Vec<String> {
    let mut counts: BTreeMap<&Cow<'static, str>, usize> = BTreeMap::new();
    for reason in unplaced.nodes.iter().flatten().flat_map(|r| &r.reasons) {
        *counts.entry(reason).or_default() += 1;
    }
    let mut lines: Vec<String> = counts
        .into_iter()
        .map(|(reason, n)| match explanation {
            Some((of, why)) if of == reason => {
                // What begins with the reason does not repeat it.
                let rest = why.strip_prefix(of).and_then(|it| it.strip_prefix("; "));
                let why = rest.unwrap_or(why);
                format!(
                    "{n} {reason} ({})",
                    truncate(why.to_owned(), EXPLANATION_LIMIT)
                )
            }
            _ => format!("{n} {reason}"),
        })
        .collect();
    lines.sort();
    lines
}

/// Cuts a text at a character boundary.
fn truncate(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let mut end = limit.saturating_sub(3);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests;
