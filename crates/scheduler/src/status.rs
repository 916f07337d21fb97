//! Outcome of a plugin for a pod or for a pod on a node.

use std::borrow::Cow;
use std::fmt;

use allot_framework::claim_plugin::PluginRejection;

use crate::framework::Plugin;

pub use allot_framework::status::{Code, MUST_BE_REALLOCATED, NOT_AVAILABLE};

/// A rejection: which plugin, how, and the reasons in upstream's words.
///
/// Success is the absence of a `Rejection`; so a feasible node costs nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Whether preemption can help on the node.
    pub code: Code,
    /// The plugin that rejected.
    pub plugin: Plugin,
    /// Reasons as upstream counts them in `0/5 nodes are available: …`.
    pub reasons: Vec<Cow<'static, str>>,
}

impl Rejection {
    /// Rejection that preemption may resolve.
    pub fn unschedulable(plugin: Plugin, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code: Code::Unschedulable,
            plugin,
            reasons: vec![reason.into()],
        }
    }

    /// Rejection that preemption cannot resolve.
    pub fn unresolvable(plugin: Plugin, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code: Code::Unresolvable,
            plugin,
            reasons: vec![reason.into()],
        }
    }

    /// The search gave up: it is unknown whether the node fits.
    pub fn inconclusive(plugin: Plugin, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code: Code::Inconclusive,
            plugin,
            reasons: vec![reason.into()],
        }
    }

    /// Failure of the attempt as such.
    pub fn error(plugin: Plugin, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code: Code::Error,
            plugin,
            reasons: vec![reason.into()],
        }
    }

    /// Whether the search gave up, so that it is unknown whether the node fits.
    pub fn is_inconclusive(&self) -> bool {
        self.code == Code::Inconclusive
    }

    /// Whether all that is missing is a claim that cannot be used on the node.
    pub fn is_not_available(&self) -> bool {
        self.plugin == Plugin::DynamicResources && self.reasons.iter().any(|r| r == NOT_AVAILABLE)
    }

    /// The reasons, joined by commas.
    pub fn message(&self) -> String {
        self.reasons.join(", ")
    }
}

/// A plugin for claims of another generation is a part of DynamicResources.
impl From<PluginRejection> for Rejection {
    fn from(rejection: PluginRejection) -> Self {
        Self {
            code: rejection.code,
            plugin: Plugin::DynamicResources,
            reasons: vec![rejection.reason],
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}
