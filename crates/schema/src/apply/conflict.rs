//! Conflicts between an applier and the owners of fields.

use std::collections::BTreeMap;
use std::fmt;

use allot_apimachinery::field::MOST_TEXT;

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

    /// The `field` of the cause in the Status: the path in the notation of managed fields.
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
    /// The conflicts that an answer lists, up to [`MOST_TEXT`]; the others are only counted. Each names its place, with all keys
    /// above.
    pub fn listed(&self) -> impl Iterator<Item = (String, String)> {
        let mut length = 0;
        let told = self.0.iter().map(|it| (it.message(), it.field()));
        told.take_while(move |(message, field)| {
            let fits = length <= MOST_TEXT;
            length += message.len() + field.len();
            fits
        })
    }

    /// The conflicts as those of another object that shows one field of the owned one, such as a scale: its version and its path.
    pub fn shown_in(&mut self, version: &str, path: &[&str]) {
        for conflict in &mut self.0 {
            version.clone_into(&mut conflict.owner.version);
            let names = path.iter().map(|name| PathElement::Field((*name).into()));
            conflict.path = names.collect();
        }
    }

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
        let mut managers: BTreeMap<String, Vec<&Conflict>> = BTreeMap::new();
        for conflict in &self.0 {
            managers
                .entry(conflict.manager())
                .or_default()
                .push(conflict);
        }
        let (mut lines, mut length, mut told) = (Vec::new(), 0, 0);
        'all: for (manager, conflicts) in managers {
            lines.push(format!("conflicts with {manager}:"));
            for conflict in conflicts {
                if length > MOST_TEXT {
                    lines.push(format!("and {} more", self.0.len() - told));
                    break 'all;
                }
                let line = format!("- {}", conflict.field());
                (length, told) = (length + line.len(), told + 1);
                lines.push(line);
            }
        }
        write!(
            f,
            "Apply failed with {} conflicts: {}",
            self.0.len(),
            lines.join("\n")
        )
    }
}
