//! The heartbeat of a node: its Lease, and its status when that changes.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::conditions::conditions;
use super::{Machine, status};
use crate::config::Config;
use crate::error::api_message;
use crate::images::Images;
use crate::runtime::Condition;

/// Namespace of the Leases of nodes.
pub(crate) const LEASES: &str = "kube-node-lease";

/// Renews the Lease as long as the process lives. Writes the whole status every five minutes, and at once if the API
/// server has a different one: a process that was suspended finds its node marked as lost, and only its status corrects
/// that.
pub(crate) async fn heartbeat(
    client: Client,
    config: Config,
    mut machine: Machine,
    images: Option<Arc<Images>>,
    node: Node,
) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    let nodes: Api<Node> = Api::all(client);
    let mut ticks = tokio::time::interval(config.heartbeat);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let full = (300.0 / config.heartbeat.as_secs_f64()).ceil() as u64;
    let mut due = false;
    for tick in 0u64.. {
        tokio::select! {
            _ = ticks.tick() => {}
            // A change of readiness or of pressure is reported at once.
            () = changed(&mut machine.condition) => due = true,
            Ok(()) = machine.pressed.changed() => due = true,
        }
        let facts = machine.facts();
        let uid = node.metadata.uid.as_deref().unwrap_or_default();
        if let Err(error) = renew(&leases, &config.node_name, uid, config.heartbeat).await {
            let error = api_message(&error);
            tracing::warn!(node = config.node_name, error, "lease was not renewed");
        }
        due |= tick % full.max(1) == full.max(1) - 1;
        let before = match nodes.get(&config.node_name).await {
            Ok(before) => before,
            Err(error) => {
                let error = api_message(&error);
                tracing::debug!(node = config.node_name, error, "node was not read");
                continue;
            }
        };
        let reported = json!({"conditions": conditions(&facts, Some(&before))});
        let images = match &images {
            Some(images) => images.reported().await,
            None => None,
        };
        let other = images
            .as_ref()
            .is_some_and(|images| has_other_images(&before, images));
        if due || other || differs(&before, &reported) {
            due = false;
            let mut status = status(&config, &facts, Some(&before));
            if let Some(images) = images {
                status["images"] = images;
            }
            let patch = json!({"status": status});
            let params = PatchParams::default();
            if let Err(error) = nodes
                .patch_status(&config.node_name, &params, &Patch::Strategic(patch))
                .await
            {
                let error = api_message(&error);
                tracing::warn!(
                    node = config.node_name,
                    error,
                    "node status was not updated"
                );
            }
        }
    }
}

/// The runtime or the network of the pods is another than it was; never for simulated nodes.
async fn changed(condition: &mut Option<watch::Receiver<Condition>>) {
    let news = match condition {
        Some(condition) => condition.changed().await,
        None => std::future::pending().await,
    };
    if news.is_err() {
        std::future::pending().await
    }
}

/// The images in the API are not those of the node.
fn has_other_images(before: &Node, images: &Value) -> bool {
    let status = before.status.as_ref();
    let known = status.and_then(|status| status.images.as_deref());
    serde_json::to_value(known.unwrap_or_default()).is_ok_and(|known| known != *images)
}

/// A condition that the agent reports is another one in the API.
pub(crate) fn differs(before: &Node, status: &Value) -> bool {
    let before = before.status.as_ref();
    let known = before.and_then(|status| status.conditions.as_deref());
    let known = known.unwrap_or_default();
    let mut reported = status["conditions"].as_array().into_iter().flatten();
    reported.any(|condition| {
        let same = |key: &str, value: &str| condition[key].as_str().unwrap_or_default() == value;
        !known.iter().any(|it| {
            same("type", &it.type_)
                && same("status", &it.status)
                && same("reason", it.reason.as_deref().unwrap_or_default())
        })
    })
}

/// Renews the Lease of a node, which lasts four times as long as it may take until the next time.
pub(crate) async fn renew(
    leases: &Api<Lease>,
    name: &str,
    uid: &str,
    every: std::time::Duration,
) -> Result<(), kube::Error> {
    let now = MicroTime(Timestamp::now());
    let patch = json!({"spec": {"renewTime": now, "holderIdentity": name}});
    match leases
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        result => return result.map(drop),
    }
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(LEASES.into()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: name.to_owned(),
                uid: uid.to_owned(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.to_owned()),
            lease_duration_seconds: Some(every.as_secs() as i32 * 4),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    };
    leases
        .create(&PostParams::default(), &lease)
        .await
        .map(drop)
}
