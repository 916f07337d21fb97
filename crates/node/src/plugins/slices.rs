//! Removes the ResourceSlices of drivers that no longer run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use tokio::time::Instant;

use super::Plugins;

/// Deletes all slices of the node: drivers that ran here before must register and publish again.
pub(crate) async fn clean_at_start(client: &Client, node: &str) {
    delete(client, format!("spec.nodeName={node}")).await;
}

/// Deletes the slices of a driver once it has been away for `grace`.
pub(crate) async fn clean_when_gone(
    client: Client,
    node: String,
    plugins: Arc<Plugins>,
    grace: Duration,
) {
    let mut seen: Vec<String> = Vec::new();
    let mut due: BTreeMap<String, Instant> = BTreeMap::new();
    loop {
        let changed = plugins.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let connected = plugins.connected();
        for driver in &connected {
            due.remove(driver);
            if !seen.contains(driver) {
                seen.push(driver.clone());
            }
        }
        for driver in seen.iter().filter(|driver| !connected.contains(driver)) {
            // A timer that runs is not extended.
            due.entry(driver.clone())
                .or_insert_with(|| Instant::now() + grace);
        }
        let next = due.values().min().copied();
        tokio::select! {
            () = changed => continue,
            () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
        let now = Instant::now();
        let late: Vec<String> = due
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(driver, _)| driver.clone())
            .collect();
        for driver in late {
            tracing::info!(driver, "driver is gone, deleting its slices");
            delete(
                &client,
                format!("spec.driver={driver},spec.nodeName={node}"),
            )
            .await;
            due.remove(&driver);
            seen.retain(|other| *other != driver);
        }
    }
}

/// Node annotation with the names of the connected drivers, comma-separated; a controller that manages slices of dead
/// drivers reads it.
pub const REGISTERED_DRIVERS: &str = "allot.dev/registered-drivers";

/// In [`REGISTERED_DRIVERS`] of a simulated node: every driver that never registered there, whose claims the node
/// prepares itself. The name of a driver that disconnected follows an exclamation mark.
pub const ANY_OTHER: &str = "*";

/// The value of [`REGISTERED_DRIVERS`].
fn registered(plugins: &Plugins, simulated: bool) -> String {
    let mut drivers = plugins.connected();
    if simulated {
        let gone = plugins.seen();
        let gone = gone.iter().filter(|driver| !drivers.contains(driver));
        let gone: Vec<_> = gone.map(|driver| format!("!{driver}")).collect();
        drivers.extend(gone);
        drivers.push(ANY_OTHER.to_owned());
    }
    drivers.join(",")
}

/// Keeps [`REGISTERED_DRIVERS`] up to date.
pub(crate) async fn announce(client: Client, node: String, plugins: Arc<Plugins>, simulated: bool) {
    let api: Api<kube::core::PartialObjectMeta<Node>> = Api::all(client);
    let mut told: Option<String> = None;
    loop {
        let changed = plugins.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let drivers = registered(&plugins, simulated);
        let mut again = false;
        if told.as_ref() != Some(&drivers) {
            let patch =
                serde_json::json!({"metadata": {"annotations": {REGISTERED_DRIVERS: drivers}}});
            match api
                .patch(&node, &PatchParams::default(), &Patch::Merge(patch))
                .await
            {
                Ok(_) => told = Some(drivers),
                Err(error) => {
                    let error = crate::error::api_message(&error);
                    tracing::warn!(node, error, "registered drivers were not announced");
                    again = true;
                }
            }
        }
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep(Duration::from_secs(1)), if again => {}
        }
    }
}

/// A node is not registered before its old slices are deleted: it must not stay idle for long when the API server is
/// back.
const LONGEST_DELAY: Duration = Duration::from_secs(10);

async fn delete(client: &Client, selector: String) {
    let api: Api<kube::core::PartialObjectMeta<ResourceSlice>> = Api::all(client.clone());
    let mut delay = Duration::from_secs(1);
    for _ in 0..100 {
        let params = ListParams::default().fields(&selector);
        match api
            .delete_collection(&DeleteParams::default(), &params)
            .await
        {
            Ok(_) => return,
            // A cluster without DRA has no slices.
            Err(kube::Error::Api(status)) if status.code == 404 => return,
            Err(error) => {
                let error = crate::error::api_message(&error);
                tracing::warn!(selector, error, "slices were not deleted");
            }
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(LONGEST_DELAY);
    }
}
