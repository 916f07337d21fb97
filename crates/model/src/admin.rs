//! The rule for administrative access: only claims and templates in namespaces with a certain label may ask for it.

use std::collections::BTreeMap;

use allot_apimachinery::field::{Error, ErrorList, Path};
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

/// Where a new claim or template asks for administrative access. Empty: the namespace does not matter.
pub fn requested(kind: Kind, value: &Value) -> Vec<Path> {
    let (spec, base) = match kind {
        Kind::ResourceClaim => (value.at("spec"), Path::new("spec")),
        Kind::ResourceClaimTemplate => {
            (value.at("spec").at("spec"), Path::new("spec").child("spec"))
        }
        _ => return Vec::new(),
    };
    let requests = base.child("devices").child("requests");
    let asks = |request: &Value| request.at("exactly").opt_bool("adminAccess") == Some(true);
    let all = spec.at("devices").list("requests").iter().enumerate();
    // The path lacks `exactly`, as upstream's does.
    all.filter(|(_, request)| asks(request))
        .map(|(index, _)| requests.index(index).child("adminAccess"))
        .collect()
}

/// Where a new status grants administrative access. Empty also when the stored allocation granted it before.
pub fn granted(value: &Value, old: &Value) -> Vec<Path> {
    let grants = |result: &Value| result.opt_bool("adminAccess") == Some(true);
    if results(old).iter().any(grants) {
        return Vec::new();
    }
    let path = Path::new("status")
        .child("allocation")
        .child("devices")
        .child("results");
    let all = results(value).iter().enumerate();
    all.filter(|(_, result)| grants(result))
        .map(|(index, _)| path.index(index).child("adminAccess"))
        .collect()
}

/// The errors for the places that [`requested`] or [`granted`] found, in a namespace with these labels.
///
/// `namespace` is `Err` with the error's text when the namespace can not be read; upstream then reports an internal
/// error at the first place.
pub fn check(places: &[Path], namespace: Result<&BTreeMap<String, String>, String>) -> ErrorList {
    let Some(first) = places.first() else {
        return ErrorList::new();
    };
    match namespace {
        Err(text) => vec![Error::internal(
            first,
            format!("could not retrieve namespace to verify admin access: {text}"),
        )],
        Ok(labels) if namespace_allows(labels) => ErrorList::new(),
        Ok(_) => places
            .iter()
            .map(|path| Error::forbidden(path, FORBIDDEN))
            .collect(),
    }
}

#[cfg(test)]
mod tests;
