//! What authorizers decide.

use allot_apimachinery::field::joined;

use super::authorize::{AuthorizerAttributes, forbidden};
use crate::error::Result;

/// What an authorizer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Allowed.
    Allow,
    /// Denied: authorizers that follow are not asked.
    Deny,
    /// No rule allows it.
    NoOpinion,
}

/// The decision of an authorizer, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    verdict: Verdict,
    reason: String,
    errors: Vec<String>,
}

impl Decision {
    fn of(verdict: Verdict, reason: impl Into<String>) -> Self {
        Decision {
            verdict,
            reason: reason.into(),
            errors: Vec::new(),
        }
    }

    /// Allowed.
    pub fn allow(reason: impl Into<String>) -> Self {
        Decision::of(Verdict::Allow, reason)
    }

    /// Denied, whatever other authorizers say.
    pub fn deny(reason: impl Into<String>) -> Self {
        Decision::of(Verdict::Deny, reason)
    }

    /// No rule allows it.
    pub fn no_opinion(reason: impl Into<String>) -> Self {
        Decision::of(Verdict::NoOpinion, reason)
    }

    /// The same, made in spite of an error.
    pub(super) fn in_spite_of(mut self, error: String) -> Self {
        self.errors.push(error);
        self
    }

    /// Whether some authorizer allows it; nothing else does.
    pub fn allowed(&self) -> bool {
        self.verdict == Verdict::Allow
    }

    /// Whether some authorizer denies it, which is more than that none allows it.
    pub fn denied(&self) -> bool {
        self.verdict == Verdict::Deny
    }

    pub(super) fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The reason and the errors.
    pub(super) fn into_parts(self) -> (String, Vec<String>) {
        (self.reason, self.errors)
    }

    /// Why, or why not.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The errors of authorizers that could not judge, as upstream joins them.
    pub fn error(&self) -> Option<String> {
        joined(&self.errors)
    }

    /// Success if it is allowed.
    ///
    /// # Errors
    /// 403 with upstream's text.
    pub(crate) fn required(&self, attributes: &AuthorizerAttributes<'_>) -> Result<()> {
        match self.verdict {
            Verdict::Allow => Ok(()),
            Verdict::Deny | Verdict::NoOpinion => Err(forbidden(attributes, &self.reason)),
        }
    }
}
