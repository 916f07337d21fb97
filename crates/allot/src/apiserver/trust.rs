//! The cluster's certificates in its API, so that nodes and the API server trust each other.

use std::net::IpAddr;

use allot_apiserver::Server;
use allot_apiserver::config::RequestHeaders;
use allot_apiserver::identity::User;
use allot_apiserver::pki::{Authority, Identity};
use anyhow::Context;
use http::HeaderName;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

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

/// Binds the API server's client certificate to the role for kubelets, as installers of clusters do, and publishes for
/// extension API servers the client CAs (PEM) and how this server names users, as kube-apiserver does.
pub(super) async fn publish(
    server: &Server,
    clients: &str,
    proxies: Option<&RequestHeaders>,
) -> anyhow::Result<()> {
    let client = Client::new(server.client_service(User::admin()), "kube-system");
    let subject =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": KUBELET_CLIENT});
    let role = json!({
        "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": KUBELET_ROLE,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": KUBELET_CLIENT}, "roleRef": &role, "subjects": [&subject],
    });
    let bindings = Api::<ClusterRoleBinding>::all(client.clone());
    apply(&bindings, KUBELET_CLIENT, binding, |known| {
        known["roleRef"] == role && known["subjects"] == json!([subject])
    })
    .await
    .context("role binding of the API server's kubelet client")?;
    let name = "extension-apiserver-authentication";
    let mut data = json!({"client-ca-file": clients});
    if let Some(proxies) = proxies {
        let list = |names: &[HeaderName]| {
            let names: Vec<&str> = names.iter().map(HeaderName::as_str).collect();
            json!(names).to_string()
        };
        data["requestheader-client-ca-file"] = proxies.ca.as_str().into();
        for (key, value) in [
            ("allowed-names", json!(proxies.allowed_names).to_string()),
            ("username-headers", list(&proxies.username)),
            ("uid-headers", list(&proxies.uid)),
            ("group-headers", list(&proxies.group)),
            (
                "extra-headers-prefix",
                json!(proxies.extra_prefixes).to_string(),
            ),
        ] {
            data[format!("requestheader-{key}")] = value.into();
        }
    }
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": &data,
    });
    let maps = Api::<ConfigMap>::default_namespaced(client);
    apply(&maps, name, map, |known| known["data"] == data)
        .await
        .context("config map with the client CA")
}

/// Applies an object unless it is there as it should be. A webhook, a policy or a priority level that refuses it does not keep
/// the server from starting: only a server that runs lets users correct them.
async fn apply<K>(
    api: &Api<K>,
    name: &str,
    wanted: Value,
    is_right: impl Fn(&Value) -> bool,
) -> anyhow::Result<()>
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let applied = async {
        let known = api.get_opt(name).await?;
        let known = known.and_then(|known| serde_json::to_value(known).ok());
        if !known.is_some_and(|known| is_right(&known)) {
            let params = PatchParams::apply(MANAGER).force();
            api.patch(name, &params, &Patch::Apply(wanted)).await?;
        }
        Ok::<_, kube::Error>(())
    };
    match applied.await {
        Err(kube::Error::Api(status)) => {
            let why = status.message;
            tracing::error!(name, why, "an object of the API server is refused");
            Ok(())
        }
        applied => Ok(applied?),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
    use kube::api::{DeleteParams, PostParams};

    use super::*;

    /// The server ended at its start, and only a server that runs can delete the webhook.
    #[tokio::test]
    async fn regression_a_broken_webhook_does_not_keep_the_server_from_starting() {
        let server = Server::in_memory().await.unwrap();
        let client = Client::new(server.client_service(User::admin()), "default");
        let hooks = Api::<ValidatingWebhookConfiguration>::all(client.clone());
        let broken = json!({
            "metadata": {"name": "broken"},
            "webhooks": [{
                "name": "broken.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"service": {"namespace": "default", "name": "none"}},
                "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}],
            }],
        });
        let broken = serde_json::from_value(broken).unwrap();
        hooks.create(&PostParams::default(), &broken).await.unwrap();
        publish(&server, "a CA", None).await.unwrap();
        let bindings = Api::<ClusterRoleBinding>::all(client);
        assert!(bindings.get_opt(KUBELET_CLIENT).await.unwrap().is_none());
        let deleted = hooks.delete("broken", &DeleteParams::default()).await;
        assert!(deleted.is_ok());
        publish(&server, "a CA", None).await.unwrap();
        assert!(bindings.get_opt(KUBELET_CLIENT).await.unwrap().is_some());
    }
}
