//! Who may do what: the authorizers in order, and what configures them.

use std::sync::Arc;
use std::time::Duration;

use super::kubeconfig::Kubeconfig;

pub mod abac;
pub mod conditions;
pub mod file;

use abac::Policies;
use conditions::Conditions;

/// One authorizer.
#[derive(Debug, Clone)]
pub enum AuthorizationMode {
    /// Node agents, by what runs on their node.
    Node,
    /// Roles and bindings.
    Rbac,
    /// Everything is allowed.
    AlwaysAllow,
    /// Nothing is allowed, but for the superusers.
    AlwaysDeny,
    /// A file of policies.
    Abac(Arc<Policies>),
    /// Another server decides.
    Webhook(Arc<WebhookOptions>),
}

/// How a webhook authorizes requests.
#[derive(Debug)]
pub struct WebhookOptions {
    /// Its name in metrics and logs.
    pub name: String,
    /// Where it is, and how the server proves itself to it.
    pub kubeconfig: Kubeconfig,
    /// The version of the SubjectAccessReview.
    pub version: ReviewVersion,
    /// The time of one call.
    pub timeout: Duration,
    /// How long an answer that allows is kept; zero: not at all.
    pub authorized_ttl: Duration,
    /// How long any other answer is kept; zero: not at all.
    pub unauthorized_ttl: Duration,
    /// Requests are denied when the webhook cannot be called; otherwise the next authorizer decides.
    pub denies_on_error: bool,
    /// The requests for which it is called.
    pub conditions: Conditions,
}

/// A version of the reviews that webhooks are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `v1`.
    V1,
    /// `v1beta1`; less of the answers is checked.
    V1beta1,
}

impl ReviewVersion {
    /// The version of this name, if the server supports it.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "v1" => Some(ReviewVersion::V1),
            "v1beta1" => Some(ReviewVersion::V1beta1),
            _ => None,
        }
    }

    /// The version in the `apiVersion` of the review.
    pub fn name(self) -> &'static str {
        match self {
            ReviewVersion::V1 => "v1",
            ReviewVersion::V1beta1 => "v1beta1",
        }
    }
}

impl AuthorizationMode {
    /// The mode of this name, if it needs no configuration.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "Node" => Some(AuthorizationMode::Node),
            "RBAC" => Some(AuthorizationMode::Rbac),
            "AlwaysAllow" => Some(AuthorizationMode::AlwaysAllow),
            "AlwaysDeny" => Some(AuthorizationMode::AlwaysDeny),
            _ => None,
        }
    }

    /// The name in `--authorization-mode`.
    pub fn kind(&self) -> &'static str {
        match self {
            AuthorizationMode::Node => "Node",
            AuthorizationMode::Rbac => "RBAC",
            AuthorizationMode::AlwaysAllow => "AlwaysAllow",
            AuthorizationMode::AlwaysDeny => "AlwaysDeny",
            AuthorizationMode::Abac(_) => "ABAC",
            AuthorizationMode::Webhook(_) => "Webhook",
        }
    }

    /// The name of the authorizer: that of its kind in lower case, if it is no webhook.
    pub fn name(&self) -> String {
        match self {
            AuthorizationMode::Webhook(options) => options.name.clone(),
            other => other.kind().to_lowercase(),
        }
    }
}
