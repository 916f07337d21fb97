//! Query parameters and bodies that steer a write.

use allot_apimachinery::Status;
use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::gvk::GroupKind;
use allot_apimachinery::quote::{go_json_bytes, quote};
use serde_json::{Value, json};

use super::body::TypeMeta;
use super::media_type::{content_type, is_known_format, patch_type, unknown_format};
use super::patch;
use crate::context::{Call, FieldValidation};
use crate::error::{ApiError, Result};
use crate::numbers::parse_int;
use crate::request::{DeleteOptions, Incoming, Preconditions, Propagation, Query};

/// Longest field manager name.
const MAX_MANAGER: usize = 128;

fn options_kind(verb: &str) -> &'static str {
    match verb {
        "create" => "CreateOptions",
        "update" => "UpdateOptions",
        "patch" => "PatchOptions",
        _ => "DeleteOptions",
    }
}

/// 422 about the options of a request.
pub(super) fn invalid(kind: &str, errors: &ErrorList) -> ApiError {
    Status::invalid(&GroupKind::new("meta.k8s.io", kind), "", errors).into()
}

/// The options of a write other than a delete.
pub(super) struct WriteOptions {
    /// Whether this is a dry run: no change is stored.
    pub(super) dry_run: bool,
    /// How unknown and duplicate fields are answered.
    pub(super) field_validation: FieldValidation,
    /// The field manager: `fieldManager`, or the first part of the user agent.
    pub(super) manager: String,
}

impl WriteOptions {
    /// Reads them; the error names all that is wrong with them, in upstream's order.
    pub(super) fn of(request: &Incoming, verb: &str) -> Result<Self> {
        let mut options = Self {
            dry_run: false,
            field_validation: FieldValidation::Warn,
            manager: from_agent(request),
        };
        if !matches!(verb, "create" | "update" | "patch") {
            return Ok(options);
        }
        // A body in an unknown format is rejected before the options are read; for an update after that.
        if verb == "create" && !is_known_format(&content_type(&request.headers)) {
            return Ok(options);
        }
        let mut errors = ErrorList::new();
        let named = request.query.text("fieldManager");
        if verb == "patch" {
            let media_type = patch_type(&request.headers);
            // An unsupported media type is rejected before anything else.
            if !patch::MEDIA_TYPES.contains(&media_type.as_str()) {
                return Ok(options);
            }
            let is_apply = media_type == patch::APPLY;
            if is_apply && named.is_none() {
                let text = "is required for apply patch";
                errors.push(Error::required(&Path::new("fieldManager"), text));
            }
            if !is_apply && request.query.text("force").is_some() {
                let text = "may not be specified for non-apply patch";
                errors.push(Error::forbidden(&Path::new("force"), text));
            }
        }
        if let Some(named) = named {
            errors.extend(manager_errors(named));
            options.manager = named.to_owned();
        }
        let values: Vec<&str> = request.query.all("dryRun").collect();
        errors.extend(dry_run_error(&values));
        options.dry_run = !values.is_empty();
        match request.query.get("fieldValidation").unwrap_or_default() {
            "" | "Warn" => {}
            "Strict" => options.field_validation = FieldValidation::Strict,
            "Ignore" => options.field_validation = FieldValidation::Ignore,
            other => errors.push(Error::not_supported(
                &Path::new("fieldValidation"),
                other,
                &["", "Ignore", "Strict", "Warn"],
            )),
        }
        match errors.is_empty() {
            true => Ok(options),
            false => Err(invalid(options_kind(verb), &errors)),
        }
    }
}

fn manager_errors(named: &str) -> ErrorList {
    let path = Path::new("fieldManager");
    let mut errors = ErrorList::new();
    if named.len() > MAX_MANAGER {
        errors.push(Error::too_long(&path, MAX_MANAGER));
    }
    for (at, character) in named.char_indices().filter(|(_, c)| c.is_control()) {
        let code = u32::from(character);
        let detail = format!("invalid character U+{code:04X} (at position {at})");
        errors.push(Error::invalid(&path, named, detail));
    }
    errors
}

fn from_agent(request: &Incoming) -> String {
    let agent = request
        .headers
        .get(http::header::USER_AGENT)
        .map(crate::header::lossy)
        .unwrap_or_default();
    match agent.split('/').next().unwrap_or_default() {
        // Owners of fields have a name.
        "" => "unknown".to_owned(),
        first => first.chars().take(MAX_MANAGER).collect(),
    }
}

/// The error about a `dryRun` list that is neither empty nor `All`.
fn dry_run_error(values: &[&str]) -> Option<Error> {
    let shown = || Value::from(values.to_vec());
    values
        .iter()
        .any(|value| *value != "All")
        .then(|| Error::not_supported(&Path::new("dryRun"), &shown(), &["All"]))
}

/// Like [`dry_run_error`]; returns whether this is a dry run.
fn check_dry_run(values: &[&str], kind: &str) -> Result<bool> {
    match dry_run_error(values) {
        Some(error) => Err(invalid(kind, &[error].into())),
        None => Ok(!values.is_empty()),
    }
}

