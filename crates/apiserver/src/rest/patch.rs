//! `PATCH` in its four kinds.

use allot_apimachinery::Status;
use bytes::Bytes;
use http::Response;
use serde_json::Value;

use super::body::content_type;
use super::{Call, FieldValidation};
use crate::body::Body;
use crate::error::{ApiError, Result};
use crate::strategy::Part;

/// Most operations in a JSON patch.
const MAX_OPERATIONS: usize = 10_000;

/// A patch that has been read.
pub(super) enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
}

pub(super) async fn patch(call: Call<'_>, body: Bytes) -> Result<Response<Body>> {
    patch_part(call, body, Part::Main).await
}

/// Patches the object of the path through an endpoint.
pub(super) async fn patch_part(call: Call<'_>, body: Bytes, part: Part) -> Result<Response<Body>> {
    let patch = parse(&call, &body)?;
    let stored = call
        .modify(part, |current| apply(&call, &patch, current))
        .await?;
    call.stored_response(200, stored)
}

/// Reads a patch by its media type.
pub(super) fn parse(call: &Call<'_>, body: &[u8]) -> Result<Patch> {
    match content_type(call).as_str() {
        "application/json-patch+json" => {
            let patch: json_patch::Patch = serde_json::from_slice(body)
                .map_err(|error| ApiError::bad_request(error.to_string()))?;
            if patch.0.len() > MAX_OPERATIONS {
                let message = format!(
                    "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                    patch.0.len()
                );
                return Err(Status::request_entity_too_large(&message).into());
            }
            Ok(Patch::Json(patch))
        }
        "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
            serde_json::from_slice(body)
                .map(Patch::Merge)
                .map_err(|error| ApiError::bad_request(error.to_string()))
        }
        other => {
            let message = format!(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, \
                 application/apply-patch+yaml"
            );
            let _ = other;
            Err(Status::unsupported_media_type(message).into())
        }
    }
}

/// The patched object.
pub(super) fn apply(call: &Call<'_>, patch: &Patch, current: &Value) -> Result<Value> {
    let mut value = current.clone();
    match patch {
        Patch::Json(patch) => json_patch::patch(&mut value, patch).map_err(|error| {
            ApiError::from(Status::failure(
                422,
                "Invalid",
                format!("the server rejected our request due to an error in our request: {error}"),
            ))
        })?,
        Patch::Merge(patch) => json_patch::merge(&mut value, patch),
    }
    decode_patched(call, value)
}

/// A patched object passes the same decoder as one in a body.
fn decode_patched(call: &Call<'_>, value: Value) -> Result<Value> {
    let Some(schema) =
        allot_schema::types::lookup(&call.resource.group, &call.version, &call.resource.kind)
    else {
        return Ok(value);
    };
    let decoded = allot_schema::decode::decode_value(value, schema)
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    let mode = match call.field_validation {
        FieldValidation::Ignore => allot_schema::decode::Mode::Ignore,
        FieldValidation::Warn => allot_schema::decode::Mode::Warn,
        FieldValidation::Strict => allot_schema::decode::Mode::Strict,
    };
    let (value, warnings) = decoded
        .apply(mode)
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    for warning in warnings {
        call.request.warnings.add(warning);
    }
    Ok(value)
}
