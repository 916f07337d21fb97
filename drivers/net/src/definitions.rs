//! What the driver installs: its kinds, the one that Multus reads, and the ResourceClass.

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};

use crate::DRIVER_NAME;

/// How many kinds it installs.
pub const KINDS: usize = 4;

const MANIFESTS: &str = include_str!("../manifests/definitions.yaml");

/// Installs everything. What others have installed under these names stays as it is: it may be newer.
///
/// # Errors
/// The API server does not answer, or refuses an object.
pub async fn install(client: &Client) -> Result<(), kube::Error> {
    for object in objects() {
        let kind = object.types.as_ref();
        let kind = kind.and_then(|types| GroupVersionKind::try_from(types).ok());
        let Some(kind) = kind else { continue };
        let plural = match kind.kind.as_str() {
            "ResourceClass" => "resourceclasses",
            _ => "customresourcedefinitions",
        };
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let name = object.metadata.name.clone().unwrap_or_default();
        if api.get_opt(&name).await?.is_some() {
            continue;
        }
        let params = PatchParams::apply(DRIVER_NAME);
        api.patch(&name, &params, &Patch::Apply(&object)).await?;
        tracing::info!(kind = kind.kind, name, "installed");
    }
    Ok(())
}

/// The objects of the manifests.
fn objects() -> Vec<DynamicObject> {
    let documents = MANIFESTS.split("\n---\n");
    documents
        .map(|text| serde_saphyr::from_str(text).expect("a manifest of this crate"))
        .collect()
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
    }
}
