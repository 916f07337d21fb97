//! The service `default/kubernetes`, through which pods find this server, and the endpoints behind it.
//!
//! kube-apiserver rejects a loopback address to advertise. Here pods are processes of this machine, so they can reach
//! the address on which the server listens, whatever it is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::reconcile;
use crate::error::{ApiError, Result};
use crate::own_objects::{self, ensure};
use crate::server::Server;
use crate::services;

const KEY: &str = "default/kubernetes";
/// The port of the service; the server listens on another.
const PORT: u16 = 443;

/// How often the service is looked for, as by kube-apiserver.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Updates the service and its endpoints to this run. A service that is deleted is made again.
pub(super) async fn run(server: &Server, address: SocketAddr) -> Result<()> {
    update(server, address.port()).await?;
    keep(server, address.port());
    reconcile(
        server,
        "endpoints",
        KEY,
        endpoints(address),
        |kept, wanted| {
            kept["metadata"]["labels"] = wanted["metadata"]["labels"].clone();
            kept["subsets"] = wanted["subsets"].clone();
        },
    )
    .await?;
    let slices = "discovery.k8s.io/endpointslices";
    reconcile(server, slices, KEY, slice(address), |kept, wanted| {
        kept["metadata"]["labels"] = wanted["metadata"]["labels"].clone();
        for field in ["addressType", "endpoints", "ports"] {
            kept[field] = wanted[field].clone();
        }
    })
    .await
}

/// Brings the service up to date, or makes it.
async fn update(server: &Server, port: u16) -> Result<()> {
    if server.0.backend.get("services", KEY).await?.is_none() {
        return match make(server, port).await {
            Err(error) if error.code() == 422 => {
                warn(&error);
                Ok(())
            }
            made => made,
        };
    }
    let wanted = service(server, port);
    reconcile(server, "services", KEY, wanted, |kept, wanted| {
        // The address and fields that users have added stay.
        for field in ["ports", "type", "sessionAffinity"] {
            kept["spec"][field] = wanted["spec"][field].clone();
        }
    })
    .await
}

/// Makes the service. Its address may be that of another service, which had it first, or of a range that is not in use: that
/// is an error with code 422, and there is no service until an administrator has solved it, as with kube-apiserver.
async fn make(server: &Server, port: u16) -> Result<()> {
    let (core, mut new) = (&server.0, service(server, port));
    // Until the service is stored, no other one gets its address.
    let _reserved = services::allocate(core, &core.services, &mut new, None, false).await?;
    let made = new.clone();
    ensure(&*core.backend, "services", KEY, made, own_objects::SERVER).await?;
    services::follow(core, None, Some(&new)).await
}

fn warn(error: &ApiError) {
    let why = &error.0.message;
    tracing::warn!("the service kubernetes in the namespace default is not made: {why}");
}

/// Makes the service again when it is gone, until the server stops.
fn keep(server: &Server, port: u16) {
    let (core, state) = (Arc::downgrade(&server.0), server.0.state.clone());
    tokio::spawn(async move {
        while state.pause(LOOK_EVERY).await {
            let Some(server) = core.upgrade().map(Server) else {
                return;
            };
            let known = state.backend.get("services", KEY).await;
            if known.is_ok_and(|known| known.is_none())
                && let Err(error) = make(&server, port).await
            {
                warn(&error);
            }
        }
    });
}

/// Of the first family, as for kube-apiserver: the address behind it is of one family as well.
fn service(server: &Server, port: u16) -> Value {
    let addresses = &server.0.config.service_addresses;
    let (address, family) = (addresses.first().to_string(), addresses.family().name());
    json!({
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": address, "clusterIPs": [address], "internalTrafficPolicy": "Cluster",
            "ipFamilies": [family], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "type": "ClusterIP",
            "ports": [{"name": "https", "port": PORT, "protocol": "TCP", "targetPort": port}],
        },
        "status": {"loadBalancer": {}},
    })
}

fn endpoints(address: SocketAddr) -> Value {
    json!({
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            // The slice below is written separately, not mirrored from it.
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": [{
            "addresses": [{"ip": address.ip().to_string()}],
            "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
        }],
    })
}

fn slice(address: SocketAddr) -> Value {
    json!({
        "metadata": {
            "name": "kubernetes", "namespace": "default", "generation": 1,
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
    })
}
