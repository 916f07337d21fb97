//! The scale of a workload: its replicas as one small object.

use allot_apimachinery::Status;
use allot_apimachinery::field::{Error, Path};
use allot_apimachinery::gvk::GroupKind;
use allot_apimachinery::labels::LabelSelector;
use serde_json::{Value, json};

use crate::custom::Scale;
use crate::error::{ApiError, Result};
use crate::object::{meta, metadata_mut};
use crate::registry::Resource;

/// The version in which scales are served.
pub(crate) const API_VERSION: &str = "autoscaling/v1";

/// The definition of the scale subresource of a custom kind; built-in kinds have it in fixed places.
pub(crate) fn declared<'a>(resource: &'a Resource, version: &str) -> Result<Option<&'a Scale>> {
    match &resource.custom {
        Some(custom) => custom
            .scale(version)
            .map(Some)
            .ok_or_else(ApiError::no_such_path),
        None => Ok(None),
    }
}

/// An object's replicas, as the request's endpoint shows them.
///
/// # Errors
/// 404 for an endpoint that is not there, 500 for an object without replicas.
pub(crate) fn of_object(resource: &Resource, version: &str, object: &Value) -> Result<Value> {
    read(resource, object, declared(resource, version)?)
}

/// An object with the replicas of a scale.
///
/// # Errors
/// 404 for an endpoint that is not there, 422 for replicas that there can not be.
pub(crate) fn with_replicas(
    resource: &Resource,
    version: &str,
    object: &Value,
    scale: &Value,
) -> Result<Value> {
    let mut changed = write(object, scale, declared(resource, version)?)?;
    // The request has said which version it is about.
    changed["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
    Ok(changed)
}

/// An object with the replicas of a scale, and with the version and UID that the scale is about.
///
/// # Errors
/// 422 for replicas that there can not be.
pub(crate) fn write(current: &Value, wanted: &Value, declared: Option<&Scale>) -> Result<Value> {
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    // Custom objects are validated with their replicas in place.
    if replicas < 0 && declared.is_none() {
        let path = Path::new("spec").child("replicas");
        let error = Error::invalid(&path, replicas, "must be greater than or equal to 0");
        return Err(Status::invalid(
            &GroupKind::new("autoscaling", "Scale"),
            meta(current, "name"),
            &vec![error],
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

/// The scale of an object, where the definition of its kind declares it or the built-in kinds have it.
///
/// # Errors
/// 500 for an object without replicas.
pub(crate) fn read(resource: &Resource, object: &Value, declared: Option<&Scale>) -> Result<Value> {
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
    let mut metadata = json!({});
    for key in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = object["metadata"].get(key) {
            metadata[key] = value.clone();
        }
    }
    let replicas = number("/spec/replicas");
    let mut scale = json!({
        "kind": "Scale", "apiVersion": API_VERSION, "metadata": metadata,
        "spec": {}, "status": {"replicas": number("/status/replicas")},
    });
    if replicas != 0 {
        scale["spec"]["replicas"] = replicas.into();
    }
    let selector = match &object["spec"]["selector"] {
        // A replication controller has a plain map.
        map if resource.is("", "replicationcontrollers") => json!({"matchLabels": map}),
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
