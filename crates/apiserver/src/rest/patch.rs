//! `PATCH` in its four kinds.

use allot_apimachinery::Status;
use allot_apimachinery::field::{Error, Path};
use allot_apimachinery::gvk::GroupKind;
use allot_schema::apply::Managed;
use allot_schema::{decode, strategic, types};
use bytes::Bytes;
use http::Response;
use serde_json::Value;

use super::body::{content_type, is_registered, not_registered};
use super::options::invalid;
use super::{Call, FieldValidation};
use crate::body::Body;
use crate::error::{ApiError, Result};
use crate::object::{meta, split_api_version, text};
use crate::strategy::Part;
use crate::{managed, versions};

/// Most operations in a JSON patch.
const MAX_OPERATIONS: usize = 10_000;

/// A patch that has been read.
pub(super) enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
    Apply { config: Value, force: bool },
}

pub(super) async fn patch(call: Call<'_>, body: Bytes) -> Result<Response<Body>> {
    patch_part(call, body, Part::Main).await
}

/// Patches the object of the path through an endpoint.
pub(super) async fn patch_part(call: Call<'_>, body: Bytes, part: Part) -> Result<Response<Body>> {
    let patch = parse(&call, &body)?;
    if let Patch::Apply { config, .. } = &patch
        && part == Part::Main
        && call
            .core
            .backend
            .get(&call.resource.collection, &call.key())
            .await?
            .is_none()
    {
        return create_by_apply(&call, config).await;
    }
    let stored = call
        .modify_owned(part, |current, owners| {
            apply(&call, &patch, current, owners)
        })
        .await?;
    call.stored_response(200, stored)
}

/// Reads a patch by its media type.
pub(super) fn parse(call: &Call<'_>, body: &[u8]) -> Result<Patch> {
    let media_type = content_type(call);
    if media_type != "application/apply-patch+yaml" && call.request.query.text("force").is_some() {
        let error = Error::forbidden(
            &Path::new("force"),
            "may not be specified for non-apply patch",
        );
        return Err(invalid("PatchOptions", &vec![error]));
    }
    let custom = call.resource.custom.is_some();
    match media_type.as_str() {
        "application/json-patch+json" => parse_json_patch(body),
        "application/merge-patch+json" => parse_merge(body).map(Patch::Merge),
        "application/strategic-merge-patch+json" if !custom => {
            parse_merge(body).map(Patch::Strategic)
        }
        "application/apply-patch+yaml" => parse_apply(call, body),
        other if !custom => {
            tracing::debug!(media_type = other, "unknown patch type");
            Err(Status::unsupported_media_type("415: Unsupported Media Type").into())
        }
        other => {
            let mut known = vec![
                "application/json-patch+json",
                "application/merge-patch+json",
            ];
            known.push("application/apply-patch+yaml");
            let message = format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                known.join(", ")
            );
            tracing::debug!(media_type = other, "unknown patch type");
            Err(Status::unsupported_media_type(message).into())
        }
    }
}

fn parse_json_patch(body: &[u8]) -> Result<Patch> {
    let decoding = |error: &dyn std::fmt::Display| {
        ApiError::bad_request(format!("error decoding patch: {error}"))
    };
    let value = read_json(body).map_err(|error| decoding(&error))?;
    let Value::Array(operations) = &value else {
        let found = decode::json_type(&value);
        let text =
            format!("json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp");
        return Err(decoding(&text));
    };
    if operations.len() > MAX_OPERATIONS {
        let message = format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        );
        return Err(Status::request_entity_too_large(&message).into());
    }
    serde_json::from_value(value)
        .map(Patch::Json)
        .map_err(|_| rejected())
}

/// 422 for a JSON patch that can not be carried out.
fn rejected() -> ApiError {
    Status::failure(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
    )
    .into()
}

fn parse_merge(body: &[u8]) -> Result<Value> {
    let decoding = |error: &dyn std::fmt::Display| {
        ApiError::bad_request(format!("error decoding patch: {error}"))
    };
    let value = read_json(body).map_err(|error| decoding(&error))?;
    if !value.is_object() {
        let found = decode::json_type(&value);
        let text = format!(
            "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        );
        return Err(decoding(&text));
    }
    Ok(value)
}

fn read_json(body: &[u8]) -> std::result::Result<Value, decode::DecodeError> {
    decode::decode_json(body, None).map(|decoded| decoded.value)
}

fn parse_apply(call: &Call<'_>, body: &[u8]) -> Result<Patch> {
    let query = &call.request.query;
    if query.text("fieldManager").is_none() {
        let text = "is required for apply patch";
        return Err(invalid(
            "PatchOptions",
            &vec![Error::required(&Path::new("fieldManager"), text)],
        ));
    }
    let decoding = |error: &dyn std::fmt::Display| {
        ApiError::bad_request(format!("error decoding YAML: {error}"))
    };
    let config: Value = match serde_json::from_slice(body) {
        Ok(config) => config,
        Err(_) => {
            let text = std::str::from_utf8(body).map_err(|error| decoding(&error))?;
            serde_saphyr::from_str(text).map_err(|error| decoding(&error))?
        }
    };
    if !config.is_object() && !config.is_null() {
        let found = decode::json_type(&config);
        let text = format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type \
             map[string]interface {{}}"
        );
        return Err(decoding(&text));
    }
    Ok(Patch::Apply {
        config,
        force: query.flag("force"),
    })
}

