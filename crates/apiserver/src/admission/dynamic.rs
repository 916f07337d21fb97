//! What users install to take part in admission: policies and webhooks.
//!
//! Everything is compiled when it changes, not when it is used, and applies from the next request on. Without
//! configured policies and webhooks a write costs one atomic read.

mod backend;
mod changes;
mod definition;
mod evaluate;
pub(crate) mod manifests;
mod matching;
mod mutator;
mod params;
pub(super) mod permission;
mod policy;
mod reinvocation;
mod request;
mod review;
mod set;
mod validating;
mod variables;
mod webhook;
mod webhook_call;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use serde_json::Value;

pub(crate) use backend::{GROUP, watched};
use reinvocation::Reinvocations;
use request::Request;
use set::Set;

use super::Admission;
use super::plugins::Plugin;
use super::{Attributes, enabled};
use crate::error::Result;
use crate::limits;

/// Meanings of the lowest bits of [`Dynamic::state`]; the others count changes.
const EMPTY: u64 = 0;
const LOADED: u64 = 1;
const STALE: u64 = 2;
const BITS: u64 = 3;

/// The configured policies and webhooks.
pub struct Dynamic {
    state: AtomicU64,
    set: ArcSwap<Set>,
    /// What is in files.
    manifests: parking_lot::Mutex<manifests::Manifests>,
    loading: tokio::sync::Mutex<()>,
}

impl Default for Dynamic {
    fn default() -> Self {
        Dynamic {
            // A restarted server reads the configuration from its store.
            state: AtomicU64::new(STALE),
            set: ArcSwap::default(),
            manifests: parking_lot::Mutex::default(),
            loading: tokio::sync::Mutex::default(),
        }
    }
}

impl Dynamic {
    /// No policy or webhook is configured.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.load(Ordering::Acquire) & BITS == EMPTY
    }

    /// An object was written that may change the configuration.
    fn changed(&self) {
        let next = |state: u64| Some((state | BITS).wrapping_add(1) | STALE);
        // The update never refuses.
        let _ = self
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// The set as it is now.
    async fn set(&self, core: &Admission) -> Result<Arc<Set>> {
        if self.state.load(Ordering::Acquire) & BITS != STALE {
            return Ok(self.set.load_full());
        }
        let _alone = self.loading.lock().await;
        loop {
            let seen = self.state.load(Ordering::Acquire);
            if seen & BITS != STALE {
                return Ok(self.set.load_full());
            }
            let set = Arc::new(Set::load(core, &self.set.load()).await?);
            let bits = if set.is_empty() { EMPTY } else { LOADED };
            self.set.store(set.clone());
            // Unless there was another write in the meantime.
            let loaded = (seen & !BITS) | bits;
            if self
                .state
                .compare_exchange(seen, loaded, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            {
                return Ok(set);
            }
        }
    }
}

/// Runs the validating policies and webhooks on the final object.
///
/// # Errors
/// The first refusal.
pub(super) async fn validate(
    core: &Admission,
    attributes: &Attributes<'_>,
    object: &Value,
) -> Result<()> {
    let Some(asked) = attributes.asked.filter(|_| !core.dynamic.is_empty()) else {
        return Ok(());
    };
    let set = core.dynamic.set(core).await?;
    let request = Request::new(core, attributes, asked, object);
    if enabled(core, Plugin::ValidatingAdmissionPolicy) && !request.is_review() {
        let policies = set.policies.of_request(&request, Request::is_policy);
        validating::dispatch(policies, &request, object).await?;
    }
    if enabled(core, Plugin::ValidatingAdmissionWebhook) {
        let webhooks = set
            .validating
            .of_request(&request, Request::is_configuration);
        webhook_call::validate(webhooks, &request, object).await?;
    }
    // An expression that the end of the time interrupted has failed, and its policy may permit that.
    limits::checkpoint().await;
    Ok(())
}

/// The progress of mutating policies and webhooks with an object.
#[derive(Default)]
pub(super) struct Mutation {
    again: bool,
    policies: Reinvocations,
    webhooks: Reinvocations,
}

impl Mutation {
    /// Runs the mutating policies and webhooks; returns whether the whole chain must run again. The second run
    /// includes only those with a reinvocation policy after which the object has changed.
    ///
    /// # Errors
    /// The first refusal.
    pub async fn run(
        &mut self,
        core: &Admission,
        attributes: &Attributes<'_>,
        object: &mut Value,
    ) -> Result<bool> {
        let Some(asked) = attributes.asked.filter(|_| !core.dynamic.is_empty()) else {
            return Ok(false);
        };
        let set = core.dynamic.set(core).await?;
        let request = Request::new(core, attributes, asked, &Value::Null);
        let again = std::mem::replace(&mut self.again, true);
        let mut changed = false;
        let policies = set.mutators.of_request(&request, Request::is_policy);
        let has_policies = !policies.is_empty() && !request.is_review();
        if has_policies && enabled(core, Plugin::MutatingAdmissionPolicy) {
            if again {
                self.policies.repeat(object);
            }
            changed |= mutator::mutate(policies, &request, object, &mut self.policies).await?;
        }
        let webhooks = set.mutating.of_request(&request, Request::is_configuration);
        if !webhooks.is_empty() && enabled(core, Plugin::MutatingAdmissionWebhook) {
            if again {
                self.webhooks.repeat(object);
            }
            changed |= webhook_call::mutate(webhooks, &request, object, &mut self.webhooks).await?;
        }
        limits::checkpoint().await;
        if changed {
            // What they answered is decoded again, and does not tell an empty list from none.
            crate::empties::sent(Vec::new());
        }
        Ok(changed && !again)
    }
}
