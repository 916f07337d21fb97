//! The plugins: filters and scores of upstream's default profile, each in its own file.
//!
//! A plugin prepares itself once per attempt from the pod and the snapshot, then judges nodes one by one without
//! side effects, so that nodes can be judged in parallel. Texts and codes are upstream's, since tools match on them.

pub mod affinity;
pub mod declared;
pub mod fit;
pub mod image;
pub mod interpod;
pub mod points;
pub mod ports;
pub mod simple;
pub mod spread;
pub mod taints;
pub mod volumes;

use crate::framework::Plugin;

/// Highest score of a plugin for a node.
pub const MAX_SCORE: i64 = 100;

/// Scales scores to 0..=[`MAX_SCORE`] by the highest one; `reverse` turns few into many.
pub fn normalize(scores: &mut [i64], reverse: bool) {
    let max = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        *score = if max == 0 {
            0
        } else {
            *score * MAX_SCORE / max
        };
        if reverse {
            *score = MAX_SCORE - *score;
        }
    }
}

#[cfg(test)]
mod tests;
