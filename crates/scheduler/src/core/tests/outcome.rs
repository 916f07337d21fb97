//! What an attempt decided.

use super::*;
use crate::actions::BindJob;

/// The actions of one or several attempts.
pub(super) struct Outcome(pub(super) Vec<Action>);

impl Outcome {
    pub(super) fn bound(&self) -> Option<&BindJob> {
        self.0.iter().find_map(|a| match a {
            Action::Bind(job) => Some(&**job),
            _ => None,
        })
    }

    pub(super) fn node(&self) -> Option<&str> {
        self.bound().map(|job| &*job.node)
    }

    pub(super) fn message(&self) -> &str {
        let found = self.0.iter().find_map(|a| match a {
            Action::Reject(rejected) => Some(rejected.message.as_str()),
            _ => None,
        });
        found.unwrap_or_default()
    }

    pub(super) fn deallocated(&self) -> Option<&ResourceClaim> {
        self.0.iter().find_map(|a| match a {
            Action::Deallocate(claim) => Some(&**claim),
            _ => None,
        })
    }
}
