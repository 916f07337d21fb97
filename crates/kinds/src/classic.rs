//! The kinds of `resource.k8s.io` in other releases than the newest: which exist, and those from before 1.31.
//!
//! Classic claims and templates share their names with the current ones. Each object is stored in the form it was
//! created in, which its structure determines; `allot_model::classic::exchange` converts it to the other.

use allot_apimachinery::field::ErrorList;
use allot_model::classic::{self, Kind, exchange};
use allot_model::{GROUP, Version as ModelVersion, convert as newer};
use serde_json::Value;

use crate::registry::{Registry, Resource};
use crate::request::Part;

/// Why an object cannot be converted between a classic version and a current one.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The kind does not exist in current versions.
    #[error("{0} has no newer form")]
    NoCurrentKind(String),
    /// A classic object cannot be represented in the version.
    #[error("a classic {kind} has no form in {to}")]
    NoCurrentForm {
        /// The kind of the object.
        kind: String,
        /// The wanted version.
        to: String,
    },
    /// A current object cannot be represented in the version.
    #[error("a {kind} in {from} has no form in {to}")]
    NoClassicForm {
        /// The kind of the object.
        kind: String,
        /// The version of the object.
        from: String,
        /// The wanted version.
        to: String,
    },
    /// The conversion between current versions failed.
    #[error(transparent)]
    Current(#[from] newer::Error),
}

/// Whether the version has classic objects.
pub fn is_version(version: &str) -> bool {
    classic::VERSIONS.contains(&version)
}

/// Whether the resource exists in classic versions only.
fn is_own(resource: &Resource) -> bool {
    resource.group == GROUP && allot_model::Kind::from_plural(&resource.plural).is_none()
}

/// Whether the resource can hold classic objects as well as current ones.
pub fn is_shared(resource: &Resource) -> bool {
    resource.group == GROUP
        && !is_own(resource)
        && resource
            .versions
            .iter()
            .any(|version| version.served && is_version(&version.name))
}

/// Whether the resource has objects of both generations that cannot be converted to the other one. Lists and watches of a
/// version omit objects that it cannot represent.
pub fn is_apart(resource: &Resource) -> bool {
    resource.plural == "resourceslices" && is_shared(resource)
}

/// The classic kind of an object by its `apiVersion`.
pub fn kind_of(resource: &Resource, object: &Value) -> Option<Kind> {
    if resource.group != GROUP {
        return None;
    }
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let version = api_version.rsplit('/').next().unwrap_or_default();
    kind_in(resource, version)
}

/// The classic kind that a resource has in a version.
pub fn kind_in(resource: &Resource, version: &str) -> Option<Kind> {
    let classic = resource.group == GROUP && (is_version(version) || is_own(resource));
    classic
        .then(|| Kind::from_plural(&resource.plural))
        .flatten()
}

/// The version that a stored object is in.
pub fn stored_version<'a>(resource: &'a Resource, stored: &Value) -> &'a str {
    let classic = is_shared(resource)
        && Kind::from_plural(&resource.plural)
            .is_some_and(|kind| classic::is_classic(kind, stored));
    if classic {
        classic::VERSIONS[0]
    } else {
        &resource.storage_version
    }
}

/// An object in another version; `None` if neither of the two versions is classic.
///
/// # Errors
/// The object cannot be represented in the other version.
pub fn convert(
    resource: &Resource,
    object: &Value,
    from: &str,
    to: &str,
) -> Option<Result<Value, ConvertError>> {
    let (old, new) = (kind_in(resource, from), kind_in(resource, to));
    match (old, new) {
        (None, None) => None,
        // Classic versions differ only in fields that the other one does not have.
        (Some(_), Some(_)) => Some(Ok(object.clone())),
        (Some(kind), None) => Some(to_newer(resource, kind, object, to)),
        (None, Some(kind)) => Some(to_classic(resource, kind, object, from, to)),
    }
}

fn newer_kind(resource: &Resource) -> Result<allot_model::Kind, ConvertError> {
    let kind = allot_model::Kind::from_plural(&resource.plural);
    kind.ok_or_else(|| ConvertError::NoCurrentKind(resource.kind.clone()))
}

