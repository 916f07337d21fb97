//! Objects of any kind, reduced to their metadata.

use allot_reflector::{Keep, Readable, parse};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::core::ObjectMeta;
use serde::{Deserialize, Deserializer};

/// An object reduced to its metadata, and that to the fields of [`Kept`].
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct MetaObject {
    #[serde(default, deserialize_with = "kept")]
    pub metadata: ObjectMeta,
}

/// The metadata that is read. The rest makes up most of it, and what its authors write there must not keep an object, or a list
/// of all in a namespace, from being read.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Kept {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

impl Kept {
    fn of(metadata: &ObjectMeta) -> Self {
        Self {
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
            generation: metadata.generation,
            creation_timestamp: metadata.creation_timestamp.clone(),
            deletion_timestamp: metadata.deletion_timestamp.clone(),
            finalizers: metadata.finalizers.clone(),
            owner_references: metadata.owner_references.clone(),
        }
    }
}

impl From<Kept> for ObjectMeta {
    fn from(kept: Kept) -> Self {
        Self {
            name: kept.name,
            namespace: kept.namespace,
            uid: kept.uid,
            resource_version: kept.resource_version,
            generation: kept.generation,
            creation_timestamp: kept.creation_timestamp,
            deletion_timestamp: kept.deletion_timestamp,
            finalizers: kept.finalizers,
            owner_references: kept.owner_references,
            ..Self::default()
        }
    }
}

fn kept<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    Kept::deserialize(deserializer).map(ObjectMeta::from)
}

impl Readable for MetaObject {
    fn read(text: &str, keep: Keep) -> serde_json::Result<Self> {
        parse(text, keep)
    }
}

impl MetaObject {
    /// An object with this metadata.
    pub(super) fn new(metadata: &ObjectMeta) -> Self {
        Self {
            metadata: Kept::of(metadata).into(),
        }
    }
}

crate::controller::resource::dynamic!([] MetaObject, metadata);

#[cfg(test)]
mod tests {
    use kube::core::ObjectList;
    use serde_json::json;

    use super::*;
    use crate::controller::meta;

    /// The attack: owners of fields that cannot be read. The list of the namespace failed, and it was never empty.
    #[test]
    fn regression_unreadable_owners_of_fields_keep_no_namespace() {
        let deep = (0..120).fold(json!({}), |below, _| json!({"f:a": below}));
        let owner = json!({"time": "9999-12-31T23:59:59Z", "fieldsV1": deep});
        let object = json!({"metadata": {"name": "a", "uid": "u", "managedFields": [owner]}});
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [object]});
        let list: ObjectList<MetaObject> = serde_json::from_str(&list.to_string()).unwrap();
        assert_eq!(meta::name(&list.items[0]), "a");
    }
}
