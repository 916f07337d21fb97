//! When a cluster is ready for its first pod.

use std::collections::BTreeSet;

use allot_node::REGISTERED_DRIVERS;
use allot_reflector::{Collection, Observed, observe};
use anyhow::Context;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};

use super::children::Driver;
use super::progress::Progress;

/// Waits until `nodes` nodes are ready and the driver, if there is one, can be used on as many.
pub(super) async fn wait(
    client: &Client,
    nodes: usize,
    driver: Option<&Driver>,
    progress: &Progress,
) -> anyhow::Result<()> {
    let wait = Wait { client, progress };
    wait.until::<Node>("nodes", nodes, |node| {
        has_condition(node, "Ready").then(|| node.metadata.name.clone())?
    })
    .await
    .context("waiting for the nodes")?;
    match driver {
        None => Ok(()),
        Some(Driver::Gpu(flags)) if flags.any() => wait_for_slices(client, nodes, progress).await,
        Some(Driver::Gpu(_)) => wait.registered(nodes, allot_driver_gpu::DRIVER_NAME).await,
        Some(Driver::Test { name, .. }) => wait.registered(nodes, name).await,
        Some(Driver::Interfaces) => {
            wait.registered(nodes, allot_driver_net::v1::DRIVER_NAME)
                .await
        }
        Some(Driver::Net) => {
            wait.until::<CustomResourceDefinition>("kinds", allot_driver_net::KINDS, |kind| {
                has_condition(kind, "Established").then(|| kind.metadata.name.clone())?
            })
            .await
            .context("waiting for the driver's kinds")?;
            wait.registered(nodes, allot_driver_net::DRIVER_NAME)
                .await?;
            wait.until::<Node>("nodes with interfaces", nodes, |node| {
                let annotations = node.metadata.annotations.as_ref()?;
                annotations.get(allot_driver_net::interfaces::ANNOTATION)?;
                node.metadata.name.clone()
            })
            .await
            .context("waiting for the interfaces of the nodes")
        }
    }
}

/// Waits until as many nodes have devices.
pub(super) async fn wait_for_slices(
    client: &Client,
    nodes: usize,
    progress: &Progress,
) -> anyhow::Result<()> {
    if nodes == 0 {
        return Ok(());
    }
    Wait { client, progress }
        .until::<ResourceSlice>("nodes with devices", nodes, |slice| {
            slice.data["spec"]["nodeName"].as_str().map(str::to_owned)
        })
        .await
        .context("waiting for the driver's devices")
}

/// Waits for objects, and shows how many exist.
struct Wait<'a> {
    client: &'a Client,
    progress: &'a Progress,
}

impl Wait<'_> {
    /// Waits until a driver is registered on as many nodes.
    async fn registered(&self, nodes: usize, driver: &str) -> anyhow::Result<()> {
        self.until::<Node>("nodes with the driver", nodes, |node| {
            let annotations = node.metadata.annotations.as_ref()?;
            let drivers = annotations.get(REGISTERED_DRIVERS)?;
            let registered = drivers.split(',').any(|known| known == driver);
            registered.then(|| node.metadata.name.clone())?
        })
        .await
        .context("waiting for the driver to register")
    }

    /// Waits until objects with `count` different keys were seen.
    async fn until<K>(
        &self,
        what: &str,
        count: usize,
        key: impl Fn(&DynamicObject) -> Option<String> + Send,
    ) -> anyhow::Result<()>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        self.until_seen(&ApiResource::erase::<K>(&()), what, count, &key)
            .await
    }

    async fn until_seen(
        &self,
        kind: &ApiResource,
        what: &str,
        count: usize,
        key: &(dyn Fn(&DynamicObject) -> Option<String> + Send),
    ) -> anyhow::Result<()> {
        let all = Api::<DynamicObject>::all_with(self.client.clone(), kind);
        let mut seen = BTreeSet::new();
        let mut events = observe::<DynamicObject>(Collection::new(all, None));
        while seen.len() < count {
            self.progress
                .step(&format!("starting: {} of {count} {what} ready", seen.len()));
            match events.next().await {
                Some(Observed::Listed { items, .. }) => seen.extend(items.iter().filter_map(key)),
                Some(Observed::Applied(object)) => seen.extend(key(&object)),
                Some(Observed::Deleted(_)) => {}
                None => break,
            }
        }
        Ok(())
    }
}

/// Waits for the account that pods run as, without which the first ones would get no token.
pub(super) async fn wait_for_account(client: &Client, progress: &Progress) -> anyhow::Result<()> {
    let wait = Wait { client, progress };
    wait.until::<ServiceAccount>("accounts", 1, |account| {
        let here = account.metadata.namespace.as_deref() == Some(client.default_namespace());
        let name = account.metadata.name.clone();
        name.filter(|name| here && name == "default")
    })
    .await
    .context("waiting for the default service account")
}

fn has_condition(object: &DynamicObject, name: &str) -> bool {
    let conditions = object.data["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == name && condition["status"] == "True")
}