async fn create_by_apply(call: &Call<'_>, config: &Value) -> Result<Response<Body>> {
    let sent = meta(config, "resourceVersion");
    if !sent.is_empty() && sent != "0" {
        return Err(call.not_found_for_apply());
    }
    let uid = meta(config, "uid");
    if !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        let resource = call.resource.group_resource();
        return Err(Status::conflict(&resource, call.name(), &why).into());
    }
    let (object, owners) =
        managed::with_manager(&call.resource, &call.version, "", |fields, empty| {
            let nobody = Managed::default();
            fields.apply(&empty(), &nobody, config, &call.manager, false)
        })
        .map_err(managed::apply_error)?;
    let shown = object.clone();
    let mut object = decode_patched(call, object, &|| shown.to_string())?;
    call.check_name(&object)?;
    call.check_namespace(&mut object)?;
    let stored = call.store_new(object, Some(owners)).await?;
    call.stored_response(201, stored)
}

impl Call<'_> {
    /// 409 for an apply that names a version of an object that does not exist.
    fn not_found_for_apply(&self) -> ApiError {
        Status::conflict(
            &self.resource.group_resource(),
            self.name(),
            "resourceVersion should not be set on objects to be created",
        )
        .into()
    }
}

/// The patched object; an apply answers the new owners as well.
fn apply(
    call: &Call<'_>,
    patch: &Patch,
    current: &Value,
    owners: &Managed,
) -> Result<(Value, Option<Managed>)> {
    if let Patch::Apply { config, force } = patch {
        let subresource = call.request.info.subresource.as_str();
        let (value, owners) =
            managed::with_manager(&call.resource, &call.version, subresource, |fields, _| {
                fields.apply(current, owners, config, &call.manager, *force)
            })
            .map_err(managed::apply_error)?;
        let shown = value.clone();
        let mut value = decode_patched(call, value, &|| shown.to_string())?;
        call.check_namespace(&mut value)?;
        call.check_name(&value)?;
        // The version the configuration names is a condition; without one there is none.
        let sent = meta(config, "resourceVersion");
        value["metadata"]["resourceVersion"] = sent.into();
        return Ok((value, Some(owners)));
    }
    let schema = types::lookup(&call.resource.group, &call.version, &call.resource.kind);
    let patched = || match names_owners(patch) {
        true => {
            let mut whole = current.clone();
            owners.write(&mut whole);
            patch.carry_out(&whole, schema)
        }
        false => patch.carry_out(current, schema),
    };
    // An error shows the whole object: to patch again for it is cheaper than to print each.
    let shown = || patched().unwrap_or_default().to_string();
    let mut value = decode_patched(call, patched()?, &shown)?;
    call.check_name(&value)?;
    call.check_namespace(&mut value)?;
    // Only a version that the patch itself names is a condition.
    if value["metadata"]["resourceVersion"] == current["metadata"]["resourceVersion"]
        && !names_version(patch)
    {
        value["metadata"]["resourceVersion"] = "".into();
    }
    Ok((value, None))
}

impl Patch {
    /// The object with the changes of a patch that is no apply.
    fn carry_out(&self, current: &Value, schema: Option<&'static types::Struct>) -> Result<Value> {
        match self {
            Patch::Json(patch) => {
                let mut value = current.clone();
                apply_json_patch(&mut value, patch)?;
                Ok(value)
            }
            Patch::Merge(patch) | Patch::Apply { config: patch, .. } => {
                let mut value = current.clone();
                json_patch::merge(&mut value, patch);
                Ok(value)
            }
            Patch::Strategic(patch) => {
                let schema = schema.ok_or_else(ApiError::no_such_path)?;
                strategic::patch(current, patch, schema).map_err(strategic_error)
            }
        }
    }
}

/// The patch looks at or changes the owners of fields.
fn names_owners(patch: &Patch) -> bool {
    match patch {
        Patch::Json(patch) => {
            let reaches = |pointer: &str| {
                matches!(pointer, "" | "/metadata")
                    || pointer.starts_with("/metadata/managedFields")
            };
            patch.0.iter().any(|operation| {
                use json_patch::PatchOperation as Op;
                let from = match operation {
                    Op::Move(it) => Some(it.from.as_str()),
                    Op::Copy(it) => Some(it.from.as_str()),
                    _ => None,
                };
                reaches(operation.path().as_str()) || from.is_some_and(reaches)
            })
        }
        Patch::Merge(patch) | Patch::Strategic(patch) | Patch::Apply { config: patch, .. } => {
            patch["metadata"].get("managedFields").is_some()
                || patch["metadata"].get("$patch").is_some()
                || patch.get("$patch").is_some()
        }
    }
}

