//! When a cluster is ready for its first pod.

use std::collections::BTreeSet;

use allot_node::REGISTERED_DRIVERS;
use anyhow::Context;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionCondition,
};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};

use super::children::Driver;

/// Waits until `nodes` nodes are ready and the driver, if there is one, can be used on as many.
pub(super) async fn wait(
    client: &Client,
    nodes: usize,
    driver: Option<&Driver>,
) -> anyhow::Result<()> {
    until(Api::<Node>::all(client.clone()), nodes, |node| {
        let ready = node
            .status
            .iter()
            .flat_map(|status| &status.conditions)
            .flatten();
        let mut ready = ready.filter(|condition| condition.type_ == "Ready");
        (ready.next()?.status == "True").then(|| node.metadata.name.clone())?
    })
    .await
    .context("waiting for the nodes")?;
    match driver {
        None => Ok(()),
        Some(Driver::Gpu) => until(Api::<ResourceSlice>::all(client.clone()), nodes, |slice| {
            slice.spec.node_name.clone()
        })
        .await
        .context("waiting for the driver's devices"),
        Some(Driver::Test { name, .. }) => registered(client, nodes, name).await,
        Some(Driver::Net) => {
            let kinds = Api::<CustomResourceDefinition>::all(client.clone());
            until(kinds, allot_driver_net::KINDS, |kind| {
                let mut conditions = kind.status.iter().flat_map(|s| &s.conditions).flatten();
                let established = |c: &CustomResourceDefinitionCondition| {
                    c.type_ == "Established" && c.status == "True"
                };
                conditions
                    .any(established)
                    .then(|| kind.metadata.name.clone())?
            })
            .await
            .context("waiting for the driver's kinds")?;
            registered(client, nodes, allot_driver_net::DRIVER_NAME).await
        }
    }
}

/// Waits until a driver is registered on as many nodes.
async fn registered(client: &Client, nodes: usize, driver: &str) -> anyhow::Result<()> {
    until(Api::<Node>::all(client.clone()), nodes, |node| {
        let annotations = node.metadata.annotations.as_ref()?;
        let drivers = annotations.get(REGISTERED_DRIVERS)?;
        let registered = drivers.split(',').any(|known| known == driver);
        registered.then(|| node.metadata.name.clone())?
    })
    .await
    .context("waiting for the driver to register")
}

/// Waits for the account that pods run as, without which the first ones would get no token.
pub(super) async fn wait_for_account(client: &Client) -> anyhow::Result<()> {
    let accounts = Api::<ServiceAccount>::default_namespaced(client.clone());
    let name = |account: &ServiceAccount| account.metadata.name.clone();
    until(accounts, 1, |account| {
        name(account).filter(|it| it == "default")
    })
    .await
    .context("waiting for the default service account")
}

/// Waits until objects with `count` different keys were seen.
async fn until<K>(
    api: Api<K>,
    count: usize,
    key: impl Fn(&K) -> Option<String>,
) -> anyhow::Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let mut seen = BTreeSet::new();
    let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default()));
    while seen.len() < count {
        match events.try_next().await? {
            Some(Event::Apply(object) | Event::InitApply(object)) => seen.extend(key(&object)),
            Some(_) => {}
            None => break,
        }
    }
    Ok(())
}
