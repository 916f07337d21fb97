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

/// The version has classic objects.
pub fn is_version(version: &str) -> bool {
    classic::VERSIONS.contains(&version)
}

/// A resource that exists in classic versions only.
fn is_own(resource: &Resource) -> bool {
    resource.group == GROUP && allot_model::Kind::from_plural(&resource.plural).is_none()
}

/// The resource can hold classic objects.
pub fn is_shared(resource: &Resource) -> bool {
    resource.group == GROUP
        && !is_own(resource)
        && resource
            .versions
            .iter()
            .any(|version| version.served && is_version(&version.name))
}

/// The resource has objects of both generations that cannot be converted to the other one. Lists and watches of a
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

/// An object in another version, if one of the two is classic. `None`: not the business of this module.
///
/// # Errors
/// The reason why there is no such form.
pub fn convert(
    resource: &Resource,
    object: &Value,
    from: &str,
    to: &str,
) -> Option<Result<Value, String>> {
    let (old, new) = (kind_in(resource, from), kind_in(resource, to));
    match (old, new) {
        (None, None) => None,
        // The versions differ in members only that the other one does not have.
        (Some(_), Some(_)) => Some(Ok(object.clone())),
        (Some(kind), None) => Some(to_newer(resource, kind, object, to)),
        (None, Some(kind)) => Some(to_classic(resource, kind, object, from, to)),
    }
}

fn newer_kind(resource: &Resource) -> Result<allot_model::Kind, String> {
    allot_model::Kind::from_plural(&resource.plural)
        .ok_or_else(|| format!("{} has no newer form", resource.kind))
}

fn to_newer(resource: &Resource, kind: Kind, object: &Value, to: &str) -> Result<Value, String> {
    let no_form = || format!("a classic {} has no form in {to}", resource.kind);
    let hub = exchange::to_v1(kind, object).ok_or_else(no_form)?;
    let to = to.parse().map_err(|_| no_form())?;
    newer::convert(newer_kind(resource)?, ModelVersion::V1, to, hub)
        .map_err(|error| error.to_string())
}

fn to_classic(
    resource: &Resource,
    kind: Kind,
    object: &Value,
    from: &str,
    to: &str,
) -> Result<Value, String> {
    let no_form = || format!("a {} in {from} has no form in {to}", resource.kind);
    let from = from.parse().map_err(|_| no_form())?;
    let hub = newer::convert(
        newer_kind(resource)?,
        from,
        ModelVersion::V1,
        object.clone(),
    )
    .map_err(|error| error.to_string())?;
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

/// Errors of a changed object.
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

/// Claims of pods, or of pod templates inside the kind, may come in the form that they had up to 1.30.
fn has_old_claims(registry: &Registry, group: &str, kind: &str) -> bool {
    let is_served = || {
        let claims = registry.get(GROUP, "resourceclaims");
        claims.is_some_and(|claims| is_shared(claims))
    };
    let resource = registry.by_kind(group, kind);
    resource.is_some_and(|it| it.rules.pod_template.is_some()) && is_served()
}

/// The body of a pod, or of something with a pod template, with its claims in the newer form, where classic kinds are
/// served; `None` where nothing changes.
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

/// The same for an object, or a patch that looks like one.
pub fn flatten_claims(registry: &Registry, group: &str, kind: &str, object: &mut Value) {
    if has_old_claims(registry, group, kind) {
        allot_model::migrate::pod::flatten_claims(object);
    }
}
