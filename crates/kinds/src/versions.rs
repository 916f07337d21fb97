//! Stored form and served form: which versions differ, and how one becomes the other.

pub(crate) mod autoscaling;
pub mod events;

use std::borrow::Cow;

use allot_apimachinery::Status;
use allot_apimachinery::quote::quote;
use serde_json::Value;

use crate::classic;
use crate::custom::{CustomResource, kind_of};
use crate::error::{ApiError, Result};
use crate::registry::Resource;
use crate::storage::Owned;

/// All versions of the resource have the same form apart from `apiVersion`, or this is the stored one.
pub fn same_shape(resource: &Resource, version: &str) -> bool {
    let stored = version == resource.storage_version
        && resource.custom.is_none()
        && !classic::is_shared(resource);
    resource.rules.stored_form.is_none() && (stored || !converts(resource))
}

/// Versions of this resource have different shapes.
fn converts(resource: &Resource) -> bool {
    resource.rules.convert.is_some() || resource.custom.is_some()
}

/// A stored object in a version.
///
/// # Errors
/// 500 if it cannot be converted.
pub fn decode(resource: &Resource, version: &str, bytes: &[u8]) -> Result<Value> {
    let object = stored(resource, bytes)?;
    if is_in(&object, version) {
        return Ok(object);
    }
    convert(resource, object, version)
}

/// A stored custom object whose CRD is known to change nothing in it.
///
/// # Errors
/// 500 if it is no JSON.
pub fn unchanged(resource: &Resource, version: &str, bytes: &[u8]) -> Result<Value> {
    let mut object = serde_json::from_slice(bytes).map_err(damaged)?;
    set_type(&mut object, resource, version);
    Ok(object)
}

/// The object has this version.
fn is_in(object: &Value, version: &str) -> bool {
    let found = crate::object::text(object, &["apiVersion"]);
    crate::object::split_api_version(found).1 == version
}

/// A stored object in the version it is stored in.
///
/// # Errors
/// 500 if it is no JSON.
pub fn stored(resource: &Resource, bytes: &[u8]) -> Result<Value> {
    settled(resource, serde_json::from_slice(bytes).map_err(damaged)?)
}

/// As [`stored`], with the owners of the fields apart.
///
/// # Errors
/// 500 if it is no JSON.
pub fn load(resource: &Resource, bytes: &[u8]) -> Result<Owned> {
    let Owned { object, owners } = Owned::read(bytes).map_err(damaged)?;
    let object = settled(resource, object)?;
    crate::raw::stored(resource.schema(&resource.storage_version), bytes);
    Ok(Owned { object, owners })
}

/// Like [`load`], for an object of a built-in kind with unchanged field owners: they are not decoded, and the second
/// part of the result is their text.
///
/// # Errors
/// 500 if it is no JSON.
pub fn load_object(resource: &Resource, bytes: &[u8]) -> Result<(Value, Box<str>)> {
    let (object, owners) = Owned::read_object(bytes).map_err(damaged)?;
    let object = settled(resource, object)?;
    crate::raw::stored(resource.schema(&resource.storage_version), bytes);
    Ok((object, owners))
}

fn damaged(error: serde_json::Error) -> ApiError {
    Status::internal(&error.to_string()).into()
}

fn settled(resource: &Resource, mut object: Value) -> Result<Value> {
    if resource.custom.is_some() {
        return settled_custom(resource, object);
    }
    let version = classic::stored_version(resource, &object).to_owned();
    set_type(&mut object, resource, &version);
    if let Some(form) = resource.rules.stored_form {
        (form.read)(&mut object);
    }
    Ok(object)
}

/// A custom object in the version that it was stored in.
fn settled_custom(resource: &Resource, mut object: Value) -> Result<Value> {
    // A float that is whole is written as an integer, and one beyond those with a sign would be read as another number.
    allot_schema::decode::settle_numbers(&mut object);
    if object.get("kind").is_some() {
        // Stored objects have no kind: an object with a kind has already been converted and defaulted.
        return Ok(object);
    }
    let found = object["apiVersion"].as_str();
    let (group, version) = crate::object::split_api_version(found.unwrap_or_default());
    let version = match found {
        // An object stored before the stored version was recorded.
        None => resource.storage_version.clone(),
        Some(found) if group != resource.group || resource.version(version).is_none() => {
            return Err(no_such_version(found));
        }
        Some(_) => version.to_owned(),
    };
    set_type(&mut object, resource, &version);
    // A definition may have got defaults since.
    convert(resource, object, &version)
}

