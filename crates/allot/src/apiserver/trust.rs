//! The cluster's certificates in its API, so that nodes and the API server trust each other.

use std::net::IpAddr;

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use allot_apiserver::pki::{Authority, Identity};
use anyhow::Context;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

/// The user of the API server towards kubelets, with permission for nothing else.
pub(super) const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";
/// The role for it, one of the default roles.
const KUBELET_ROLE: &str = "system:kubelet-api-admin";
const MANAGER: &str = "kube-apiserver";

/// The certificate of the server, for its usual names, this host, and the addresses at which it is reached.
pub(super) fn serving_identity(
    authority: &Authority,
    reached: &[IpAddr],
) -> anyhow::Result<Identity> {
    let names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let mut addresses = vec![IpAddr::from([127, 0, 0, 1])];
    for address in reached {
        if !addresses.contains(address) {
            addresses.push(*address);
        }
    }
    Ok(authority.server("kube-apiserver", &names.map(str::to_owned), &addresses)?)
}

/// Binds the API server's client certificate to the role for kubelets, as installers of clusters do, and publishes the
/// client CAs (PEM), as kube-apiserver does.
pub(super) async fn publish(server: &Server, clients: &str) -> anyhow::Result<()> {
    let client = Client::new(server.client_service(User::admin()), "kube-system");
    let params = PatchParams::apply(MANAGER).force();
    let subject =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": KUBELET_CLIENT});
    let role = json!({
        "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": KUBELET_ROLE,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": KUBELET_CLIENT}, "roleRef": role, "subjects": [subject],
    });
    Api::<ClusterRoleBinding>::all(client.clone())
        .patch(KUBELET_CLIENT, &params, &Patch::Apply(binding))
        .await
        .context("role binding of the API server's kubelet client")?;
    let name = "extension-apiserver-authentication";
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"client-ca-file": clients},
    });
    Api::<ConfigMap>::default_namespaced(client)
        .patch(name, &params, &Patch::Apply(map))
        .await
        .context("config map with the client CA")?;
    Ok(())
}
