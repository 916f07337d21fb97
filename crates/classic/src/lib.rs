//! Classic DRA as a plugin of the scheduler: claims as they were before 1.31, allocated by drivers that the scheduler
//! negotiates with, or by the scheduler of 1.30 from structured parameters.
//!
//! The negotiation uses one object per pod (PodScheduling of 1.26, PodSchedulingContext since): the scheduler writes
//! the feasible nodes, the drivers exclude some, the scheduler selects one, the drivers allocate. Until then the pod
//! stays pending and blocks no other pod.
//!
//! The crate implements the traits of [`allot_framework::claim_plugin`]. The scheduler calls [`discover`] if its feature
//! `classic` is on, and knows nothing else of the crate. If a server serves none of the kinds, the plugin does not
//! exist and costs nothing. State and decisions ([`Classic`], [`PodClaims`]) are functions of their inputs; [`writer`]
//! and `watches` are a client of the API server.
//!
//! Invariants: an exclusive claim is assumed for one pod at a time, also while the reservation is being written
//! ([`claims`]); an instance of structured resources is allocated to one claim ([`structured`]); a published
//! specification counts until a watch or an answer contradicts it ([`negotiations`]); a claim is not deallocated before
//! pods that can use it where it is allocated were tried ([`deferrals`]).

#![forbid(unsafe_code)]
// Time, randomness and files are inputs; see clippy.toml.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod claims;
mod deferrals;
mod discovery;
pub mod message;
mod negotiations;
mod plugin;
mod pod;
mod releases;
mod state;
mod structured;
mod watches;
mod writer;

use std::sync::Arc;

use allot_client::discovery::Group;
use allot_framework::claim_plugin::Extension;
use allot_model::migrate::pod::flatten_claims;
use kube::Client;
use tokio_util::sync::CancellationToken;

pub use discovery::Served;
pub use message::{Action, ClaimTask, Input, PublishError};
pub use pod::PodClaims;
pub use state::Classic;

/// Makes the plugin for an API server that has the group `resource.k8s.io` in these versions; `None` if it serves none of
/// the classic kinds. `v1` says whether it serves the current ones as well. The watches end with `shutdown`.
///
/// # Errors
/// The server does not answer, or answers with an error.
pub async fn discover(
    client: &Client,
    group: &Group,
    v1: bool,
    shutdown: &CancellationToken,
) -> Result<Option<Extension>, kube::Error> {
    let Some(served) = discovery::discover(client, group, v1).await? else {
        return Ok(None);
    };
    Ok(Some(Extension {
        watches: watches::all(client, &served, shutdown),
        writer: Arc::new(writer::ClassicWriter::new(client.clone(), served.clone())),
        plugin: Box::new(Classic::new(served)),
        convert_pod: flatten_claims,
    }))
}
