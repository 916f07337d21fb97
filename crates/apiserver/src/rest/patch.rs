//! `PATCH` in its four kinds.

mod decoding;
mod parse;

use allot_apimachinery::Status;
use allot_schema::apply::Managed;
use allot_schema::{decode, json_patch, strategic, types};
use bytes::Bytes;
use http::Response;
use serde_json::{Map, Value};

use super::media_type::patch_type;
use super::update::sent_version;
use crate::body::Body;
use crate::context::{Call, FieldValidation};
use crate::error::{ApiError, Result};
use crate::object::{meta, metadata_mut};
use crate::request::Part;
use crate::{managed, versions, yaml};

use decoding::{check_custom_version, decode_as, decode_patched, refused};
pub(super) use parse::{APPLY, MEDIA_TYPES, Patch, Read, STRATEGIC, parse, unknown_media_type};

pub(super) async fn patch(call: Call<'_>, body: Bytes) -> Result<Response<Body>> {
    patch_part(call, body, Part::Main).await
}

/// Patches the object of the path through an endpoint.
pub(super) async fn patch_part(call: Call<'_>, body: Bytes, part: Part) -> Result<Response<Body>> {
    let mut read = match parse(&call, &body) {
        Ok(read) => read,
        Err(error) => return Err(call.unless_missing(error).await?),
    };
    let (group, kind) = (&call.resource.group, &call.resource.kind);
    // What a list of claims is merged with has the newer form.
    if let Patch::Merge(patch) | Patch::Strategic(patch) | Patch::Apply { config: patch, .. } =
        &mut read.patch
    {
        crate::classic::flatten_claims(&call.core.registry.load(), group, kind, patch);
    }
    if let Patch::Apply { config, .. } = &read.patch
        && part == Part::Main
        && call
            .core
            .backend
            .get(&call.resource.collection, &call.key()?)
            .await?
            .is_none()
    {
        return create_by_apply(&call, config, &read.strict).await;
    }
    let stored = call
        .modify_owned(part, |current, owners| apply(&call, &read, current, owners))
        .await?;
    call.stored_response(200, stored).await
}

impl Call<'_> {
    /// The error of a patch that cannot be read, or 404: upstream reads patches when it has the object. Applied configurations are read
    /// before.
    async fn unless_missing(&self, error: ApiError) -> Result<ApiError> {
        let media_type = patch_type(&self.request.headers);
        let is_known = MEDIA_TYPES.contains(&media_type.as_str())
            && (self.resource.custom.is_none() || media_type != STRATEGIC);
        if media_type == APPLY || !is_known {
            return Ok(error);
        }
        let (collection, key) = (&self.resource.collection, self.key()?);
        Ok(match self.core.backend.get(collection, &key).await? {
            Some(_) => error,
            None => Status::not_found(&self.resource.group_resource(), self.name()).into(),
        })
    }
}

async fn create_by_apply(
    call: &Call<'_>,
    config: &Value,
    strict: &[String],
) -> Result<Response<Body>> {
    let (object, owners) = managed::with_manager(
        &call.resource,
        &call.version,
        "",
        &call.conversions,
        |fields, empty| {
            let no_owners = Managed::default();
            fields.apply(&empty(), &no_owners, config, &call.manager, false)
        },
    )
    .map_err(managed::apply_error)?;
    let mut object = decode_applied(call, config, strict, object)?;
    call.check_name(&object)?;
    let uid = meta(config, "uid");
    if !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        let resource = call.resource.group_resource();
        return Err(Status::conflict(&resource, call.name(), &why).into());
    }
    // An apply that creates an object has no version to check, but one that must be read.
    sent_version(&object)?;
    metadata_mut(&mut object).remove("resourceVersion");
    let stored = call.store_new(object, Some(owners)).await?;
    call.stored_response(201, stored).await
}

