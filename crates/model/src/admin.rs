//! The rule for admin access: only claims and templates in namespaces with a certain label may request it.

use std::collections::BTreeMap;

use allot_apimachinery::field::{Error, Path};
use serde_json::Value;

use crate::kind::Kind;
use crate::strategy::results;
use crate::view::View;

/// The label that a namespace must have, with the value `true`, for claims in it to get administrative access.
pub const ADMIN_ACCESS_LABEL: &str = "resource.kubernetes.io/admin-access";

const FORBIDDEN: &str = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";

/// Whether a namespace with these labels allows administrative access. The value is compared case-sensitively.
pub fn namespace_allows(labels: &BTreeMap<String, String>) -> bool {
    labels
        .get(ADMIN_ACCESS_LABEL)
        .is_some_and(|value| value == "true")
}

/// The first path where a new claim or template requests admin access. `None`: the namespace does not matter.
///
/// Upstream stops at the first, and its path lacks `exactly` and, for templates, the outer `spec`.
pub fn requested(kind: Kind, value: &Value) -> Option<Path> {
    let spec = match kind {
        Kind::ResourceClaim => value.at("spec"),
        Kind::ResourceClaimTemplate => value.at("spec").at("spec"),
        _ => return None,
    };
    let path = Path::new("spec").child("devices").child("requests");
    let asks = |request: &Value| request.at("exactly").opt_bool("adminAccess") == Some(true);
    let requests = spec.at("devices").list("requests");
    let index = requests.iter().position(asks)?;
    Some(path.index(index).child("adminAccess"))
}

/// The first path where a new status grants admin access. `None` also when the stored allocation granted it before.
pub fn granted(value: &Value, old: &Value) -> Option<Path> {
    let grants = |result: &Value| result.opt_bool("adminAccess") == Some(true);
    if results(old).iter().any(grants) {
        return None;
    }
    let path = Path::new("status")
        .child("allocation")
        .child("devices")
        .child("results");
    let index = results(value).iter().position(grants)?;
    Some(path.index(index).child("adminAccess"))
}

/// The error at the place that [`requested`] or [`granted`] found, in a namespace with these labels.
///
/// `namespace` is `Err` with the error's text when the namespace cannot be read; upstream then reports an internal
/// error.
pub fn check(place: &Path, namespace: Result<&BTreeMap<String, String>, String>) -> Option<Error> {
    match namespace {
        Err(text) => Some(Error::internal(
            place,
            format!("could not retrieve namespace to verify admin access: {text}"),
        )),
        Ok(labels) if namespace_allows(labels) => None,
        Ok(_) => Some(Error::forbidden(place, FORBIDDEN)),
    }
}

#[cfg(test)]
mod tests;