/// A received object in the version in which it is worked on: the stored one, for custom objects that of the request.
///
/// # Errors
/// 400 if it cannot be converted.
pub fn to_internal(resource: &Resource, mut object: Value) -> Result<Value> {
    if let Some(form) = resource.rules.stored_form {
        (form.write)(&mut object);
    }
    if let Some(original) = classic::original(resource, &object) {
        return Ok(original);
    }
    if classic::kind_of(resource, &object).is_some() {
        return Ok(object);
    }
    if resource.custom.is_some() {
        return Ok(object);
    }
    convert(resource, object, &resource.storage_version)
}

/// An object that was [loaded](load), in the version of a request.
///
/// # Errors
/// 400 if it cannot be converted.
pub fn seen<'a>(resource: &Resource, object: &'a Value, version: &str) -> Result<Cow<'a, Value>> {
    if is_in(object, version) {
        return Ok(Cow::Borrowed(object));
    }
    convert(resource, object.clone(), version).map(Cow::Owned)
}

/// Converts an object from any version to another version.
///
/// # Errors
/// 400 if it cannot be converted.
pub fn convert(resource: &Resource, mut object: Value, version: &str) -> Result<Value> {
    if let Some(custom) = &resource.custom {
        return convert_custom(resource, custom, object, version);
    }
    let from = object["apiVersion"]
        .as_str()
        .and_then(|it| it.rsplit('/').next())
        .unwrap_or_default()
        .to_owned();
    if from == version {
        return Ok(object);
    }
    if let Some(convert) = resource.rules.convert {
        object = convert(resource, object, &from, version)?;
    }
    set_type(&mut object, resource, version);
    Ok(object)
}

/// A custom object in another version without a webhook: only the `apiVersion` changes, and fields outside of the
/// version's schema are pruned. Defaults are those of the version it was in.
fn convert_custom(
    resource: &Resource,
    custom: &CustomResource,
    mut object: Value,
    version: &str,
) -> Result<Value> {
    let same = is_in(&object, version);
    if !same && resource.is_converted_by_webhook() {
        return Err(not_at_hand(&object, version));
    }
    if crate::object::text(&object, &["kind"]).is_empty() {
        set_type(&mut object, resource, version);
    } else {
        // A custom object of another kind stays one: validation rejects it.
        object["apiVersion"] = resource.api_version(version).into();
    }
    custom.prune(version, &mut object);
    if same {
        custom.default(version, &mut object);
    }
    Ok(object)
}

/// The old object in the form of the new one, if exactly one of them is classic.
///
/// # Errors
/// 400 if there is no such form.
pub fn in_form_of(resource: &Resource, old: &Value, new: &Value) -> Result<Option<Value>> {
    let classic = |object: &Value| classic::kind_of(resource, object).is_some();
    if classic(old) == classic(new) {
        return Ok(None);
    }
    let version = new["apiVersion"]
        .as_str()
        .and_then(|it| it.rsplit('/').next())
        .unwrap_or_default();
    convert(resource, old.clone(), version).map(Some)
}

/// Writes `kind` and `apiVersion`.
pub fn set_type(object: &mut Value, resource: &Resource, version: &str) {
    if let Value::Object(map) = object {
        map.insert("kind".to_owned(), resource.kind.as_str().into());
        map.insert(
            "apiVersion".to_owned(),
            resource.api_version(version).into(),
        );
    }
}

/// The kind of `resource.k8s.io` that a resource is, if it is one.
pub fn dra_kind(resource: &Resource) -> Option<allot_model::Kind> {
    if resource.group == allot_model::GROUP {
        allot_model::Kind::from_plural(&resource.plural)
    } else {
        None
    }
}

/// 500 for an object in a version that has been removed from its CRD.
fn no_such_version(api_version: &str) -> ApiError {
    ApiError::unknown(format!(
        "request to convert CR from an invalid group/version: {api_version}"
    ))
}

/// 500 for a conversion that requires a webhook, in code that cannot call one.
fn not_at_hand(object: &Value, version: &str) -> ApiError {
    let kind = kind_of(object);
    ApiError::unknown(format!(
        "{kind} is not at hand in version {}",
        quote(version)
    ))
}
