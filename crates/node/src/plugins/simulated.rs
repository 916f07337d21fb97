//! Simulated drivers of a simulated node: publishes their ResourceSlices, and applies the health of their devices that
//! a user sets.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use allot_client::{delete, discovery};
use allot_reflector::{Collection, Observed, everything, observe};
use futures::StreamExt as _;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{ListParams, ObjectMeta};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::Plugins;
use crate::config::HARDWARE;
use crate::error::api_message;

/// Label of a ResourceSlice with devices of simulated drivers that are unhealthy, and annotation with those devices: a JSON
/// object with a message for each.
pub const UNHEALTHY: &str = "allot.dev/unhealthy";

/// Delay before a retry.
const RETRY: Duration = Duration::from_secs(1);
/// How often that is.
const TRIES: usize = 30;

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// Creates slices. An existing slice of the same hardware is kept: its devices may have been set to failed.
pub(crate) async fn keep_slices(client: &Client, slices: &[Value]) {
    for slice in slices {
        keep_slice(client, slice).await;
    }
}

async fn keep_slice(client: &Client, slice: &Value) {
    let name = slice["metadata"]["name"].as_str().unwrap_or_default();
    for _ in 0..TRIES {
        match keep(client, slice).await {
            Ok(()) => return,
            // It will not be accepted later.
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 404 | 422) => {
                let error = status.message;
                tracing::warn!(slice = name, error, "slice was not created");
                return;
            }
            Err(error) => tracing::debug!(error = api_message(&error), "slice was not created yet"),
        }
        tokio::time::sleep(RETRY).await;
    }
    tracing::warn!(slice = name, "slice was not created: no more tries");
}

async fn keep(client: &Client, slice: &Value) -> Result<(), kube::Error> {
    let request = http::Request::post(SLICES)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(slice).map_err(kube::Error::SerdeError)?)
        .map_err(kube::Error::HttpError)?;
    match client.request::<IgnoredAny>(request).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        result => return result.map(drop),
    }
    let api: Api<PartialObjectMeta<ResourceSlice>> = Api::all(client.clone());
    let name = slice["metadata"]["name"].as_str().unwrap_or_default();
    let there = api.get_metadata(name).await?.metadata;
    let hardware = there
        .labels
        .as_ref()
        .and_then(|labels| labels.get(HARDWARE));
    let wanted = &slice["metadata"]["labels"][HARDWARE];
    if hardware.map(String::as_str) == wanted.as_str() {
        return Ok(());
    }
    // Of other hardware: driver and node are immutable, so it is created again.
    remove(&api, &there).await?;
    Err(kube::Error::Service(
        "another slice of this name was removed".into(),
    ))
}

/// Removes what a node had before: slices of hardware of an earlier run, and what the drivers of these slices published
/// before they were modelled. A pool with slices of both would never be complete.
pub(crate) async fn remove_other_slices(client: &Client, node: &str, slices: &[Value]) {
    let names = slices.iter().filter_map(|s| s["metadata"]["name"].as_str());
    let kept: BTreeSet<&str> = names.collect();
    let keep = |name: &str| kept.contains(name);
    let selector = format!("spec.nodeName={node}");
    remove_slices_unless(client, Some(&selector), keep).await;
    let drivers = slices.iter().filter_map(|s| s["spec"]["driver"].as_str());
    for driver in drivers.collect::<BTreeSet<_>>() {
        let selector = format!("spec.driver={driver},spec.nodeName={node}");
        remove_listed(client, &ListParams::default().fields(&selector), keep).await;
    }
}

