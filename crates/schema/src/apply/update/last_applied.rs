//! Conflicts that the annotation of client-side apply resolves: fields that its last write set belong to the applier.

use serde_json::Value;

use crate::apply::{Conflicts, FieldManager, LAST_APPLIED};
use crate::fields::Set;
use crate::merge;

impl FieldManager<'_> {
    /// The conflicts that are not explained by kubectl having applied the same fields client-side before.
    pub(in crate::apply) fn not_last_applied(
        &self,
        live: &Value,
        conflicts: Conflicts,
    ) -> Conflicts {
        let Some(allowed) = self.last_applied_set(live) else {
            return conflicts;
        };
        Conflicts(
            conflicts
                .0
                .into_iter()
                .filter(|conflict| !allowed.contains(&conflict.path))
                .collect(),
        )
    }

    pub(super) fn last_applied_set(&self, live: &Value) -> Option<Set> {
        let text = live["metadata"]["annotations"][LAST_APPLIED].as_str()?;
        let last: Value = serde_json::from_str(text).ok()?;
        if last["apiVersion"] != self.api_version {
            return None;
        }
        let node = self.versions.node(self.api_version)?;
        if !merge::validate(&last, node, false).is_empty() {
            return None;
        }
        let comparison = merge::compare(&last, live, node);
        let set = merge::field_set(&last, node);
        Some(
            set.difference(&comparison.modified)
                .difference(&comparison.added)
                .difference(&comparison.removed),
        )
    }
}
