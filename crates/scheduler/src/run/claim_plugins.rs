//! The plugins for claims of other generations than `resource.k8s.io/v1` that this build has: each is a crate and a cargo
//! feature.

use allot_client::discovery::Group;
use allot_framework::claim_plugin::Extension;
use kube::Client;
use tokio_util::sync::CancellationToken;

/// Makes the plugin whose kinds the API server has, if this build has it. `v1` says whether the server has the current
/// kinds, too.
#[cfg(feature = "classic")]
pub(super) async fn discover(
    client: &Client,
    group: &Group,
    v1: bool,
    shutdown: &CancellationToken,
) -> Result<Option<Extension>, kube::Error> {
    allot_classic::discover(client, group, v1, shutdown).await
}

/// No plugin.
#[cfg(not(feature = "classic"))]
pub(super) async fn discover(
    _: &Client,
    _: &Group,
    _: bool,
    _: &CancellationToken,
) -> Result<Option<Extension>, kube::Error> {
    Ok(None)
}
