//! Drivers of the kind before 1.31, which allocate themselves: a controller that negotiates with the scheduler, and a
//! plugin on every node.
//!
//! The vendor implements [`Driver`] (the meaning of parameters, suitable nodes, allocate, deallocate) and runs a
//! [`Controller`] with it, one per cluster. The library does the rest: watching ResourceClasses, ResourceClaims and
//! PodSchedulings (v1alpha1 of 1.26) or PodSchedulingContexts (v1alpha2 of 1.27 to 1.30), whichever the API server has;
//! the finalizer `<driver>/deletion-protection`; immediate claims and those that wait for their first consumer;
//! deallocation; events; back-off. On the nodes, [`NodeDriver`] and [`NodePlugin`] do the same for the kubelet.
//!
//! Invariants:
//! - the finalizer is stored before [`Driver::allocate`] is called and removed after the deallocation: whenever the
//!   controller is killed, its next run finds every claim for which the driver may hold resources;
//! - an allocation, the name of the driver and the reservation for the pod are one write;
//! - for one claim, calls of the driver never overlap.
//!
//! It must not depend on what is allocated, nor on the structured model of 1.31 and later.
//!
//! ```no_run
//! use allot_driver::Failure;
//! use allot_driver::classic::{Allocation, Claim, Class, Controller, Driver, Pod, Wanted};
//!
//! /// Every claim gets a cat, on whichever node.
//! struct Cats;
//!
//! impl Driver for Cats {
//!     type ClassParameters = ();
//!     type ClaimParameters = String;
//!
//!     async fn class_parameters(&self, _: &Class) -> Result<(), Failure> {
//!         Ok(())
//!     }
//!
//!     async fn claim_parameters(&self, claim: &Claim, _: &Class, _: &()) -> Result<String, Failure> {
//!         Ok(claim.parameters().map_or("tabby".into(), |parameters| parameters.name))
//!     }
//!
//!     async fn allocate(&self, cats: &[Wanted<Self>], _node: Option<&str>) -> Vec<Result<Allocation, Failure>> {
//!         cats.iter().map(|cat| Ok(Allocation::opaque("cats.example.com", &cat.claim_parameters))).collect()
//!     }
//!
//!     async fn deallocate(&self, _: &Claim) -> Result<(), Failure> {
//!         Ok(())
//!     }
//!
//!     async fn unsuitable_nodes(&self, _: &Pod, cats: &[Wanted<Self>], _: &[String]) -> Result<Vec<Vec<String>>, Failure> {
//!         Ok(vec![Vec::new(); cats.len()])
//!     }
//! }
//!
//! # async fn example(shutdown: tokio_util::sync::CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
//! let client = kube::Client::try_default().await?;
//! Controller::new("cats.example.com", Cats, client).run(shutdown).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Only one controller of a driver may work at a time; [`Controller::leader_election`] picks one of several.

mod api;
mod cache;
mod claims;
mod controller;
mod convert;
mod events;
mod negotiation;
mod objects;
mod plugin;
mod queue;
mod structured;
#[cfg(test)]
mod tests;

pub use allot_election::Settings as LeaderElection;
pub use allot_model::classic::objects::{
    AllocationResult, Attribute, ClaimParameters, ClassParameters, DriverRequests, Instance,
    ParametersReference, ResourceHandle, ResourceRequest, Selector, StructuredHandle,
    VendorParameters,
};
pub use api::{ClassicVersion, discover};
pub use controller::{Controller, Error};
pub use convert::{Parameters, generate_parameters};
pub use k8s_openapi::api::core::v1::{NodeSelector, Pod};
pub use objects::{Allocation, Claim, Class};
pub use plugin::{NodeDriver, NodePlugin};
pub use structured::Handle;

use crate::Failure;

/// The parameters object as a text: `Kind.group namespace/name`.
pub fn describe(reference: &ParametersReference) -> String {
    let ParametersReference {
        api_group,
        kind,
        name,
        namespace,
    } = reference;
    let dot = if api_group.is_empty() { "" } else { "." };
    let slash = if namespace.is_empty() { "" } else { "/" };
    format!("{kind}{dot}{api_group} {namespace}{slash}{name}")
}

/// A claim to allocate, with its class and parameters.
#[derive(Debug)]
pub struct ClaimAllocation<C, P> {
    /// What the pod calls it in `spec.resourceClaims`; empty for a claim that is allocated without a pod.
    pub pod_claim: String,
    /// The claim. It has no allocation yet.
    pub claim: Claim,
    /// The ResourceClass that the claim names; its parameters are resolved.
    pub class: Class,
    /// The result of [`Driver::class_parameters`].
    pub class_parameters: C,
    /// The result of [`Driver::claim_parameters`].
    pub claim_parameters: P,
}

/// The claims to allocate.
pub type Wanted<D> =
    ClaimAllocation<<D as Driver>::ClassParameters, <D as Driver>::ClaimParameters>;

/// Knowledge about a kind of resource: the part of a controller that differs between vendors.
///
/// Calls for different claims may overlap; those for one claim never do.
pub trait Driver: Send + Sync + 'static {
    /// Parameters of a class, in the driver's own form.
    type ClassParameters: Send + Sync;
    /// Parameters of a claim, in the driver's own form.
    type ClaimParameters: Send + Sync;

    /// Reads and checks the parameters that a class refers to; there may be none.
    ///
    /// # Errors
    /// The text reaches the events of the class, after the reference.
    fn class_parameters(
        &self,
        class: &Class,
    ) -> impl Future<Output = Result<Self::ClassParameters, Failure>> + Send;

    /// Reads and checks the parameters that a claim refers to; there may be none.
    ///
    /// # Errors
    /// The text reaches the events of the claim and its pod, after the reference.
    fn claim_parameters(
        &self,
        claim: &Claim,
        class: &Class,
        class_parameters: &Self::ClassParameters,
    ) -> impl Future<Output = Result<Self::ClaimParameters, Failure>> + Send;

    /// Allocates all claims of a pod that this driver is responsible for, on `node` or not at all. Without a node it
    /// is an immediate claim, alone, and the driver picks. One result per claim, in order.
    ///
    /// Must be idempotent: after a crash it is called again for claims that it had allocated already, perhaps for
    /// another node.
    fn allocate(
        &self,
        claims: &[Wanted<Self>],
        node: Option<&str>,
    ) -> impl Future<Output = Vec<Result<Allocation, Failure>>> + Send
    where
        Self: Sized;

    /// Deallocates a claim. Must be idempotent: it is also called when nothing was allocated.
    ///
    /// # Errors
    /// The text reaches the claim's events; it is tried again later.
    fn deallocate(&self, claim: &Claim) -> impl Future<Output = Result<(), Failure>> + Send;

    /// For each of the claims, in order, those of `nodes` on which it cannot be allocated. Better answers consider all
    /// claims together.
    ///
    /// # Errors
    /// The text reaches the events of the negotiation; it is tried again later.
    fn unsuitable_nodes(
        &self,
        pod: &Pod,
        claims: &[Wanted<Self>],
        nodes: &[String],
    ) -> impl Future<Output = Result<Vec<Vec<String>>, Failure>> + Send
    where
        Self: Sized;
}
