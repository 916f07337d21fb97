//! The scale subresource: the replicas of a workload as a `Scale` object.

use allot_apimachinery::Status;
use allot_apimachinery::field::{Error, Path};
use allot_apimachinery::gvk::GroupKind;
use allot_apimachinery::labels::LabelSelector;
use serde_json::{Value, json};

use crate::custom::Scale;
use crate::error::{ApiError, Result};
use crate::object::{meta, metadata_mut, scale_metadata};
use crate::registry::Resource;

/// The API version of `Scale` objects.
pub const API_VERSION: &str = "autoscaling/v1";

/// The scale subresource definition of a custom resource; built-in kinds have fixed field paths.
pub fn declared<'a>(resource: &'a Resource, version: &str) -> Result<Option<&'a Scale>> {
    match &resource.custom {
        Some(custom) => custom
            .scale(version)
            .map(Some)
            .ok_or_else(ApiError::no_such_path),
        None => Ok(None),
    }
}

/// The `Scale` of an object in the requested version.
///
/// # Errors
/// 404 if the version has no scale subresource, 500 if the object has no replicas.
pub fn of_object(resource: &Resource, version: &str, object: &Value) -> Result<Value> {
    read(resource, object, declared(resource, version)?)
}

/// An object with the replicas of a `Scale`.
///
/// # Errors
/// 404 if the version has no scale subresource, 422 if the number of replicas is invalid.
pub fn with_replicas(
    resource: &Resource,
    version: &str,
    object: &Value,
    scale: &Value,
) -> Result<Value> {
    let mut changed = write(object, scale, declared(resource, version)?)?;
    // The resourceVersion of the request has already been checked.
    changed["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
    Ok(changed)
}

/// An object with the replicas of a `Scale`, and with the resourceVersion and UID that the `Scale` contains.
///
/// # Errors
/// 422 if the number of replicas is invalid.
pub fn write(current: &Value, wanted: &Value, declared: Option<&Scale>) -> Result<Value> {
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    // The replicas of custom objects are validated with the whole object.
    if replicas < 0 && declared.is_none() {
        let path = Path::new("spec").child("replicas");
        let error = Error::invalid(&path, replicas, "must be greater than or equal to 0");
        return Err(Status::invalid(
            &GroupKind::new("autoscaling", "Scale"),
            meta(current, "name"),
            &[error].into(),
        )
        .into());
    }
    let mut object = current.clone();
    match declared {
        Some(scale) => scale.write(&mut object, replicas),
        None => object["spec"]["replicas"] = replicas.into(),
    }
    let version = wanted["metadata"]["resourceVersion"].clone();
    metadata_mut(&mut object).insert("resourceVersion".to_owned(), version);
    let uid = &wanted["metadata"]["uid"];
    if uid.is_string() {
        object["metadata"]["uid"] = uid.clone();
    }
    Ok(object)
}

/// The `Scale` of an object, read from the paths in the CRD or from the fixed paths of built-in kinds.
///
/// # Errors
/// 500 if the object has no replicas.
pub fn read(resource: &Resource, object: &Value, declared: Option<&Scale>) -> Result<Value> {
    if let Some(scale) = declared {
        let missing = || {
            let path = scale.replicas_path();
            ApiError::from(Status::internal(&format!(
                "the spec replicas field {path:?} does not exist"
            )))
        };
        return scale.read(object).ok_or_else(missing);
    }
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let replicas = number("/spec/replicas");
    let mut scale = json!({
        "kind": "Scale", "apiVersion": API_VERSION, "metadata": scale_metadata(object),
        "spec": {}, "status": {"replicas": number("/status/replicas")},
    });
    if replicas != 0 {
        scale["spec"]["replicas"] = replicas.into();
    }
    let selector = match &object["spec"]["selector"] {
        map if resource.rules.plain_selector => json!({"matchLabels": map}),
        selector => selector.clone(),
    };
    let selector = LabelSelector::from_json(&selector)
        .and_then(|it| it.to_selector())
        .map_or_else(|_| String::new(), |it| it.to_string());
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    Ok(scale)
}
