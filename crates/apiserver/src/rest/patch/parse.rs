//! Reading a patch.

use allot_apimachinery::Status;
use allot_schema::{decode, json_patch};
use serde_json::{Map, Value};

use crate::context::{Call, FieldValidation};
use crate::error::{ApiError, Result};
use crate::rest::media_type::patch_type;
use crate::yaml;

/// Most operations in a JSON patch.
const MAX_OPERATIONS: usize = 10_000;

/// The media type of an apply.
pub(in crate::rest) const APPLY: &str = "application/apply-patch+yaml";
/// Media type of a patch that knows the types of built-in kinds.
pub(in crate::rest) const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// The media types of patches.
pub(in crate::rest) const MEDIA_TYPES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    STRATEGIC,
    APPLY,
];

/// A patch that has been read.
pub(in crate::rest) enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
    Apply { config: Value, force: bool },
}

/// A patch, and the unknown and duplicate fields in it.
pub(in crate::rest) struct Read {
    pub(in crate::rest) patch: Patch,
    pub(in crate::rest) strict: Vec<String>,
}

/// Reads a patch by its media type.
pub(in crate::rest) fn parse(call: &Call<'_>, body: &[u8]) -> Result<Read> {
    let media_type = patch_type(&call.request.headers);
    let custom = call.resource.custom.is_some();
    // Merge patches and applied configurations have the form of the object: the texts of its raw fields are kept.
    if let Some(schema) = call.resource.schema(&call.version) {
        crate::raw::sent_patch(decode::raw_texts(body, schema));
    }
    match media_type.as_str() {
        "application/json-patch+json" => parse_json_patch(call, body),
        "application/merge-patch+json" => {
            let wrong = |text: String| match lenient(call) {
                true => "Invalid JSON Patch".to_owned(),
                false => format!("error decoding patch: {text}"),
            };
            parse_merge(body, Patch::Merge, &wrong)
        }
        STRATEGIC if !custom => parse_merge(body, Patch::Strategic, &|text| text),
        APPLY => parse_apply(call, body),
        other if !custom => {
            tracing::debug!(media_type = other, "unknown patch type");
            Err(unknown_media_type())
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

/// 415 of the router, for a patch of a built-in object in a format that is none of patches.
pub(in crate::rest) fn unknown_media_type() -> ApiError {
    let mut status = Status::unsupported_media_type("415: Unsupported Media Type");
    status.details = Some(Box::default());
    status.into()
}

/// Whether unknown and duplicate fields cause neither errors nor warnings.
fn lenient(call: &Call<'_>) -> bool {
    call.field_validation == FieldValidation::Ignore
}

fn parse_json_patch(call: &Call<'_>, body: &[u8]) -> Result<Read> {
    let lenient = lenient(call);
    let wrong = |text: String| match lenient {
        true => ApiError::bad_request(text),
        false => ApiError::bad_request(format!("error decoding patch: {text}")),
    };
    let decoded = decode::decode_patch(body).map_err(|error| wrong(error.to_string()))?;
    let mut strict = decoded.strict;
    if !lenient {
        let unknown = check_operations(&decoded.value).map_err(wrong)?;
        strict.extend(unknown);
        // In the order of the operations; unknown and repeated fields were found one after the other.
        strict.sort_by_key(|text| operation(text));
    }
    let patch = json_patch::Patch::from_json(&decoded.value)
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    if patch.len() > MAX_OPERATIONS {
        let message = format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            patch.len()
        );
        return Err(Status::request_entity_too_large(&message).into());
    }
    let strict = strict.iter().map(|text| format!("json patch {text}"));
    Ok(Read {
        patch: Patch::Json(patch),
        strict: strict.collect(),
    })
}

/// The operation that a remark such as `unknown field "[1].foo"` is about.
fn operation(remark: &str) -> Option<usize> {
    let (_, rest) = remark.split_once('[')?;
    rest.split_once(']')?.0.parse().ok()
}

/// The unknown fields of operations; the error is about a wrong type.
fn check_operations(patch: &Value) -> std::result::Result<Vec<String>, String> {
    let mismatch = |value: &Value, wanted: &str| {
        let found = decode::json_type(value);
        format!("json: cannot unmarshal {found} into Go {wanted}")
    };
    let operations = match patch {
        Value::Null => return Ok(Vec::new()),
        Value::Array(operations) => operations,
        other => return Err(mismatch(other, "value of type []handlers.jsonPatchOp")),
    };
    let mut unknown = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        let operation = match operation {
            Value::Null => &Map::new(),
            Value::Object(operation) => operation,
            other => return Err(mismatch(other, "value of type handlers.jsonPatchOp")),
        };
        for (key, value) in operation {
            match key.as_str() {
                "op" | "path" | "from" if !value.is_string() && !value.is_null() => {
                    let wanted = format!("struct field jsonPatchOp.{key} of type string");
                    return Err(mismatch(value, &wanted));
                }
                "op" | "path" | "from" | "value" => {}
                other => unknown.push(format!("unknown field \"[{index}].{other}\"")),
            }
        }
    }
    Ok(unknown)
}

fn parse_merge(
    body: &[u8],
    kind: fn(Value) -> Patch,
    wrong: &dyn Fn(String) -> String,
) -> Result<Read> {
    let refused = |text: String| ApiError::bad_request(wrong(text));
    let decoded = decode::decode_patch(body).map_err(|error| refused(error.to_string()))?;
    let decoded = match decoded.value {
        // Null is an invalid merge patch, and a strategic merge patch without changes.
        Value::Null => match kind(Value::Null) {
            Patch::Merge(_) => return Err(ApiError::bad_request("Invalid JSON Patch")),
            _ => decode::Decoded {
                value: Value::Object(Map::new()),
                ..decoded
            },
        },
        value => decode::Decoded { value, ..decoded },
    };
    if !decoded.value.is_object() {
        let found = decode::json_type(&decoded.value);
        let text = format!(
            "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        );
        return Err(refused(text));
    }
    Ok(Read {
        patch: kind(decoded.value),
        strict: decoded.strict,
    })
}

fn parse_apply(call: &Call<'_>, body: &[u8]) -> Result<Read> {
    let query = &call.request.query;
    let decoding = |error: &dyn std::fmt::Display| {
        ApiError::bad_request(format!("error decoding YAML: {error}"))
    };
    // JSON is YAML: the slower parser runs only if there are duplicate keys to report.
    let repeats =
        |body| decode::decode_json(body, None).is_ok_and(|decoded| !decoded.strict.is_empty());
    let read = match serde_json::from_slice(body) {
        Ok(value) if !repeats(body) => yaml::Yaml {
            value,
            repeated: None,
        },
        _ => yaml::read(body)
            .map_err(|error| decoding(&format!("error converting YAML to JSON: {error}")))?,
    };
    let config = read.value;
    if !config.is_object() && !config.is_null() {
        let found = decode::json_type(&config);
        let text = format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type \
             map[string]interface {{}}"
        );
        return Err(decoding(&text));
    }
    let repeated = read
        .repeated
        .map(|text| format!("error converting YAML to JSON: {text}"));
    Ok(Read {
        patch: Patch::Apply {
            config,
            force: query.flag("force"),
        },
        strict: repeated.into_iter().collect(),
    })
}
