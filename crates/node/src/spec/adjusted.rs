//! What NRI plugins have added to a container, as far as nothing else of its description has a place for it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Parts of the OCI specification, in its form.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Adjusted {
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Members of the process.
    pub process: Map<String, Value>,
    /// Members of the linux part.
    pub linux: Map<String, Value>,
    /// Limits of the process.
    pub rlimits: Vec<Value>,
    /// Rules of the device controller, after those of the container's devices.
    pub device_rules: Vec<Value>,
}
