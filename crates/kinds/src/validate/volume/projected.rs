//! Projected volumes and downward API files.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::super::{container, list, text};
use super::{items, mode, needed};

/// Checks a projected volume.
pub(super) fn check(source: &Value, path: &Path, errors: &mut ErrorList) {
    mode(&source["defaultMode"], &path.child("defaultMode"), errors);
    let mut taken = BTreeSet::new();
    let mut take = |place: &str, blamed: &str, errors: &mut ErrorList| {
        if !place.is_empty() && !taken.insert(place.to_owned()) {
            errors.push(Error::invalid(path, blamed, "conflicting duplicate paths"));
        }
    };
    for (index, part) in list(source, "sources").iter().enumerate() {
        let at = path.child("sources").index(index);
        for key in ["secret", "configMap"] {
            if part[key].is_object() {
                let at = at.child(key);
                needed(&part[key], "name", &at, errors);
                items(&part[key], &at, errors);
                for item in list(&part[key], "items") {
                    take(text(item, "path"), text(&part[key], "name"), errors);
                }
            }
        }
        for file in list(&part["downwardAPI"], "items") {
            downward_file(file, &at.child("downwardAPI"), errors);
            take(text(file, "path"), text(file, "path"), errors);
        }
        if part["serviceAccountToken"].is_object() {
            token(&part["serviceAccountToken"], &at, path, errors);
        }
        let kinds = [
            "secret",
            "configMap",
            "downwardAPI",
            "serviceAccountToken",
            "clusterTrustBundle",
            "podCertificate",
        ];
        if kinds.iter().filter(|kind| part[**kind].is_object()).count() > 1 {
            let detail = "may not specify more than 1 volume type per source";
            errors.push(Error::forbidden(&at, detail));
        }
    }
}

/// Upstream reports the path of a token at the volume.
fn token(token: &Value, path: &Path, volume: &Path, errors: &mut ErrorList) {
    let seconds = token["expirationSeconds"].as_i64().unwrap_or_default();
    let detail = if seconds < 600 {
        "may not specify a duration less than 10 minutes"
    } else if seconds > 1 << 32 {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        ""
    };
    if !detail.is_empty() {
        let at = path.child("serviceAccountToken").child("expirationSeconds");
        errors.push(Error::invalid(&at, seconds, detail));
    }
    let place = text(token, "path");
    if place.is_empty() {
        needed(token, "path", volume, errors);
    } else {
        local_path(place, &volume.child("path"), errors);
    }
}

/// Checks a file with a field of the pod; upstream reports it at the source, not at the item.
pub(super) fn downward_file(file: &Value, path: &Path, errors: &mut ErrorList) {
    const FIELDS: [&str; 5] = [
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
    ];
    needed(file, "path", path, errors);
    local_path(text(file, "path"), &path.child("path"), errors);
    let (field, resource) = (&file["fieldRef"], &file["resourceFieldRef"]);
    if field.is_object() {
        container::pod_field(field, &FIELDS, &path.child("fieldRef"), errors);
        if resource.is_object() {
            let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
            errors.push(Error::invalid(path, "resource", detail));
        }
    } else if resource.is_object() {
        container::resource_field(resource, true, &path.child("resourceFieldRef"), errors);
    } else {
        let detail = "one of fieldRef and resourceFieldRef is required";
        errors.push(Error::required(path, detail));
    }
    mode(&file["mode"], &path.child("mode"), errors);
}

/// Validates a path in a volume: names that begin with two dots are reserved for the kubelet.
pub(super) fn local_path(place: &str, path: &Path, errors: &mut ErrorList) {
    if place.starts_with('/') {
        errors.push(Error::invalid(path, place, "must be a relative path"));
    }
    if place.split('/').any(|part| part == "..") {
        errors.push(Error::invalid(path, place, "must not contain '..'"));
    }
    if place.starts_with("..") && !place.starts_with("../") {
        errors.push(Error::invalid(path, place, "must not start with '..'"));
    }
}
