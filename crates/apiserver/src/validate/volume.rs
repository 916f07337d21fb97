//! Volumes.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::{Quantity, names};
use serde_json::Value;

use super::{between, container, list, rule, text};

/// Checks the volumes of a pod; answers their names.
pub(super) fn validate(volumes: &[Value], path: &Path, errors: &mut ErrorList) -> BTreeSet<String> {
    let mut names_seen = BTreeSet::new();
    for (index, volume) in volumes.iter().enumerate() {
        let at = path.index(index);
        source(volume, &at, errors);
        let name = text(volume, "name");
        let texts = names::dns1123_label(name);
        if name.is_empty() {
            errors.push(Error::required(&at.child("name"), ""));
        } else if !texts.is_empty() {
            rule(texts, name, &at.child("name"), errors);
        } else if !names_seen.insert(name.to_owned()) {
            errors.push(Error::duplicate(&at.child("name"), name));
        }
    }
    names_seen
}

fn source(volume: &Value, path: &Path, errors: &mut ErrorList) {
    let mut count = 0;
    for (kind, source) in volume.as_object().into_iter().flatten() {
        if kind == "name" || source.is_null() {
            continue;
        }
        let at = path.child(kind);
        if count > 0 {
            errors.push(Error::forbidden(
                &at,
                "may not specify more than 1 volume type",
            ));
            continue;
        }
        count += 1;
        match kind.as_str() {
            "hostPath" => host_path(source, &at, errors),
            "secret" => {
                needed(source, "secretName", &at, errors);
                mode(&source["defaultMode"], &at.child("defaultMode"), errors);
                items(source, &at, errors);
            }
            "configMap" => {
                needed(source, "name", &at, errors);
                mode(&source["defaultMode"], &at.child("defaultMode"), errors);
                items(source, &at, errors);
            }
            "persistentVolumeClaim" => needed(source, "claimName", &at, errors),
            "nfs" => {
                needed(source, "server", &at, errors);
                needed(source, "path", &at, errors);
                let place = text(source, "path");
                if !place.is_empty() && !place.starts_with('/') {
                    let detail = "must be an absolute path";
                    errors.push(Error::invalid(&at.child("path"), place, detail));
                }
            }
            "csi" => needed(source, "driver", &at, errors),
            "ephemeral" if !source["volumeClaimTemplate"].is_object() => {
                errors.push(Error::required(&at.child("volumeClaimTemplate"), ""));
            }
            "emptyDir" => {
                let size = source["sizeLimit"].as_str().and_then(|it| it.parse().ok());
                if size.is_some_and(|size: Quantity| size < Quantity::ZERO) {
                    let detail = "SizeLimit field must be a valid resource quantity";
                    errors.push(Error::forbidden(&at.child("sizeLimit"), detail));
                }
            }
            "projected" => projected(source, &at, errors),
            "downwardAPI" => {
                mode(&source["defaultMode"], &at.child("defaultMode"), errors);
                downward_files(source, &at, errors);
            }
            _ => {}
        }
    }
    if count == 0 {
        errors.push(Error::required(path, "must specify a volume type"));
    }
}

fn projected(source: &Value, path: &Path, errors: &mut ErrorList) {
    mode(&source["defaultMode"], &path.child("defaultMode"), errors);
    for (index, part) in list(source, "sources").iter().enumerate() {
        let at = path.child("sources").index(index);
        for key in ["secret", "configMap"] {
            if part[key].is_object() {
                needed(&part[key], "name", &at.child(key), errors);
                items(&part[key], &at.child(key), errors);
            }
        }
        if part["downwardAPI"].is_object() {
            downward_files(&part["downwardAPI"], &at.child("downwardAPI"), errors);
        }
        let token = &part["serviceAccountToken"];
        if token.is_object() {
            let at = at.child("serviceAccountToken");
            let seconds = token["expirationSeconds"].as_i64().unwrap_or_default();
            let detail = if seconds < 600 {
                "may not specify a duration less than 10 minutes"
            } else if seconds > 1 << 32 {
                "may not specify a duration larger than 2^32 seconds"
            } else {
                ""
            };
            if !detail.is_empty() {
                let at = at.child("expirationSeconds");
                errors.push(Error::invalid(&at, seconds, detail));
            }
            needed(token, "path", &at, errors);
        }
    }
}

/// Files with fields of the pod; upstream reports them at the source, not at the item.
fn downward_files(source: &Value, path: &Path, errors: &mut ErrorList) {
    const FIELDS: [&str; 5] = [
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
    ];
    for file in list(source, "items") {
        needed(file, "path", path, errors);
        let (field, resource) = (&file["fieldRef"], &file["resourceFieldRef"]);
        if field.is_object() {
            let (at, name) = (
                path.child("fieldRef").child("fieldPath"),
                text(field, "fieldPath"),
            );
            let subscript =
                name.starts_with("metadata.labels['") || name.starts_with("metadata.annotations['");
            if name.is_empty() {
                errors.push(Error::required(&at, ""));
            } else if !subscript && !FIELDS.contains(&name) {
                errors.push(Error::not_supported(&at, name, &FIELDS));
            }
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
}

fn needed(source: &Value, key: &str, path: &Path, errors: &mut ErrorList) {
    if text(source, key).is_empty() {
        errors.push(Error::required(&path.child(key), ""));
    }
}

fn mode(value: &Value, path: &Path, errors: &mut ErrorList) {
    if let Some(mode) = value.as_i64().filter(|mode| !(0..=0o777).contains(mode)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.push(Error::invalid(path, mode, detail));
    }
}

fn items(source: &Value, path: &Path, errors: &mut ErrorList) {
    for (index, item) in list(source, "items").iter().enumerate() {
        let at = path.child("items").index(index);
        needed(item, "key", &at, errors);
        let target = text(item, "path");
        if target.is_empty() {
            errors.push(Error::required(&at.child("path"), ""));
        } else if target.starts_with('/') {
            errors.push(Error::invalid(
                &at.child("path"),
                target,
                "must be a relative path",
            ));
        } else if target.split('/').any(|part| part == "..") {
            errors.push(Error::invalid(
                &at.child("path"),
                target,
                "must not contain '..'",
            ));
        }
        mode(&item["mode"], &at.child("mode"), errors);
    }
}

pub(super) fn host_path(source: &Value, path: &Path, errors: &mut ErrorList) {
    const TYPES: [&str; 8] = [
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ];
    let target = text(source, "path");
    if target.is_empty() {
        errors.push(Error::required(&path.child("path"), ""));
    } else if target.split('/').any(|part| part == "..") {
        errors.push(Error::invalid(
            &path.child("path"),
            target,
            "must not contain '..'",
        ));
    }
    let kind = text(source, "type");
    if !TYPES.contains(&kind) {
        errors.push(Error::not_supported(&path.child("type"), kind, &TYPES));
    }
}

/// A port of a volume source or service.
pub(super) fn port(value: i64, path: &Path, errors: &mut ErrorList) {
    if !(1..=65535).contains(&value) {
        errors.push(Error::invalid(path, value, between(1, 65535)));
    }
}
