//! Conflicts between an applier and the owners of fields.

use std::fmt;

use super::managed::{Operation, Owner};
use crate::fields::{PathElement, display_path};

/// A field that another manager owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The owner.
    pub(super) owner: Owner,
    /// The field.
    pub(super) path: Vec<PathElement>,
}

impl Conflict {
    /// The message of the cause, with the manager of the field.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager())
    }

    /// The field of the cause.
    pub fn field(&self) -> String {
        display_path(&self.path)
    }

    fn manager(&self) -> String {
        let mut text = format!("{:?}", self.owner.manager);
        if !self.owner.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.owner.subresource));
        }
        if self.owner.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.owner.version));
        }
        text
    }
}

/// All conflicts of an apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflicts {
    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [conflict] = self.0.as_slice() {
            return write!(
                f,
                "Apply failed with 1 conflict: {}: {}",
                conflict.message(),
                conflict.field()
            );
        }
        let mut managers: Vec<String> = self.0.iter().map(Conflict::manager).collect();
        managers.sort_unstable();
        managers.dedup();
        let mut lines = Vec::new();
        for manager in managers {
            lines.push(format!("conflicts with {manager}:"));
            lines.extend(
                self.0
                    .iter()
                    .filter(|c| c.manager() == manager)
                    .map(|c| format!("- {}", c.field())),
            );
        }
        write!(
            f,
            "Apply failed with {} conflicts: {}",
            self.0.len(),
            lines.join("\n")
        )
    }
}
