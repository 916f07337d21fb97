//! Where the pods of the API server come from.

use allot_reflector::{Collection, Observed};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use tokio::sync::mpsc;

/// A change of the node's pods.
#[derive(Debug)]
pub(crate) enum PodEvent {
    /// A pod of the API server as it is now.
    Applied(Pod),
    /// It was deleted.
    Deleted(Pod),
    /// All pods of the API server were sent; the UIDs are those.
    Synced(Vec<String>),
    /// The static pods, all of them.
    Static(Vec<Pod>),
    /// The manifests cannot be read, so that static pods may run which are not known.
    Unreadable,
}

/// Watches the pods that a field selector selects, usually those of one node, with the ones to keep.
pub(crate) async fn source(
    client: Client,
    selector: String,
    keep: impl Fn(&Pod) -> bool,
    sender: mpsc::Sender<PodEvent>,
) {
    let api: Api<Pod> = Api::all(client.clone());
    let of = Collection::new(api, Some(&selector));
    let mut all = allot_reflector::observe::<Pod>(of);
    while let Some(observed) = all.next().await {
        let mut events = Vec::new();
        match observed {
            Observed::Listed { items, .. } => {
                let items: Vec<_> = items.into_iter().filter(&keep).collect();
                let uids = items.iter().map(|pod| pod.uid().unwrap_or_default());
                let synced = PodEvent::Synced(uids.collect());
                for pod in items {
                    events.push(PodEvent::Applied(complete(&client, pod).await));
                }
                events.push(synced);
            }
            Observed::Applied(pod) | Observed::Deleted(pod) if !keep(&pod) => {}
            Observed::Applied(pod) => {
                events.push(PodEvent::Applied(complete(&client, *pod).await));
            }
            Observed::Deleted(pod) => events.push(PodEvent::Deleted(*pod)),
        }
        for event in events {
            if sender.send(event).await.is_err() {
                return;
            }
        }
    }
}

/// A pod with the names of its claims. API servers up to 1.30 send them one level deeper than in the type, so that they
/// must be parsed again.
async fn complete(client: &Client, mut pod: Pod) -> Pod {
    let incomplete = |claim: &PodResourceClaim| {
        claim.resource_claim_name.is_none() && claim.resource_claim_template_name.is_none()
    };
    let claims = pod
        .spec
        .as_mut()
        .and_then(|spec| spec.resource_claims.as_mut());
    let Some(claims) = claims.filter(|claims| claims.iter().any(incomplete)) else {
        return pod;
    };
    let (namespace, name) = (
        pod.metadata.namespace.as_deref(),
        pod.metadata.name.as_deref(),
    );
    let kind = ApiResource::erase::<Pod>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace.unwrap_or_default(), &kind);
    match api.get(name.unwrap_or_default()).await {
        Ok(object) => {
            let entries = object.data["spec"]["resourceClaims"].as_array();
            for (claim, entry) in claims.iter_mut().zip(entries.into_iter().flatten()) {
                let text = |member: &str| entry["source"][member].as_str().map(str::to_owned);
                claim.resource_claim_name = text("resourceClaimName");
                claim.resource_claim_template_name = text("resourceClaimTemplateName");
            }
        }
        Err(error) => tracing::warn!(name, %error, "reading the claims of a pod"),
    }
    pod
}
