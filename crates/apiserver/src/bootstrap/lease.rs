//! The Lease in `kube-system` that says that this API server is there, as that of each kube-apiserver.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use allot_store::{Error as StoreError, Expect, ListOptions, Write};
use serde_json::{Value, json};

use crate::error::Result;
use crate::object::{meta, micro_timestamp, text};
use crate::own_objects::{self, ensure};
use crate::server::Server;
use crate::server_identity;
use crate::state::ServerState;
use crate::storage;

const LEASES: &str = "coordination.k8s.io/leases";
const NAMESPACE: &str = "kube-system";
const COMPONENT: (&str, &str) = (
    "apiserver.kubernetes.io/identity",
    server_identity::COMPONENT,
);
/// For how long the Lease is valid.
const DURATION: Duration = Duration::from_secs(3600);
/// How often it is renewed: often enough, and without a write every few seconds on a cluster that is idle.
const RENEWED_EVERY: Duration = Duration::from_secs(600);

/// Takes the Lease, then keeps it until the server stops.
pub(super) async fn run(server: &Server, address: SocketAddr) -> Result<()> {
    let state = server.0.state.clone();
    let host = match state.config.host_name.as_str() {
        "" => address.ip().to_string(),
        host => host.to_owned(),
    };
    let name = server_identity::of_host(&host);
    let holder = format!("{name}_{}", uuid::Uuid::new_v4());
    // The server starts on a full disk as well.
    hold(&state, &name, &holder, &host, address, true).await?;
    tokio::spawn(async move {
        while state.pause(RENEWED_EVERY).await {
            if let Err(error) = hold(&state, &name, &holder, &host, address, false).await {
                tracing::warn!(error = %error.0.message, "the Lease of the API server is not renewed");
            }
        }
    });
    Ok(())
}

/// Creates or renews the Lease, and removes those of servers that are gone. `frees`: with the space that is reserved for
/// deletes.
async fn hold(
    state: &Arc<ServerState>,
    name: &str,
    holder: &str,
    host: &str,
    address: SocketAddr,
    frees: bool,
) -> Result<()> {
    let now = jiff::Timestamp::now();
    let wanted = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": name, "namespace": NAMESPACE,
            "labels": {COMPONENT.0: COMPONENT.1, "kubernetes.io/hostname": host},
            "annotations": {"kubernetes.io/peer-advertise-address": address.to_string()},
        },
        "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": DURATION.as_secs(), "renewTime": micro_timestamp(now),
        },
    });
    let own = format!("{NAMESPACE}/{name}");
    ensure(
        &*state.backend,
        LEASES,
        own.as_str(),
        wanted.clone(),
        own_objects::SERVER,
    )
    .await?;
    let prefix = format!("{NAMESPACE}/");
    let options = ListOptions {
        prefix: &prefix,
        ..ListOptions::default()
    };
    for entry in state.backend.list(LEASES, options).await?.entries {
        // What the store holds was written by this server as JSON.
        let mut lease: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        let is_own = meta(&lease, "name") == name;
        let write = if is_own && lease["spec"] != wanted["spec"] {
            lease["spec"] = wanted["spec"].clone();
            for part in ["labels", "annotations"] {
                lease["metadata"][part] = wanted["metadata"][part].clone();
            }
            let expect = Expect::Revision(entry.revision);
            Write::put(LEASES, own.as_str(), expect, storage::draft(&lease)).frees(frees)
        } else if !is_own && has_expired(&lease, now) {
            Write::delete(LEASES, &*entry.key, entry.revision, storage::draft(&lease))
        } else {
            continue;
        };
        match state.backend.commit(write).await {
            // Another server was faster; the next renewal sees what is there.
            Ok(_) | Err(StoreError::NotFound | StoreError::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The Lease is that of an API server that has not renewed it in time.
fn has_expired(lease: &Value, now: jiff::Timestamp) -> bool {
    let renewed = text(lease, &["spec", "renewTime"]).parse::<jiff::Timestamp>();
    let (Ok(renewed), Some(seconds)) = (renewed, lease["spec"]["leaseDurationSeconds"].as_i64())
    else {
        return false;
    };
    lease["metadata"]["labels"][COMPONENT.0] == COMPONENT.1
        && now.as_second().saturating_sub(renewed.as_second()) > seconds
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::has_expired;

    /// As kube-apiserver 1.36.2 names itself on a host `vm`.
    #[test]
    fn the_name_is_that_of_kube_apiserver() {
        assert_eq!(
            crate::server_identity::of_host("vm"),
            "apiserver-wlv32tlttr4jl3gtroqexyxapa"
        );
    }

    #[test]
    fn only_leases_of_servers_expire() {
        let now = "2026-01-01T03:00:00Z".parse().unwrap();
        for (label, renewed, expired) in [
            ("kube-apiserver", "2026-01-01T01:59:00.000000Z", true),
            ("kube-apiserver", "2026-01-01T02:30:00.000000Z", false),
            ("other", "2026-01-01T01:00:00.000000Z", false),
            ("kube-apiserver", "yesterday", false),
        ] {
            let lease = json!({
                "metadata": {"labels": {"apiserver.kubernetes.io/identity": label}},
                "spec": {"renewTime": renewed, "leaseDurationSeconds": 3600},
            });
            assert_eq!(has_expired(&lease, now), expired, "{label} {renewed}");
        }
    }
}
