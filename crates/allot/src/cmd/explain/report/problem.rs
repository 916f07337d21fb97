//! What keeps a pod from starting, running or ending on its node, or from being bound.

use std::fmt;

use serde::{Serialize, Serializer};

/// A problem of a pod that is bound or about to be; its text is a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Problem {
    /// Its node does not exist or is not ready.
    Node(String),
    /// A driver of its devices does not run on its node.
    Driver(String),
    /// A claim is missing, or lacks a step that precedes the start of the pod.
    Claim(String),
    /// Something about a claim, which the text does not name.
    OfClaim {
        /// The claim: namespace and name, or the quoted name of the pod's entry.
        claim: String,
        /// The text.
        text: String,
    },
    /// A step of the kubelet that comes before the containers failed.
    Kubelet(&'static str),
    /// A container does not run.
    Container {
        /// Its name.
        name: String,
        /// Reason and message of the kubelet.
        text: String,
    },
}

impl Problem {
    /// The text, without the name of the claim if that comes before it: the same for all pods with claims of their own.
    pub(super) fn without_claim(&self) -> String {
        match self {
            Self::OfClaim { text, .. } => text.clone(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(text) | Self::Driver(text) | Self::Claim(text) => f.write_str(text),
            Self::OfClaim { claim, text } => write!(f, "claim {claim}: {text}"),
            Self::Kubelet(text) => f.write_str(text),
            Self::Container { name, text } => write!(f, "container {name}: {text}"),
        }
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
