//! Why the claims of a pod cannot be prepared or unprepared.

use tonic::Status;

use super::fetch::FetchError;
use crate::error::{PathError, api_message};
use crate::metrics::code_name;
use crate::plugins::PluginError;

/// An error about claims. The texts are those of the kubelet, and appear in events of the pod; kubelets from 1.26 to 1.30
/// (`classic`) have other texts for some.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    /// Preparation failed.
    #[error("prepare dynamic resources: {0}")]
    Prepare(Box<ClaimError>),
    /// Unpreparation failed.
    #[error("unprepare dynamic resources: {0}")]
    Unprepare(Box<ClaimError>),
    /// The API server cannot be reached, or does not serve claims.
    #[error("{}", api_message(.0))]
    Discovery(#[source] Box<kube::Error>),
    /// The claim of a pod's entry does not exist yet.
    #[error("pod \"{pod}\": ResourceClaim for pod claim {entry} not created yet")]
    NotCreated { pod: String, entry: String },
    /// The claim cannot be read.
    #[error("{}", match .classic {
        true => format!("failed to fetch ResourceClaim {claim} referenced by pod {pod}: {source}"),
        false => format!("fetch ResourceClaim {claim}: {source}"),
    })]
    Fetch {
        claim: String,
        pod: String,
        source: FetchError,
        classic: bool,
    },
    /// The claim should have been created for the pod, and was not.
    #[error("{}", match .classic {
        true => format!("ResourceClaim {namespace}/{claim} was not created for pod {namespace}/{pod} (pod is not owner)"),
        false => format!("ResourceClaim {claim} was not created for pod {pod} (pod is not owner)"),
    })]
    NotOwned {
        namespace: String,
        claim: String,
        pod: String,
        classic: bool,
    },
    /// The claim has no allocation.
    #[error("ResourceClaim {0}: not allocated")]
    NotAllocated(String),
    /// The claim is not reserved for the pod.
    #[error("{}", match .classic {
        true => format!("pod {pod}({uid}) is not allowed to use resource claim {claim}({claim_uid})"),
        false => format!("pod {pod} ({uid}) is not allowed to use ResourceClaim {claim} ({claim_uid})"),
    })]
    NotReserved {
        pod: String,
        uid: String,
        claim: String,
        claim_uid: String,
        classic: bool,
    },
    /// A claim of the same name has not been unprepared yet.
    #[error(
        "old ResourceClaim with same name {claim} and different UID {uid} still exists (previous pod force-deleted?!)"
    )]
    Replaced { claim: String, uid: String },
    /// The pod's claim was not prepared.
    #[error(
        "internal error: unable to get claim info for ResourceClaim {claim} in namespace {namespace}"
    )]
    NotPrepared { namespace: String, claim: String },
    /// There is no plugin of the driver.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// As [`Self::Plugin`], for a classic claim.
    #[error(
        "failed to get DRA Plugin client for plugin name {0}: plugin name {0} not found in the list of registered DRA \
         plugins"
    )]
    ClassicPlugin(String),
    /// A call of the driver failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The checkpoint cannot be written.
    #[error("save DRA state: {0}")]
    Checkpoint(#[from] PathError),
}

/// A call of a driver that failed, or whose response does not fit.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The plugin has no version of the service for classic claims.
    #[error("DRA driver {0} does not prepare claims of resource classes")]
    NotClassic(String),
    /// The call itself failed; the text is in Go's format.
    #[error(
        "{call}{} rpc error: code = {} desc = {}",
        if *.classic { " failed:" } else { ":" },
        code_name(.status.code()),
        .status.message()
    )]
    Rpc {
        call: String,
        status: Box<Status>,
        classic: bool,
    },
    /// The response has a claim that was not requested.
    #[error("{call} returned result for unknown claim UID {uid}")]
    UnknownClaim { call: String, uid: String },
    /// The driver reports an error for a claim.
    #[error("{}", match .classic {
        true => format!("{call} failed for claim {namespace}/{claim}: {reason}"),
        false => format!("{call} failed for ResourceClaim {claim}: {reason}"),
    })]
    Claim {
        call: String,
        namespace: String,
        claim: String,
        reason: String,
        classic: bool,
    },
    /// The response has more devices than any claim.
    #[error(
        "{call} returned more than {most} devices, CDI device IDs and requests, up to ResourceClaim {claim}"
    )]
    TooMany {
        call: String,
        claim: String,
        most: usize,
    },
    /// The response lacks claims.
    #[error("{}", match .classic {
        true => format!("{call} left out {count} claims"),
        false => format!("{call} skipped {count} ResourceClaims"),
    })]
    Missing {
        call: String,
        count: usize,
        classic: bool,
    },
}