/// The same for a fleet that shares an agent: slices that drivers published for its nodes before these drivers were modelled.
/// One list for each driver, which is empty nearly always.
pub(crate) async fn remove_slices_of_real_drivers(
    client: &Client,
    drivers: &BTreeSet<String>,
    nodes: &HashSet<String>,
) {
    for driver in drivers {
        let selector = format!("spec.driver={driver}");
        let params = ListParams::default()
            .fields(&selector)
            .labels(&format!("!{HARDWARE}"));
        for _ in 0..TRIES {
            match try_remove_of(client, &params, nodes).await {
                Ok(()) => break,
                // A cluster without DRA has no slices.
                Err(kube::Error::Api(status)) if status.code == 404 => return,
                Err(error) => {
                    let error = api_message(&error);
                    tracing::warn!(driver, error, "slices of a real driver were not removed");
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

async fn try_remove_of(
    client: &Client,
    params: &ListParams,
    nodes: &HashSet<String>,
) -> Result<(), kube::Error> {
    let api: Api<ResourceSlice> = Api::all(client.clone());
    for slice in allot_reflector::list(&api, params, everything).await? {
        let of_fleet = slice
            .spec
            .node_name
            .is_some_and(|node| nodes.contains(&node));
        if of_fleet {
            remove(&api, &slice.metadata).await?;
        }
    }
    Ok(())
}

/// Removes the slice that was seen. Another one that has its name meanwhile is a conflict, after which it is looked at.
async fn remove<K>(api: &Api<K>, seen: &ObjectMeta) -> Result<(), kube::Error>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let params = delete::by_uid(seen.uid.clone());
    let name = seen.name.as_deref().unwrap_or_default();
    match api.delete(name, &params).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(drop),
    }
}

/// Removes slices of hardware that nodes had in an earlier run. `selector` is a field selector.
pub(crate) async fn remove_slices_unless(
    client: &Client,
    selector: Option<&str>,
    keep: impl Fn(&str) -> bool,
) {
    let mut params = ListParams::default().labels(HARDWARE);
    params.field_selector = selector.map(str::to_owned);
    remove_listed(client, &params, keep).await;
}

async fn remove_listed(client: &Client, params: &ListParams, keep: impl Fn(&str) -> bool) {
    for _ in 0..TRIES {
        match try_remove(client, params, &keep).await {
            Ok(()) => return,
            // A cluster without DRA has no slices.
            Err(kube::Error::Api(status)) if status.code == 404 => return,
            Err(error) => {
                let error = api_message(&error);
                tracing::warn!(error, "slices of earlier hardware were not removed");
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn try_remove(
    client: &Client,
    params: &ListParams,
    keep: &impl Fn(&str) -> bool,
) -> Result<(), kube::Error> {
    let api: Api<ResourceSlice> = Api::all(client.clone());
    for slice in allot_reflector::list(&api, params, everything).await? {
        let name = slice.metadata.name.as_deref();
        if name.is_some_and(|name| !keep(name)) {
            remove(&api, &slice.metadata).await?;
        }
    }
    Ok(())
}

/// Follows the annotations [`UNHEALTHY`] until dropped. `selector` is a field selector.
pub(crate) async fn follow_health(client: Client, selector: Option<String>, plugins: Arc<Plugins>) {
    let api: Api<ResourceSlice> = Api::all(client.clone());
    loop {
        // A cluster without DRA has nothing to watch, until its release changes.
        match discovery::resources(&client, "resource.k8s.io/v1").await {
            Ok(_) => break,
            Err(kube::Error::Api(status)) if status.code == 404 => {
                return std::future::pending().await;
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
    let slices = Collection::new(api, selector.as_deref());
    let mut events = observe::<ResourceSlice>(slices.labels(UNHEALTHY));
    // The annotated health by slice: driver, pool and devices.
    let mut said: BTreeMap<String, ReportedHealth> = BTreeMap::new();
    while let Some(observed) = events.next().await {
        match observed {
            Observed::Listed { items, .. } => {
                let listed = items.into_iter().map(unhealthy).collect();
                let before = std::mem::replace(&mut said, listed);
                update_health(&plugins, &said, before.values().chain(said.values()));
            }
            Observed::Applied(slice) => {
                let (name, what) = unhealthy(*slice);
                said.insert(name, what.clone());
                update_health(&plugins, &said, [&what]);
            }
            Observed::Deleted(slice) => {
                let (name, what) = unhealthy(*slice);
                said.remove(&name);
                update_health(&plugins, &said, [&what]);
            }
        }
    }
}

type ReportedHealth = (String, String, BTreeMap<String, String>);

/// Updates the health of the named pools from all their slices.
fn update_health<'a>(
    plugins: &Plugins,
    said: &BTreeMap<String, ReportedHealth>,
    pools: impl IntoIterator<Item = &'a ReportedHealth>,
) {
    for (driver, pool, _) in pools {
        let same = said.values().filter(|(d, p, _)| d == driver && p == pool);
        let devices = same.flat_map(|(_, _, devices)| devices.clone()).collect();
        plugins.health.set(driver, pool, devices);
    }
}

fn unhealthy(slice: ResourceSlice) -> (String, ReportedHealth) {
    let annotations = slice.metadata.annotations.unwrap_or_default();
    let devices = annotations.get(UNHEALTHY).map(String::as_str);
    // An annotation that cannot be parsed is ignored.
    let devices = serde_json::from_str(devices.unwrap_or_default()).unwrap_or_default();
    let name = slice.metadata.name.unwrap_or_default();
    (name, (slice.spec.driver, slice.spec.pool.name, devices))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Method, Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

    /// Slices were removed by name: also one that a driver had published under that name since it was looked at.
    #[tokio::test]
    async fn regression_only_the_slices_that_were_seen_are_removed() {
        let deleted = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&deleted);
        let service = tower::service_fn(move |request: Request<Body>| {
            let seen = Arc::clone(&seen);
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.expect("a body").to_bytes();
                let slice = json!({
                    "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
                    "metadata": {"name": "s", "uid": "u"},
                    "spec": {"driver": "d", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}},
                });
                let (code, answer): (u16, Value) = match (&head.method, head.uri.path()) {
                    (&Method::DELETE, _) => {
                        let options: Value = serde_json::from_slice(&body).expect("JSON");
                        seen.lock().push(options["preconditions"]["uid"].clone());
                        (200, slice)
                    }
                    (&Method::POST, _) => (
                        409,
                        json!({"kind": "Status", "status": "Failure", "code": 409}),
                    ),
                    (_, SLICES) => (
                        200,
                        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "metadata": {}, "items": [slice]}),
                    ),
                    _ => (200, slice),
                };
                let body = Body::from(answer.to_string().into_bytes());
                let response = Response::builder().status(code).body(body);
                Ok::<_, Infallible>(response.expect("a response"))
            }
        });
        let client = Client::new(service, "default");
        let other = json!({"metadata": {"name": "s", "labels": {HARDWARE: "model"}}});
        assert!(keep(&client, &other).await.is_err(), "it is created again");
        let all = ListParams::default();
        let nodes = HashSet::from(["n".to_owned()]);
        try_remove_of(&client, &all, &nodes).await.expect("removed");
        try_remove(&client, &all, &|_: &str| false)
            .await
            .expect("removed");
        assert_eq!(*deleted.lock(), ["u", "u", "u"]);
    }
}