fn to_newer(
    resource: &Resource,
    kind: Kind,
    object: &Value,
    to: &str,
) -> Result<Value, ConvertError> {
    let no_form = || ConvertError::NoCurrentForm {
        kind: resource.kind.clone(),
        to: to.to_owned(),
    };
    let hub = exchange::to_v1(kind, object).ok_or_else(no_form)?;
    let to = to.parse().map_err(|_| no_form())?;
    Ok(newer::convert(
        newer_kind(resource)?,
        ModelVersion::V1,
        to,
        hub,
    )?)
}

fn to_classic(
    resource: &Resource,
    kind: Kind,
    object: &Value,
    from: &str,
    to: &str,
) -> Result<Value, ConvertError> {
    let no_form = || ConvertError::NoClassicForm {
        kind: resource.kind.clone(),
        from: from.to_owned(),
        to: to.to_owned(),
    };
    let from = from.parse().map_err(|_| no_form())?;
    let hub = newer::convert(
        newer_kind(resource)?,
        from,
        ModelVersion::V1,
        object.clone(),
    )?;
    exchange::from_v1(kind, &hub, &resource.api_version(to)).ok_or_else(no_form)
}

/// The form in which a received object is stored: its own, or that of the original it carries.
pub fn original(resource: &Resource, object: &Value) -> Option<Value> {
    if !is_shared(resource) {
        return None;
    }
    let kind = Kind::from_plural(&resource.plural)?;
    let carries = |annotation: &str| object["metadata"]["annotations"][annotation].is_string();
    if kind_of(resource, object).is_some() {
        return carries(exchange::NEWER)
            .then(|| exchange::to_v1(kind, object))
            .flatten();
    }
    let api_version = resource.api_version(classic::VERSIONS[0]);
    carries(exchange::CLASSIC)
        .then(|| exchange::from_v1(kind, object, &api_version))
        .flatten()
}

/// The validation errors of an update through the endpoint of a part.
pub fn validate_update(kind: Kind, object: &Value, old: &Value, part: Part) -> ErrorList {
    match part {
        Part::Status => classic::status_update(kind, object, old),
        _ => classic::update(kind, object, old),
    }
}

/// Reverts the fields of an update that this endpoint must not change.
pub fn prepare_for_update(kind: Kind, object: &mut Value, old: &Value, part: Part) {
    match part {
        Part::Status => classic::prepare_for_status_update(kind, object, old),
        _ => classic::prepare_for_update(kind, object, old),
    }
}

/// Whether pods, or pod templates in objects of the kind, may be sent with `spec.resourceClaims` in the form of 1.30.
fn has_old_claims(registry: &Registry, group: &str, kind: &str) -> bool {
    let is_served = || {
        let claims = registry.get(GROUP, "resourceclaims");
        claims.is_some_and(|claims| is_shared(claims))
    };
    let resource = registry.by_kind(group, kind);
    resource.is_some_and(|it| it.rules.pod_template.is_some()) && is_served()
}

/// The body of a pod, or of an object with a pod template, with `spec.resourceClaims` in the current form. `None` if nothing
/// changes or no classic kinds are served.
pub fn without_source(
    registry: &Registry,
    group: &str,
    kind: &str,
    text: &[u8],
) -> Option<Vec<u8>> {
    const SOURCE: &[u8] = b"\"source\"";
    let has_source = || text.windows(SOURCE.len()).any(|part| part == SOURCE);
    if !has_old_claims(registry, group, kind) || !has_source() {
        return None;
    }
    let mut object: Value = serde_json::from_slice(text).ok()?;
    allot_model::migrate::pod::flatten_claims(&mut object);
    Some(object.to_string().into_bytes())
}

/// As [`without_source`], for an object or a patch in the form of one.
pub fn flatten_claims(registry: &Registry, group: &str, kind: &str, object: &mut Value) {
    if has_old_claims(registry, group, kind) {
        allot_model::migrate::pod::flatten_claims(object);
    }
}
