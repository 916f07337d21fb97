//! Network drivers: [`v1`] for `resource.k8s.io/v1`, the driver `net.allot.dev`; all other modules for classic DRA (1.27 to
//! 1.30) with the objects of Spiderpool, the driver `netresources.spidernet.io`.
//!
//! The classic one: pods say which networks they attach to (SpiderMultusConfig, by annotation or through the SpiderClaimParameter of
//! their claim). The driver sends them only to nodes whose interfaces and subnets have these networks
//! ([`suitable`]), so that they do not fail after they were placed. On the node a claim becomes a CDI file with
//! `DRA_CLAIM_UID` ([`plugin`]).
//!
//! Two parts: [`controller`], once per cluster, installs the kinds, negotiates with the scheduler and turns every
//! SpiderMultusConfig into the NetworkAttachmentDefinition that Multus reads; [`plugin`], once per node, reports the
//! node's interfaces and prepares claims.
//!
//! Invariants:
//! - decisions follow from objects of the API server alone: a restarted controller decides the same;
//! - the allocation contains everything the node needs, so that preparing makes no request.
//!
//! The classic driver attaches no pod to a network: that is the work of Multus and the CNI plugins, as it is with Spiderpool.

#![forbid(unsafe_code)]

mod attachment;
pub mod controller;
mod definitions;
pub mod interfaces;
pub mod objects;
pub mod plugin;
mod ranges;
mod selection;
pub mod suitable;
pub mod v1;

pub use definitions::{KINDS, install, install_v1};
use serde::{Deserialize, Serialize};

/// Name of the driver, and of its ResourceClass.
pub const DRIVER_NAME: &str = "netresources.spidernet.io";
/// Namespace of cluster-wide objects that are named without a namespace.
pub const SYSTEM_NAMESPACE: &str = "kube-system";
/// Annotation of a SpiderClaimParameter: the version of the CDI file, for older container runtimes.
pub const CDI_VERSION: &str = "dra.spidernet.io/cdi-version";
/// The default version of CDI files.
pub const DEFAULT_CDI_VERSION: &str = "0.6.0";

/// The data from the controller to the plugin, in a resource handle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handle {
    /// Version of the CDI file.
    pub cdi_version: String,
    /// Containers get the library that accelerates RDMA.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rdma_acc: bool,
}
