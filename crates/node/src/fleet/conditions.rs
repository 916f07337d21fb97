//! The conditions of a fleet's nodes, which others change.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use allot_reflector::{Collection, Observed, reflect};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::error::api_message;
use crate::register::{Facts, conditions, differs};

/// Pause after a condition that could not be written.
const RETRY: Duration = Duration::from_secs(1);

/// Writes the conditions of nodes again that others have changed, until it is dropped. The node controller sets those of a node to
/// Unknown whose Lease was late, as after the suspension of the machine, and takes no Lease for the end of that.
pub(super) async fn keep(client: Client, nodes: HashSet<String>, facts: Facts) {
    let api = Api::<Node>::all(client);
    let reported = json!({"conditions": conditions(&facts, None)});
    // Names of nodes, at most all of the fleet.
    let (changed, news) = (Mutex::new(BTreeSet::new()), Notify::new());
    let note = |node: &Node| {
        let name = node.name_any();
        if nodes.contains(&name) && differs(node, &reported) {
            changed.lock().insert(name);
            news.notify_one();
        }
    };
    let fields = |of: &str, field: &str| {
        !matches!(
            (of, field),
            ("ObjectMeta", "managedFields") | ("NodeStatus", "images")
        )
    };
    let all = Collection::new(api.clone(), None);
    let watch = reflect::<Node, _>(all, fields, CancellationToken::new(), |observed| {
        match observed {
            Observed::Listed { items, .. } => items.iter().for_each(note),
            Observed::Applied(node) => note(&node),
            Observed::Deleted(_) => {}
        }
        true
    });
    let write = async {
        loop {
            // One that is refused each time must not keep the others waiting: it is tried again after all of them.
            let names = std::mem::take(&mut *changed.lock());
            if names.is_empty() {
                news.notified().await;
            }
            for name in names {
                if let Err(error) = restore(&api, &name, &facts).await {
                    let error = api_message(&error);
                    tracing::warn!(node = name, error, "conditions were not restored");
                    changed.lock().insert(name);
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    };
    tokio::select! {
        () = watch => {}
        () = write => {}
    }
}

async fn restore(api: &Api<Node>, name: &str, facts: &Facts) -> Result<(), kube::Error> {
    let Some(before) = api.get_opt(name).await? else {
        return Ok(());
    };
    let status = json!({"conditions": conditions(facts, Some(&before))});
    if !differs(&before, &status) {
        return Ok(());
    }
    let patch = Patch::Strategic(json!({"status": status}));
    let params = PatchParams::default();
    match api.patch_status(name, &params, &patch).await {
        // It is gone.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use allot_apiserver::Server;
    use allot_apiserver::identity::User;
    use allot_testing::wait::until;
    use kube::client::Body;
    use tokio_util::task::AbortOnDropHandle;
    use tower::Service as _;

    use super::*;
    use crate::config::Config;
    use crate::pressure::Pressed;
    use crate::register::register;
    use crate::runtime::Simulated;

    /// Registers nodes with a server.
    async fn register_all(client: &Client, names: &[&str]) -> Facts {
        let facts = Facts::of(&Simulated::default(), None, None, Pressed::default());
        for name in names {
            let registered = register(client, &Config::new(*name, "/"), &facts).await;
            registered.expect("registered");
        }
        facts
    }

    /// Sets the conditions of a node as the node controller does.
    async fn lose(nodes: &Api<Node>, name: &str) {
        let lost = json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"});
        let patch = Patch::Strategic(json!({"status": {"conditions": [lost]}}));
        let params = PatchParams::default();
        let patched = nodes.patch_status(name, &params, &patch);
        patched.await.expect("lost");
    }

    async fn becomes_ready(nodes: &Api<Node>, name: &str) {
        until("the node is ready", || async {
            let node = nodes.get(name).await.expect("a node");
            let is_ready = ready(&node) == Some("True");
            is_ready.then_some(()).ok_or(node.status)
        })
        .await;
    }

    fn ready(node: &Node) -> Option<&str> {
        let conditions = node.status.as_ref()?.conditions.as_ref()?;
        let found = conditions.iter().find(|it| it.type_ == "Ready")?;
        Some(&found.status)
    }

    /// A fleet renewed the Leases of its nodes alone: once taken for lost, they stayed so.
    #[tokio::test]
    async fn regression_nodes_of_a_fleet_that_were_taken_for_lost_become_ready() {
        let server = Server::in_memory().await.expect("a server");
        let client = Client::new(server.client_service(User::admin()), "default");
        let facts = register_all(&client, &["ours", "other"]).await;
        let nodes = Api::<Node>::all(client.clone());
        let names = HashSet::from(["ours".to_owned()]);
        let _keeper = AbortOnDropHandle::new(tokio::spawn(keep(client, names, facts)));
        // The second time it is watched.
        for name in ["other", "ours", "ours"] {
            lose(&nodes, name).await;
            if name == "ours" {
                becomes_ready(&nodes, name).await;
            }
        }
        let other = nodes.get("other").await.expect("a node");
        assert_eq!(ready(&other), Some("Unknown"), "it is not of the fleet");
    }

    /// The first node by name was tried again and again, as where a webhook refuses its status, and the others stayed lost.
    #[tokio::test]
    async fn regression_a_node_whose_status_is_refused_does_not_keep_the_others_lost() {
        let server = Server::in_memory().await.expect("a server");
        let service = server.client_service(User::admin());
        let client = Client::new(service.clone(), "default");
        let facts = register_all(&client, &["a", "b"]).await;
        let nodes = Api::<Node>::all(client);
        for name in ["a", "b"] {
            lose(&nodes, name).await;
        }
        let refusing = tower::service_fn(move |mut request: http::Request<Body>| {
            if request.method() == http::Method::PATCH && request.uri().path().contains("/a/") {
                // No such content is a patch.
                *request.body_mut() = Body::from(b"[]".to_vec());
            }
            service.clone().call(request)
        });
        let client = Client::new(refusing, "default");
        let names = HashSet::from(["a", "b"].map(str::to_owned));
        let _keeper = AbortOnDropHandle::new(tokio::spawn(keep(client, names, facts)));
        becomes_ready(&nodes, "b").await;
        let refused = nodes.get("a").await.expect("a node");
        assert_eq!(ready(&refused), Some("Unknown"));
    }
}
