//! Projected volumes and downward API files.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::super::{container, internal, label_selector, list, rule, signer, text};
use super::{items, mode, needed};

/// Checks a projected volume.
pub(super) fn check(source: &Value, path: &Path, errors: &mut ErrorList) {
    mode(&source["defaultMode"], &path.child("defaultMode"), errors);
    let mut taken = BTreeSet::new();
    let mut take = |place: &str, blamed: &str, errors: &mut ErrorList| {
        if !taken.insert(place.to_owned()) {
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
                for item in list(&part[key], "items").iter().filter(has_path) {
                    take(text(item, "path"), text(&part[key], "name"), errors);
                }
            }
        }
        for file in list(&part["downwardAPI"], "items") {
            downward_file(file, &at.child("downwardAPI"), errors);
            if has_path(&file) {
                take(text(file, "path"), text(file, "path"), errors);
            }
        }
        if part["serviceAccountToken"].is_object() {
            token(&part["serviceAccountToken"], &at, path, errors);
        }
        if part["clusterTrustBundle"].is_object() {
            let bundle = &part["clusterTrustBundle"];
            trust_bundle(bundle, &at.child("clusterTrustBundle"), errors);
            // As upstream, one without a path as well.
            take(text(bundle, "path"), text(bundle, "path"), errors);
        }
        if part["podCertificate"].is_object() {
            let (wanted, at) = (&part["podCertificate"], at.child("podCertificate"));
            pod_certificate(wanted, &at, errors);
            let mut paths = 0;
            for key in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
                let place = text(wanted, key);
                if !place.is_empty() {
                    paths += 1;
                    local_path(place, &at.child(key), errors);
                    take(place, place, errors);
                }
            }
            if paths == 0 {
                let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
                errors.push(Error::required(&at, detail));
            }
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

/// Whether a file has a path: one without is an error elsewhere.
fn has_path(file: &&Value) -> bool {
    !text(file, "path").is_empty()
}

/// Checks which trust bundles are meant, and where they are to be.
fn trust_bundle(bundle: &Value, path: &Path, errors: &mut ErrorList) {
    let (name, signer) = (bundle["name"].as_str(), bundle["signerName"].as_str());
    let selector = &bundle["labelSelector"];
    match (name, signer) {
        (Some(_), Some(_)) => {
            let place = [
                "spec",
                "volumes",
                "projected",
                "sources",
                "clusterTrustBundle",
            ];
            let shown = internal::shown(("", "v1", "Pod"), &place, bundle);
            let detail = "only one of name and signerName may be used";
            errors.push(Error::invalid(path, shown, detail));
        }
        (Some(name), None) => {
            let at = path.child("name");
            if name.is_empty() {
                errors.push(Error::required(&at, "must be a valid object name"));
            }
            let signer = name.rsplit_once(':').map(|(signer, _)| signer);
            let signer = signer.unwrap_or_default().replace(':', "/");
            let wrong = signer::bundle_name(name, &signer).into_iter();
            let wrong = wrong.map(|why| format!("not a valid clustertrustbundlename: {why}"));
            rule(wrong.collect(), name, &at, errors);
            if selector.is_object() {
                let detail = "labelSelector must be unset if name is specified";
                let shown = internal::selector(selector);
                errors.push(Error::invalid(&path.child("labelSelector"), shown, detail));
            }
        }
        (None, Some(name)) => {
            let at = path.child("signerName");
            if name.is_empty() {
                errors.push(Error::required(&at, "must be a valid signer name"));
            }
            signer::validate(name, &at, errors);
            if selector.is_object() {
                label_selector(selector, &path.child("labelSelector"), errors);
            }
        }
        (None, None) => {
            let detail = "either name or signerName must be specified";
            errors.push(Error::required(path, detail));
        }
    }
    let place = text(bundle, "path");
    needed(bundle, "path", path, errors);
    local_path(place, &path.child("path"), errors);
}

/// Checks what is requested of a signer.
fn pod_certificate(wanted: &Value, path: &Path, errors: &mut ErrorList) {
    const KEY_TYPES: [&str; 6] = [
        "RSA3072",
        "RSA4096",
        "ECDSAP256",
        "ECDSAP384",
        "ECDSAP521",
        "ED25519",
    ];
    const SHORTEST: i64 = 60 * 60;
    let name = text(wanted, "signerName");
    signer::validate(name, &path.child("signerName"), errors);
    let at = path.child("userAnnotations");
    signer::user_annotations(wanted, "userAnnotations", &at, errors);
    let key = text(wanted, "keyType");
    if !KEY_TYPES.contains(&key) {
        let at = path.child("keyType");
        errors.push(Error::not_supported(&at, key, &KEY_TYPES));
    }
    if let Some(seconds) = wanted["maxExpirationSeconds"].as_i64() {
        let (at, longest) = (
            path.child("maxExpirationSeconds"),
            signer::longest_lifetime(name),
        );
        if seconds < SHORTEST {
            let detail = format!("if provided, maxExpirationSeconds must be >= {SHORTEST}");
            errors.push(Error::invalid(&at, seconds, detail));
        }
        if seconds > longest {
            let detail = format!("if provided, maxExpirationSeconds must be <= {longest}");
            errors.push(Error::invalid(&at, seconds, detail));
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

#[cfg(test)]
mod tests;
