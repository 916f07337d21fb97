//! What the driver installs: its kinds, the one that Multus reads, and the ResourceClass.

use std::time::Duration;

use allot_reflector::{Collection, Observed, everything, reflect};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::sync::CancellationToken;

use crate::DRIVER_NAME;

/// How many kinds it installs.
pub const KINDS: usize = 4;

const DEFINITION: &str = "CustomResourceDefinition";
/// Pause before what failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

const DEVICE_CLASS: &str = include_str!("../manifests/deviceclass.yaml");
/// The kind of the pools of addresses.
const POOLS: &str = include_str!("../manifests/spiderippools.yaml");
/// The other kinds, and the ResourceClass.
const MANIFESTS: &str = include_str!("../manifests/definitions.yaml");

/// Installs everything. Existing objects of these names are not changed: they may be newer.
///
/// # Errors
/// The API server does not answer, or refuses an object.
pub async fn install(client: &Client) -> Result<(), kube::Error> {
    for object in objects() {
        install_one(client, &object).await?;
    }
    Ok(())
}

/// Installs what the driver for `resource.k8s.io/v1` needs, likewise: the kind of the pools, and its DeviceClass.
///
/// # Errors
/// The API server does not answer, or refuses an object.
pub async fn install_v1(client: &Client) -> Result<(), kube::Error> {
    install_one(client, &read(POOLS)).await?;
    install_one(client, &read(DEVICE_CLASS)).await
}

async fn install_one(client: &Client, object: &DynamicObject) -> Result<(), kube::Error> {
    let Some(resource) = resource(object) else {
        return Ok(());
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let name = object.name_any();
    if api.get_opt(&name).await?.is_some() {
        return Ok(());
    }
    let params = PatchParams::apply(DRIVER_NAME);
    api.patch(&name, &params, &Patch::Apply(object)).await?;
    tracing::info!(kind = resource.kind, name, "installed");
    Ok(())
}

/// Installs deleted kinds again, until `shutdown`. The ResourceClass is not restored: without it there are no new
/// claims, which may be intended.
pub(crate) async fn keep(client: Client, shutdown: CancellationToken) {
    let kinds = objects()
        .into_iter()
        .filter(|o| o.types.as_ref().is_some_and(|t| t.kind == DEFINITION));
    let keep = kinds.map(|object| keep_one(client.clone(), object, shutdown.clone()));
    futures::future::join_all(keep).await;
}

async fn keep_one(client: Client, object: DynamicObject, shutdown: CancellationToken) {
    let Some(resource) = resource(&object) else {
        return;
    };
    let (sender, mut missing) = unbounded_channel();
    let one = format!("metadata.name={}", object.name_any());
    let all = Collection::new(
        Api::<DynamicObject>::all_with(client.clone(), &resource),
        Some(&one),
    );
    let watch = reflect::<DynamicObject, _>(all, everything, shutdown.clone(), move |seen| {
        let gone = match seen {
            Observed::Listed { items, .. } => items.is_empty(),
            Observed::Deleted(_) => true,
            Observed::Applied(_) => false,
        };
        !gone || sender.send(()).is_ok()
    });
    let install = async {
        while missing.recv().await.is_some() {
            while let Err(error) = install_one(&client, &object).await {
                tracing::warn!(name = object.name_any(), %error, "cannot be installed again");
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = tokio::time::sleep(TRY_AGAIN) => {}
                }
            }
        }
    };
    tokio::join!(watch, install);
}

fn resource(object: &DynamicObject) -> Option<ApiResource> {
    let kind = object.types.as_ref()?;
    let kind = GroupVersionKind::try_from(kind).ok()?;
    let plural = match kind.kind.as_str() {
        DEFINITION => "customresourcedefinitions",
        "DeviceClass" => "deviceclasses",
        _ => "resourceclasses",
    };
    Some(ApiResource::from_gvk_with_plural(&kind, plural))
}

/// The objects of the manifests.
fn objects() -> Vec<DynamicObject> {
    let others = MANIFESTS.split("\n---\n");
    std::iter::once(POOLS).chain(others).map(read).collect()
}

fn read(text: &str) -> DynamicObject {
    serde_saphyr::from_str(text).expect("a manifest of this crate")
}

#[cfg(test)]
mod tests {
    #[test]
    fn manifests_can_be_read() {
        let names: Vec<_> = super::objects()
            .into_iter()
            .filter_map(|object| object.metadata.name)
            .collect();
        assert_eq!(names.len(), super::KINDS + 1, "{names:?}");
        assert_eq!(names[super::KINDS], crate::DRIVER_NAME);
        let pools = super::read(super::POOLS).metadata.name;
        let expected = "spiderippools.spiderpool.spidernet.io";
        assert_eq!(pools.as_deref(), Some(expected));
        let class = super::read(super::DEVICE_CLASS);
        assert_eq!(class.metadata.name.as_deref(), Some(crate::v1::DRIVER_NAME));
    }
}
