//! `scale`: the replicas of a workload as one small object.

use allot_apimachinery::Status;
use allot_apimachinery::field::{Error, Path};
use allot_apimachinery::gvk::{GroupKind, GroupResource};
use allot_apimachinery::labels::LabelSelector;
use allot_schema::apply::Managed;
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use crate::body::Body;
use crate::custom::Scale;
use crate::encode::value_response;
use crate::error::{ApiError, Result};
use crate::negotiate::Shape;
use crate::object::{meta, metadata_mut, split_api_version};
use crate::rest::create::Stored;
use crate::rest::patch::Patch;
use crate::rest::{Call, patch};
use crate::strategy::Part;
use crate::{managed, versions};

const API_VERSION: &str = "autoscaling/v1";

/// The definition of the scale subresource of a custom kind; built-in kinds have it in fixed places.
fn declared<'a>(call: &'a Call<'_>) -> Result<Option<&'a Scale>> {
    match &call.resource.custom {
        Some(custom) => custom
            .scale(&call.version)
            .map(Some)
            .ok_or_else(ApiError::no_such_path),
        None => Ok(None),
    }
}

pub(super) async fn answer(call: Call<'_>, body: Bytes) -> Result<Response<Body>> {
    let declared = declared(&call)?;
    let stored = match call.request.info.verb.as_str() {
        "get" => {
            let entry = call
                .core
                .backend
                .get(&call.resource.collection, &call.key())
                .await?;
            Stored::Entry(entry.ok_or_else(|| call.not_found())?)
        }
        "update" => {
            let mut wanted = call.object_of(&body, API_VERSION, "Scale")?;
            call.check_namespace(&mut wanted)?;
            call.check_name(&wanted)?;
            call.modify(Part::Main, |current| scaled(current, &wanted, declared))
                .await?
        }
        _ => {
            let schema = allot_schema::types::lookup("autoscaling", "v1", "Scale");
            let patch = patch::parse(&call, &body)?.patch;
            call.modify_owned(Part::Main, |current, owners| {
                if let Patch::Apply { config, force } = &patch {
                    let applied = applied(&call, config, *force, declared, (current, owners))?;
                    return Ok((applied.0, Some(applied.1)));
                }
                let scale = scale_of(&call, current, declared)?;
                let mut wanted = patch::apply_plain(&patch, &scale, schema)?;
                call.check_name(&wanted)?;
                call.check_namespace(&mut wanted)?;
                if declared.is_none() {
                    check_uid(&call, current, &wanted)?;
                } else if let Some(metadata) = wanted["metadata"].as_object_mut() {
                    // Upstream compares it for built-in kinds alone.
                    metadata.remove("uid");
                }
                Ok((scaled(current, &wanted, declared)?, None))
            })
            .await?
        }
    };
    let object = match stored {
        Stored::Entry(entry) => {
            let entry = call.converted(entry).await?;
            call.view().object(&entry)?
        }
        Stored::Value(object) => versions::convert(&call.resource, object, &call.version)?,
    };
    let scale = scale_of(&call, &object, declared)?;
    let shown = match call.media.shape {
        Shape::Whole => scale,
        shape if shape.is_metadata() => crate::encode::metadata_only(scale, shape),
        shape => crate::table::scale(scale, shape, call.table_options()),
    };
    Ok(value_response(200, &shown, call.media))
}

/// The object whose replicas an apply sets: the fields of the scale are owned in the object.
fn applied(
    call: &Call<'_>,
    config: &Value,
    force: bool,
    declared: Option<&Scale>,
    (current, owners): (&Value, &Managed),
) -> Result<(Value, Managed)> {
    let kind = |key: &str| config[key].as_str().unwrap_or_default();
    if (kind("apiVersion"), kind("kind")) != (API_VERSION, "Scale") {
        let (group, version) = split_api_version(kind("apiVersion"));
        let found = format!("{group}/{version}, Kind={}", kind("kind"));
        return Err(ApiError::bad_request(format!(
            "invalid object type: {found}"
        )));
    }
    call.check_name(config)?;
    // A value that is invalid for the object is invalid in an apply, too.
    scaled(current, config, declared)?;
    let mut part = json!({
        "apiVersion": call.resource.api_version(&call.version), "kind": call.resource.kind,
        "metadata": {"name": call.name()}, "spec": {},
    });
    if let Some(replicas) = config["spec"]["replicas"].as_i64() {
        match declared {
            Some(scale) => scale.write(&mut part, replicas),
            None => part["spec"]["replicas"] = replicas.into(),
        }
    }
    let subresource = call.request.info.subresource.as_str();
    let (mut value, owners) = managed::with_manager(
        &call.resource,
        &call.version,
        subresource,
        &call.conversions,
        |fields, _| fields.apply(current, owners, &part, &call.manager, force),
    )
    .map_err(managed::apply_error)?;
    value["metadata"]["resourceVersion"] = meta(config, "resourceVersion").into();
    Ok((value, owners))
}

/// A patched scale must refer to the object that it was read from.
fn check_uid(call: &Call<'_>, current: &Value, wanted: &Value) -> Result<()> {
    let (sent, found) = (meta(wanted, "uid"), meta(current, "uid"));
    if sent.is_empty() || sent == found {
        return Ok(());
    }
    let why =
        format!("Precondition failed: UID in precondition: {sent}, UID in object meta: {found}");
    let resource = call.resource.group_resource();
    let resource = GroupResource::new(
        resource.group.as_str(),
        format!("{}/scale", resource.resource),
    );
    Err(Status::conflict(&resource, call.name(), &why).into())
}

fn scaled(current: &Value, wanted: &Value, declared: Option<&Scale>) -> Result<Value> {
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

/// An object's replicas, as the request's endpoint shows them.
///
/// # Errors
/// 404 for a subresource that does not exist, 500 for an object without replicas.
pub(crate) fn of_object(call: &Call<'_>, object: &Value) -> Result<Value> {
    scale_of(call, object, declared(call)?)
}

/// An object with the replicas of a scale.
///
/// # Errors
/// 404 for a subresource that does not exist, 422 for invalid replicas.
pub(crate) fn with_replicas(call: &Call<'_>, object: &Value, scale: &Value) -> Result<Value> {
    let mut changed = scaled(object, scale, declared(call)?)?;
    // The request has said which version it is about.
    changed["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
    Ok(changed)
}

fn scale_of(call: &Call<'_>, object: &Value, declared: Option<&Scale>) -> Result<Value> {
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
        map if call.resource.is("", "replicationcontrollers") => json!({"matchLabels": map}),
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
