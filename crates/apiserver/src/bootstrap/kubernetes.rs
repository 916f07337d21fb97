//! The service `default/kubernetes`, through which pods find this server, and the endpoints behind it.
//!
//! kube-apiserver rejects a loopback address to advertise. Here pods are processes of this machine, so they can reach
//! the address on which the server listens, whatever it is.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::reconcile;
use crate::error::Result;
use crate::server::Server;

const KEY: &str = "default/kubernetes";
/// The port of the service; the server listens on another.
const PORT: u16 = 443;

/// Updates the service and its endpoints to this run.
pub(super) async fn run(server: &Server, address: SocketAddr) -> Result<()> {
    reconcile(
        server,
        "services",
        KEY,
        service(server, address.port()),
        |kept, wanted| {
            // The address and fields that users have added stay.
            for field in ["ports", "type", "sessionAffinity"] {
                kept["spec"][field] = wanted["spec"][field].clone();
            }
        },
    )
    .await?;
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

fn service(server: &Server, port: u16) -> Value {
    let address = server.0.config.service_addresses.first().to_string();
    json!({
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": address, "clusterIPs": [address], "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "type": "ClusterIP",
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
