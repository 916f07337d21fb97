//! The plugin DynamicResources: which claims a pod needs, where they can be allocated, and what to write.
//!
//! [`PodDevices::prepare`] is the plugin's PreFilter, [`PodDevices::filter`] its Filter, [`PodDevices::score`] its
//! Score and [`PodDevices::claim_to_deallocate`] its PostFilter. All are pure: they read [`claims::Claims`] and return
//! what to do.

pub mod claims;
pub mod conditions;
pub mod extended;
pub mod node_allocatable;
mod prepare;
pub mod quota;
pub mod release;
pub mod resolve;

pub use prepare::{
    ClaimCleanup, Counts, DraContext, ExtendedResourceClaimOnNode, NodeDevices, NodeNearness,
    PodClaim, PodDevices, missing_class, next_skip,
};

use allot_framework::claim_plugin::ClaimPlugin;

use crate::framework::Plugin;
use crate::pod::PodInfo;
use crate::status::Rejection;

/// Gates a pod until all its claims exist, belong to it and are not being deleted.
pub fn pre_enqueue(
    pod: &PodInfo,
    claims: &claims::Claims,
    plugin: Option<&dyn ClaimPlugin>,
) -> Result<(), Rejection> {
    if pod
        .spec()
        .resource_claims
        .as_ref()
        .is_none_or(Vec::is_empty)
    {
        return Ok(());
    }
    let newer = resolve::all(pod, plugin, claims).map(|_| ());
    let resolved = newer.and_then(|()| plugin.map_or(Ok(()), |p| p.pre_enqueue(pod)));
    resolved.map_err(|error| Rejection::unresolvable(Plugin::DynamicResources, error.to_string()))
}
