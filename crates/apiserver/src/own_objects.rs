//! Objects that the server makes without a request, with the owners of their fields.

use allot_store::{Backend, Draft, Entry};
use serde_json::{Value, json};

use crate::error::Result;
use crate::managed::Known;
use crate::object::{self, metadata_mut};
use crate::registry::Registry;
use crate::{builtin, managed, storage, versions};

/// Creates an object, whose fields `manager` owns, unless its key exists.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn ensure(
    backend: &dyn Backend,
    collection: impl Into<String>,
    key: impl Into<String>,
    mut object: Value,
    manager: &str,
) -> Result<()> {
    let (collection, key) = (collection.into(), key.into());
    if backend.get(&collection, &key).await?.is_some() {
        return Ok(());
    }
    own_made(&collection, manager, &mut object);
    storage::ensure(backend, collection, key, object).await
}

/// The name under which the server's own requests own fields.
pub(crate) const SERVER: &str = "kube-apiserver";

/// The stored form of an object whose status this server has changed, with the server as the owner of the changed fields.
///
/// # Errors
/// The stored object cannot be read.
pub(crate) fn status_draft(
    registry: &Registry,
    group: &str,
    plural: &str,
    entry: &Entry,
    new: &Value,
) -> Result<Draft> {
    let Some(resource) = registry.get(group, plural) else {
        return Ok(storage::draft(new));
    };
    let old = versions::load(resource, &entry.value)?;
    let mut new = new.clone();
    versions::set_type(&mut new, resource, &resource.storage_version);
    metadata_mut(&mut new).remove("managedFields");
    let (version, known) = (resource.storage_version.as_str(), Known::default());
    let owners = managed::with_manager(resource, version, "status", &known, |fields, _| {
        fields.update(&old.object, &old.owners, &mut new, SERVER)
    });
    Ok(storage::draft_owned(&new, &owners))
}

/// Writes into a new object that the server makes without a request which fields `manager` owns: those that its request
/// would have had. What strategies and controllers fill in belongs to no manager.
fn own_made(collection: &str, manager: &str, object: &mut Value) {
    let (group, plural) = collection.rsplit_once('/').unwrap_or(("", collection));
    let Some(kind) = builtin::find(group, plural) else {
        return;
    };
    let api_version = match group {
        "" => "v1".to_owned(),
        group => format!("{group}/v1"),
    };
    let metadata = metadata_mut(object);
    // What a controller has applied to the status comes first, as applies do.
    let mut all = match metadata.remove("managedFields") {
        Some(Value::Array(applied)) => applied,
        _ => Vec::new(),
    };
    let mut sent = object.clone();
    let filled_in = FILLED_IN.iter();
    for (_, path) in filled_in.filter(|(of, _)| of.is_none_or(|it| it == plural)) {
        remove(&mut sent, path);
    }
    if !sent["aggregationRule"].is_null() {
        // A controller collects them.
        remove(&mut sent, &["rules"]);
    }
    sent["apiVersion"] = api_version.as_str().into();
    sent["kind"] = kind.kind.into();
    managed::own_answered(&api_version, kind.kind, "", manager, &mut sent);
    if let Value::Array(mut entries) = sent["metadata"]["managedFields"].take() {
        all.append(&mut entries);
    }
    if !all.is_empty() {
        metadata_mut(object).insert("managedFields".to_owned(), all.into());
    }
}

/// Removes a field.
fn remove(object: &mut Value, path: &[&str]) {
    let mut object = object.as_object_mut();
    for (index, key) in path.iter().enumerate() {
        let Some(fields) = object else { return };
        if index + 1 == path.len() {
            fields.remove(*key);
            return;
        }
        object = fields.get_mut(*key).and_then(Value::as_object_mut);
    }
}

/// The fields, of all resources or of one, that strategies fill in.
const FILLED_IN: [(Option<&str>, &[&str]); 4] = [
    (None, &["status"]),
    (Some("namespaces"), &["spec", "finalizers"]),
    (Some("services"), &["spec", "clusterIPs"]),
    (Some("services"), &["spec", "ipFamilies"]),
];

/// The entry of a controller that has applied a condition of this type, with these fields, to the status of an object.
pub(crate) fn applied_condition(
    api_version: &str,
    manager: &str,
    kind: &str,
    fields: &[&str],
) -> Value {
    let mut of_condition = json!({".": {}});
    for field in fields {
        of_condition[format!("f:{field}")] = json!({});
    }
    let key = format!("k:{}", json!({"type": kind}));
    json!({
        "manager": manager, "operation": "Apply", "apiVersion": api_version, "time": object::now(),
        "fieldsType": "FieldsV1", "subresource": "status",
        "fieldsV1": {"f:status": {"f:conditions": {key: of_condition}}},
    })
}
