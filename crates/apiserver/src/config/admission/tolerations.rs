//! Configuration of PodTolerationRestriction: what counts in namespaces without annotations.

use allot_apimachinery::field::{ErrorList, Path};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::decode::{Document, Kind};
use crate::validate::scheduling;

const KIND: Kind = Kind {
    types: &[(
        "podtolerationrestriction.admission.k8s.io/v1alpha1",
        "Configuration",
    )],
    fields: None,
};

/// Tolerations of pods in namespaces that say nothing about them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TolerationDefaults {
    /// Those that new pods get.
    #[serde(rename = "default")]
    pub added: Vec<Toleration>,
    /// Those that pods may have; all if it is empty.
    #[serde(rename = "whitelist")]
    pub permitted: Vec<Toleration>,
}

/// A toleration that an administrator has written. A field of another type is a mistake, never one that is absent: without its key
/// a toleration is one of everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    toleration_seconds: Option<i64>,
}

impl Toleration {
    /// These as pods have them.
    pub(crate) fn values(tolerations: &[Self]) -> Vec<Value> {
        let values = tolerations.iter().map(serde_json::to_value);
        values.filter_map(Result::ok).collect()
    }
}

/// Reads a configuration.
pub(super) fn read(document: Document) -> Result<TolerationDefaults, String> {
    let defaults: TolerationDefaults = KIND.decode(document)?;
    let path = Path::new("podtolerationrestriction");
    let mut errors = ErrorList::new();
    for (key, tolerations) in [
        ("default", &defaults.added),
        ("whitelist", &defaults.permitted),
    ] {
        let tolerations = Toleration::values(tolerations);
        scheduling::tolerations(&tolerations, &path.child(key), &mut errors);
    }
    if errors.is_empty() {
        return Ok(defaults);
    }
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Err(format!("invalid config: [{}]", errors.join(" ")))
}