/// Carries out a JSON patch. To test for null is to test that there is nothing, as in upstream's library.
fn apply_json_patch(value: &mut Value, patch: &json_patch::Patch) -> Result<()> {
    for operation in &patch.0 {
        if let json_patch::PatchOperation::Test(test) = operation
            && test.value.is_null()
            && value.pointer(test.path.as_str()).is_none()
        {
            continue;
        }
        json_patch::patch(value, std::slice::from_ref(operation)).map_err(|_| rejected())?;
    }
    Ok(())
}

/// A patch of an object that is not stored as such (a Scale).
pub(super) fn apply_plain(
    patch: &Patch,
    current: &Value,
    schema: Option<&'static types::Struct>,
) -> Result<Value> {
    let mut value = patch.carry_out(current, schema)?;
    if !names_version(patch) {
        value["metadata"]["resourceVersion"] = "".into();
    }
    match schema {
        Some(schema) => {
            let shown = value.clone();
            decode_as(value, schema, decode::Mode::Ignore, &|| shown.to_string())
                .map(|(value, _)| value)
        }
        None => Ok(value),
    }
}

fn strategic_error(error: strategic::Error) -> ApiError {
    match error {
        strategic::Error::Format(text) => ApiError::bad_request(text),
        strategic::Error::Content(_) => rejected(),
        strategic::Error::Mismatch(text) => ApiError::unknown(text),
    }
}

/// The patch sets the resourceVersion.
fn names_version(patch: &Patch) -> bool {
    match patch {
        Patch::Json(patch) => serde_json::to_string(patch)
            .is_ok_and(|text| text.contains("/metadata/resourceVersion")),
        Patch::Merge(patch) | Patch::Strategic(patch) => {
            patch["metadata"]["resourceVersion"].is_string()
        }
        Patch::Apply { .. } => true,
    }
}

/// A patched object passes the same decoder as one in a body; errors show it as `shown` prints it.
fn decode_patched(call: &Call<'_>, value: Value, shown: &dyn Fn() -> String) -> Result<Value> {
    // A patch that makes another kind of the object is judged by that kind first, as upstream's decoder does.
    let (group, version) = split_api_version(text(&value, &["apiVersion"]));
    let kind = text(&value, &["kind"]);
    if call.resource.custom.is_none() && !is_registered(call, group, version, kind) {
        let error = not_registered(text(&value, &["apiVersion"]), kind);
        return Err(refused(&shown(), &error));
    }
    if kind != call.resource.kind
        && let Some(other) = types::lookup(group, version, kind)
    {
        decode_as(value.clone(), other, decode::Mode::Ignore, shown)?;
    }
    // A patch that changes the version makes an object of that version.
    if group == call.resource.group
        && version != call.version
        && call.resource.custom.is_none()
        && call.resource.version(version).is_some()
        && let Some(other) = types::lookup(group, version, kind)
    {
        let version = version.to_owned();
        let (mut value, warnings) = decode_as(value, other, mode(call), shown)?;
        for warning in warnings {
            call.request.warnings.add(warning);
        }
        crate::strategy::default(&call.resource, &version, &mut value);
        return versions::convert(&call.resource, value, &call.version);
    }
    let schema = types::lookup(&call.resource.group, &call.version, &call.resource.kind);
    let mode = mode(call);
    let (mut value, warnings) = match (&call.resource.custom, schema) {
        (Some(custom), _) => {
            let mut value = value;
            let strict = custom.prune(&call.version, &mut value);
            let decoded = decode::Decoded { value, strict };
            decoded
                .apply(mode)
                .map_err(|error| refused(&shown(), &error))?
        }
        (None, Some(schema)) => decode_as(value, schema, mode, shown)?,
        (None, None) => return Ok(value),
    };
    for warning in warnings {
        call.request.warnings.add(warning);
    }
    if call.resource.custom.is_none() {
        versions::set_type(&mut value, &call.resource, &call.version);
    }
    Ok(value)
}

/// Decodes a patched object; what is wrong with it is a 422 about the patch.
fn decode_as(
    value: Value,
    schema: &'static types::Struct,
    mode: decode::Mode,
    shown: &dyn Fn() -> String,
) -> Result<(Value, Vec<String>)> {
    decode::decode_value(value, schema)
        .and_then(|decoded| decoded.apply(mode))
        .map_err(|error| refused(&shown(), &error))
}

/// 422 about a patch whose result is no object of the kind.
fn refused(shown: &str, error: &dyn std::fmt::Display) -> ApiError {
    let error = Error::invalid(&Path::new("patch"), shown, error.to_string());
    Status::invalid(&GroupKind::default(), "", &vec![error]).into()
}

fn mode(call: &Call<'_>) -> decode::Mode {
    match call.field_validation {
        FieldValidation::Ignore => decode::Mode::Ignore,
        FieldValidation::Warn => decode::Mode::Warn,
        FieldValidation::Strict => decode::Mode::Strict,
    }
}
