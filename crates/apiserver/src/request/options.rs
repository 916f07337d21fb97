//! The options of a delete.

use serde_json::{Value, json};

/// What must hold of an object that is to be deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// Its uid.
    pub uid: Option<String>,
    /// Its resourceVersion.
    pub resource_version: Option<String>,
}

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They stay.
    Orphan,
    /// They go after the owner.
    Background,
    /// They go before the owner.
    Foreground,
}

/// Options of a delete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Seconds that the object gets to end; the kind's default if absent.
    pub grace_period_seconds: Option<i64>,
    /// Conditions.
    pub preconditions: Preconditions,
    /// Dependents; the kind's default if absent.
    pub propagation: Option<Propagation>,
    /// The old way to say what happens to dependents; it is in `propagation` as well.
    pub orphan_dependents: Option<bool>,
    /// Nothing is stored.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// As an object, without kind and version.
    pub(crate) fn to_json(&self) -> Value {
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
