//! Options of delete requests.

use serde_json::{Value, json};

/// Preconditions of a deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The required UID of the object.
    pub uid: Option<String>,
    /// The required resourceVersion of the object.
    pub resource_version: Option<String>,
}

/// The propagation policy for the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents are orphaned.
    Orphan,
    /// Dependents are deleted after the owner.
    Background,
    /// Dependents are deleted before the owner.
    Foreground,
}

/// The options of a delete request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// The grace period in seconds; the default of the kind if absent.
    pub grace_period_seconds: Option<i64>,
    /// Preconditions of the deletion.
    pub preconditions: Preconditions,
    /// The propagation policy; the default of the kind if absent.
    pub propagation: Option<Propagation>,
    /// The deprecated `orphanDependents` option; `propagation` already reflects it.
    pub orphan_dependents: Option<bool>,
    /// Whether this is a dry run: no change is stored.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Encodes the options as JSON, without `kind` and `apiVersion`.
    pub fn to_json(&self) -> Value {
        let mut value = json!({});
        if let Some(seconds) = self.grace_period_seconds {
            value["gracePeriodSeconds"] = seconds.into();
        }
        for (key, wanted) in [
            ("uid", &self.preconditions.uid),
            ("resourceVersion", &self.preconditions.resource_version),
        ] {
            if let Some(wanted) = wanted {
                value["preconditions"][key] = wanted.as_str().into();
            }
        }
        if let Some(propagation) = self.propagation {
            value["propagationPolicy"] = match propagation {
                Propagation::Orphan => "Orphan",
                Propagation::Background => "Background",
                Propagation::Foreground => "Foreground",
            }
            .into();
        }
        if self.dry_run {
            value["dryRun"] = json!(["All"]);
        }
        value
    }
}
