//! The test driver of the classic documents, `test-driver.cdi.k8s.io`: its resources are nothing but environment
//! variables, taken from the parameters of claims and classes. It shows what a driver on the classic half of the
//! `allot-driver` SDK looks like, and lets every step of the negotiation be tried without hardware.
//!
//! Two parts, one per cluster ([`controller`]) and one per node ([`plugin`]); they agree on the form of the resource
//! handle only ([`Handle`]).
//!
//! Invariants:
//! - parameters of a claim become `user_<key>`, those of a class `admin_<key>`, with the key in lower case;
//! - what is allocated follows from the claims alone: a controller that starts again knows as much as before.
//!
//! It must not know how the node agent or the API server work.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub mod controller;
pub mod metrics;
mod parameters;
pub mod plugin;
mod structured;
#[cfg(test)]
mod tests;

/// Name of the driver unless another one is given.
pub const DRIVER_NAME: &str = "test-driver.cdi.k8s.io";

/// Environment variables or parameters, by name.
pub type Variables = BTreeMap<String, String>;

/// What the controller tells the plugin: the data of a resource handle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Handle {
    /// What containers get.
    pub env_vars: Variables,
    /// The only node where that is; empty if it is everywhere.
    pub node_name: String,
}

/// The variables that parameters become.
fn variables(prefix: &str, parameters: &Variables) -> Variables {
    let variable = |(key, value): (&String, &String)| {
        (format!("{prefix}_{}", key.to_lowercase()), value.clone())
    };
    parameters.iter().map(variable).collect()
}
