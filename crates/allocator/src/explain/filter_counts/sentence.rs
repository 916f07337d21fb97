//! The sentence about a request that cannot be satisfied, for events and terminals.

use std::fmt::Write as _;

use super::{RequestExplanation, StageKind, hopeless};

/// Which checks leave too few devices for a request, and what the nearest device lacks. Ends at the check after which
/// waiting for devices cannot help.
pub(in crate::explain) fn sentence(request: &RequestExplanation) -> String {
    let needs = request.needs.max(1);
    let mut text = format!(
        "claim {}, request {} needs {needs} device{}",
        request.claim,
        request.request,
        plural(needs)
    );
    let mut before = 0;
    let last = hopeless(&request.filter_counts, needs);
    let shown = last.map_or(request.filter_counts.len(), |last| last + 1);
    for (index, stage) in request.filter_counts.iter().take(shown).enumerate() {
        if index == 0 {
            let _ = match stage.left {
                0 => write!(text, ", the node has none"),
                seen => write!(text, ", {seen} seen"),
            };
        } else if stage.left < before {
            let _ = write!(text, ", {}", stage.words(shorten));
        }
        before = stage.left;
    }
    let kind = last.map(|last| request.filter_counts[last].kind);
    if before > 0 && kind.is_some_and(|kind| kind <= StageKind::Class) && request.nearest.is_none()
    {
        text += "; the node has no more";
    }
    if let Some(near) = &request.nearest {
        let _ = write!(text, "; nearest is {}: {}", near.device, near.reason);
    }
    text
}

fn plural(count: i64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// The start of a long expression.
fn shorten(text: &str) -> String {
    const MOST: usize = 100;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST - 1).chain(['…']).collect()
}