/// The options of a request: of its body (preferred, if there is one) or of its query.
///
/// # Errors
/// 415 for a body of an unknown media type; errors of [`parse_delete_options`].
pub(super) fn delete_options(call: &Call<'_>, body: &[u8]) -> Result<DeleteOptions> {
    let query = &call.request.query;
    if body.is_empty() {
        return parse_delete_options(body, query);
    }
    match content_type(&call.request.headers).as_str() {
        "application/vnd.kubernetes.protobuf" if !crate::protobuf::is_protobuf(body) => {
            Err(ApiError::bad_request(
                "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
            ))
        }
        "application/json" | "application/vnd.kubernetes.protobuf" => {
            parse_delete_options(body, query)
        }
        "application/yaml" => {
            let read = crate::yaml::read(body).map_err(ApiError::bad_request)?;
            parse_delete_options(&go_json_bytes(&read.value), query)
        }
        _ => Err(unknown_format()),
    }
}

/// Reads body (preferred, if there is one) and query.
///
/// # Errors
/// 400 for a body that cannot be parsed, 422 for invalid values.
pub(super) fn parse_delete_options(body: &[u8], query: &Query) -> Result<DeleteOptions> {
    let value = if body.is_empty() {
        from_query(query)?
    } else {
        from_body(body)?
    };
    let mut errors = ErrorList::new();
    let path = Path::new("propagationPolicy");
    let named = value["propagationPolicy"].as_str();
    let orphan = value["orphanDependents"].as_bool();
    if let (Some(policy), Some(_)) = (named, orphan) {
        let text = "orphanDependents and deletionPropagation cannot be both set";
        errors.push(Error::invalid(&path, policy, text));
    }
    let propagation = match named {
        Some("Orphan") => Some(Propagation::Orphan),
        Some("Background") => Some(Propagation::Background),
        Some("Foreground") => Some(Propagation::Foreground),
        Some(other) => {
            errors.push(Error::not_supported(
                &path,
                other,
                &["Foreground", "Background", "Orphan", "nil"],
            ));
            None
        }
        None => orphan.map(|orphan| {
            if orphan {
                Propagation::Orphan
            } else {
                Propagation::Background
            }
        }),
    };
    let dry_run: Vec<&str> = value["dryRun"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let dry_run = match check_dry_run(&dry_run, "DeleteOptions") {
        Ok(dry_run) => dry_run,
        Err(error) if errors.is_empty() => return Err(error),
        Err(_) => false,
    };
    if !errors.is_empty() {
        return Err(invalid("DeleteOptions", &errors));
    }
    let preconditions = &value["preconditions"];
    let text = |key: &str| preconditions[key].as_str().map(str::to_owned);
    Ok(DeleteOptions {
        grace_period_seconds: value["gracePeriodSeconds"].as_i64(),
        preconditions: Preconditions {
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        },
        propagation,
        orphan_dependents: orphan,
        dry_run,
    })
}

fn from_query(query: &Query) -> Result<Value> {
    let mut value = serde_json::Map::new();
    if let Some(seconds) = query.text("gracePeriodSeconds") {
        value.insert("gracePeriodSeconds".to_owned(), parse_int(seconds)?.into());
    }
    if let Some(policy) = query.text("propagationPolicy") {
        value.insert("propagationPolicy".to_owned(), policy.into());
    }
    if let Some(orphan) = query.text("orphanDependents") {
        value.insert(
            "orphanDependents".to_owned(),
            (!matches!(orphan, "false" | "0")).into(),
        );
    }
    for key in ["uid", "resourceVersion"] {
        if let Some(wanted) = query.text(key) {
            let conditions = value.entry("preconditions").or_insert_with(|| json!({}));
            conditions[key] = wanted.into();
        }
    }
    let dry_run: Vec<&str> = query.all("dryRun").collect();
    if !dry_run.is_empty() {
        value.insert("dryRun".to_owned(), dry_run.into());
    }
    Ok(value.into())
}

fn from_body(body: &[u8]) -> Result<Value> {
    // Go clients send the options in the encoding of the objects; no JSON text starts like protobuf.
    let (value, claimed) = if crate::protobuf::is_protobuf(body) {
        let value = crate::protobuf::decode(body)
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        let claimed = TypeMeta::of_value(&value);
        (value, claimed)
    } else {
        (from_json(body)?, TypeMeta::of_text(body))
    };
    let value = if value.is_null() {
        Value::Object(serde_json::Map::new())
    } else {
        value
    };
    // A body without kind contains DeleteOptions.
    let claimed = claimed.map_err(ApiError::bad_request)?.or(&TypeMeta {
        api_version: "meta.k8s.io/v1".to_owned(),
        kind: "DeleteOptions".to_owned(),
    });
    if claimed.api_version.ends_with('/') {
        return Err(ApiError::bad_request(format!(
            "Object 'apiVersion' is missing in '{}'",
            String::from_utf8_lossy(body)
        )));
    }
    // Upstream has the kind in every version: clients send it in that of the object (controller-runtime does).
    if claimed.kind != "DeleteOptions" {
        return Err(ApiError::bad_request(format!(
            "no kind {} is registered for version {} in scheme \
             \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\"",
            quote(&claimed.kind),
            quote(&claimed.api_version)
        )));
    }
    let Some(schema) = allot_schema::types::lookup("", "v1", "DeleteOptions") else {
        return Ok(value);
    };
    allot_schema::decode::decode_value(value, schema)
        .map(|decoded| decoded.value)
        .map_err(|error| ApiError::bad_request(error.to_string()))
}

fn from_json(body: &[u8]) -> Result<Value> {
    allot_schema::decode::decode_json(body, None)
        .map(|decoded| decoded.value)
        .map_err(|error| {
            ApiError::bad_request(format!(
                "couldn't get version/kind; json parse error: {error}"
            ))
        })
}