/// The result of an apply as an object of the kind. `repeated` are the duplicate keys in the configuration.
fn decode_applied(
    call: &Call<'_>,
    config: &Value,
    repeated: &[String],
    mut object: Value,
) -> Result<Value> {
    check_repeated(call, repeated)?;
    check_convertible(call, config, &mut object)?;
    let shown = object.clone();
    // The merge has rejected unknown fields of custom resources where their schema does not permit them; those that it
    // permits are not reported.
    let mode = match call.resource.custom {
        Some(_) => decode::Mode::Ignore,
        None => call.decode_mode(),
    };
    let mut object = decode_patched(call, object, mode, &[], &|| shown.to_string())?;
    call.check_namespace(&mut object)?;
    Ok(object)
}

/// Duplicate keys in an applied configuration cause a warning, or an error with strict validation.
fn check_repeated(call: &Call<'_>, repeated: &[String]) -> Result<()> {
    for text in repeated {
        match call.field_validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => {
                yaml::warnings(text).for_each(|warning| call.request.warnings.add(warning));
            }
            FieldValidation::Strict => {
                let message = format!("error strict decoding YAML: {text}");
                return Err(ApiError::bad_request(message));
            }
        }
    }
    Ok(())
}

/// The result of an apply is converted after the merge, and upstream's converter has its own messages for values of the
/// wrong type.
fn check_convertible(call: &Call<'_>, config: &Value, object: &mut Value) -> Result<()> {
    let (group, version, kind) = (&call.resource.group, &call.version, &call.resource.kind);
    let Some(schema) = types::lookup(group, version, kind) else {
        return Ok(());
    };
    let why = match decode::from_unstructured(object, schema) {
        Err(error) => error.to_string(),
        Ok(()) => match decode::decode_value(object.clone(), schema) {
            Err(decode::DecodeError::Type(text)) if text.starts_with("illegal base64") => {
                format!("error decoding from json: {text}")
            }
            Err(decode::DecodeError::Type(text)) => text,
            _ => return Ok(()),
        },
    };
    let of_kind = format!("{group}/{version}, Kind={kind}");
    let (namespace, name) = (meta(config, "namespace"), meta(config, "name"));
    Err(ApiError::unknown(format!(
        "failed to convert new object ({namespace}/{name}; {of_kind}) to proper version: unable to convert unstructured \
         object to {of_kind}: {why}"
    )))
}

