//! Options of authentication by a webhook.

use std::time::Duration;

use super::authorization::ReviewVersion;
use super::kubeconfig::Kubeconfig;

/// How a webhook authenticates bearer tokens.
#[derive(Debug, Clone)]
pub struct TokenWebhook {
    /// Where it is, and how the server proves itself to it.
    pub kubeconfig: Kubeconfig,
    /// The version of the TokenReview.
    pub version: ReviewVersion,
    /// How long an answer is kept; zero: not at all.
    pub ttl: Duration,
}
