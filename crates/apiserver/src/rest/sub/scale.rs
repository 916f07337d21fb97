//! `scale`: the replicas of a workload as one small object.

use allot_apimachinery::Status;
use allot_apimachinery::gvk::GroupResource;
use allot_schema::apply::{Error, Managed};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use crate::body::Body;
use crate::context::Call;
use crate::custom::Scale;
use crate::encode::value_response;
use crate::error::{ApiError, Result};
use crate::negotiate::Shape;
use crate::object::{meta, split_api_version};
use crate::request::Part;
use crate::rest::patch;
use crate::rest::patch::Patch;
use crate::rest::stored::Stored;
use crate::scale::{self, API_VERSION};
use crate::{managed, versions};

pub(super) async fn answer(call: Call<'_>, body: Bytes) -> Result<Response<Body>> {
    let declared = scale::declared(&call.resource, &call.version)?;
    let stored = match call.request.info.verb.as_str() {
        "get" => {
            let entry = call
                .core
                .backend
                .get(&call.resource.collection, &call.key()?)
                .await?;
            Stored::Entry(entry.ok_or_else(|| call.not_found())?)
        }
        "update" => {
            let mut wanted = call.object_of(&body, API_VERSION, "Scale")?;
            call.check_namespace(&mut wanted)?;
            call.check_name(&wanted)?;
            call.modify(Part::Main, |current| {
                scale::write(current, &wanted, declared)
            })
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
                let scale = scale::read(&call.resource, current, declared)?;
                let mut wanted = patch::apply_plain(&patch, &scale, schema)?;
                call.check_name(&wanted)?;
                call.check_namespace(&mut wanted)?;
                if declared.is_none() {
                    check_uid(&call, current, &wanted)?;
                } else if let Some(metadata) = wanted["metadata"].as_object_mut() {
                    // Upstream compares it for built-in kinds alone.
                    metadata.remove("uid");
                }
                Ok((scale::write(current, &wanted, declared)?, None))
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
    let scale = scale::read(&call.resource, &object, declared)?;
    let shown = match call.media.shape {
        Shape::Whole => scale,
        shape if shape.is_metadata() => crate::view::metadata_only(scale, shape),
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
    // What is not valid for the object is not valid to apply either.
    scale::write(current, config, declared)?;
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
    .map_err(|mut error| {
        if let Error::Conflict(conflicts) = &mut error {
            conflicts.shown_in(API_VERSION, &["spec", "replicas"]);
        }
        managed::apply_error(error)
    })?;
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