/// The patched object; an apply answers the new owners as well.
fn apply(
    call: &Call<'_>,
    Read { patch, strict }: &Read,
    current: &Value,
    owners: &Managed,
) -> Result<(Value, Option<Managed>)> {
    if let Patch::Apply { config, force } = patch {
        let subresource = call.request.info.subresource.as_str();
        let (value, owners) = managed::with_manager(
            &call.resource,
            &call.version,
            subresource,
            &call.conversions,
            |fields, _| fields.apply(current, owners, config, &call.manager, *force),
        )
        .map_err(managed::apply_error)?;
        let mut value = decode_applied(call, config, strict, value)?;
        // An apply to an existing object need not repeat its name.
        if meta(&value, "name").is_empty() {
            value["metadata"]["name"] = call.name().into();
        }
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
    let shown = || {
        if let Patch::Strategic(patch) = patch {
            return strategic::shown(current, patch);
        }
        let mut whole = current.clone();
        owners.write(&mut whole);
        patch
            .carry_out(&whole, schema)
            .unwrap_or_default()
            .to_string()
    };
    let mut value = patched()?;
    if let (Patch::Strategic(_), None, Some(schema)) = (patch, &call.resource.custom, schema) {
        decode::from_unstructured(&mut value, schema).map_err(|error| refused(&shown(), &error))?;
        // Upstream converts by the type of the object: what the patch says about it means nothing.
        versions::set_type(&mut value, &call.resource, &call.version);
    }
    if matches!(patch, Patch::Json(_)) {
        let (group, kind) = (&call.resource.group, &call.resource.kind);
        crate::classic::flatten_claims(&call.core.registry.load(), group, kind, &mut value);
    }
    let untouched = match call.resource.custom {
        Some(_) => Map::new(),
        None => take_untouched(&mut value, patch),
    };
    let mut value = decode_patched(call, value, call.decode_mode(), strict, &shown)?;
    if let Value::Object(map) = &mut value {
        map.extend(untouched);
    }
    call.check_namespace(&mut value)?;
    call.check_name(&value)?;
    check_custom_version(call, &value)?;
    // Only a version that the patch itself names is a condition.
    if value["metadata"]["resourceVersion"] == current["metadata"]["resourceVersion"]
        && !names_version(patch)
    {
        value["metadata"]["resourceVersion"] = "".into();
    }
    Ok((value, None))
}

impl Patch {
    /// Whether the patch may change the top-level member `key`.
    fn touches(&self, key: &str) -> bool {
        match self {
            Patch::Json(patch) => {
                patch.paths().any(
                    |path| match path.strip_prefix('/').map(|path| path.split('/')) {
                        // Names with escapes are not distinguished.
                        Some(mut names) => names
                            .next()
                            .is_none_or(|name| name == key || name.contains('~')),
                        None => true,
                    },
                )
            }
            Patch::Merge(patch) | Patch::Strategic(patch) | Patch::Apply { config: patch, .. } => {
                match patch.as_object() {
                    // Directives are about the whole object.
                    Some(map) => map.keys().any(|name| name == key || name.starts_with('$')),
                    None => true,
                }
            }
        }
    }

    /// The object with the changes of a patch that is no apply.
    fn carry_out(&self, current: &Value, schema: Option<&'static types::Struct>) -> Result<Value> {
        match self {
            Patch::Json(patch) => {
                let mut value = current.clone();
                patch.apply(&mut value).map_err(|error| {
                    tracing::debug!(%error, "JSON patch rejected");
                    rejected()
                })?;
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

/// Takes the members out of a patched object that the patch cannot have changed: they have the form they were stored
/// in. They are the larger part of most patched objects.
fn take_untouched(value: &mut Value, patch: &Patch) -> Map<String, Value> {
    let Value::Object(map) = value else {
        return Map::new();
    };
    let fixed = |key: &str| matches!(key, "kind" | "apiVersion" | "metadata");
    if patch.touches("kind") || patch.touches("apiVersion") {
        return Map::new();
    }
    let (untouched, rest) = std::mem::take(map)
        .into_iter()
        .partition(|(key, _)| !fixed(key) && !patch.touches(key));
    *map = rest;
    untouched
}

/// The patch reads or changes managed fields.
fn names_owners(patch: &Patch) -> bool {
    match patch {
        Patch::Json(patch) => patch.paths().any(|path| {
            matches!(path, "" | "/metadata") || path.starts_with("/metadata/managedFields")
        }),
        Patch::Merge(patch) | Patch::Strategic(patch) | Patch::Apply { config: patch, .. } => {
            patch["metadata"].get("managedFields").is_some()
                || patch["metadata"].get("$patch").is_some()
                || patch.get("$patch").is_some()
        }
    }
}

/// 422 for a JSON patch that cannot be carried out.
fn rejected() -> ApiError {
    let message = "the server rejected our request due to an error in our request";
    let mut status = Status::failure(422, "Invalid", message);
    status.details = Some(Box::default());
    status.into()
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
            decode_as(value, schema, decode::Mode::Ignore, &[], &|| {
                shown.to_string()
            })
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
        Patch::Json(patch) => patch
            .paths()
            .any(|path| path.starts_with("/metadata/resourceVersion")),
        Patch::Merge(patch) | Patch::Strategic(patch) => {
            patch["metadata"]["resourceVersion"].is_string()
        }
        Patch::Apply { .. } => true,
    }
}
