//! Volumes in a container: as directories, and as devices.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::super::{list, text};
use super::Pod;

/// What the elements of a list have in a field.
fn texts<'a>(items: &'a [Value], key: &str) -> BTreeSet<&'a str> {
    items.iter().map(|item| text(item, key)).collect()
}

/// Validates the volume mounts of a container.
pub(crate) fn mounts(
    container: &Value,
    volumes: &BTreeSet<String>,
    path: &Path,
    errors: &mut ErrorList,
) {
    let mounts = list(container, "volumeMounts");
    let [device_names, device_paths] =
        ["name", "devicePath"].map(|key| texts(list(container, "volumeDevices"), key));
    let mut points: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, mount) in mounts.iter().enumerate() {
        let at = path.index(index);
        let name = text(mount, "name");
        if name.is_empty() {
            errors.push(Error::required(&at.child("name"), ""));
        }
        if !volumes.contains(name) {
            errors.push(Error::not_found(&at.child("name"), name));
        }
        let point = text(mount, "mountPath");
        if point.is_empty() {
            errors.push(Error::required(&at.child("mountPath"), ""));
        }
        if points.insert(point, index).is_some() {
            errors.push(Error::invalid(
                &at.child("mountPath"),
                point,
                "must be unique",
            ));
        }
        if device_names.contains(name) {
            let detail = "must not already exist in volumeDevices";
            errors.push(Error::invalid(&at.child("name"), name, detail));
        }
        if device_paths.contains(point) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.push(Error::invalid(&at.child("mountPath"), point, detail));
        }
        // From here on upstream's paths lack the index.
        if !text(mount, "subPath").is_empty() && !text(mount, "subPathExpr").is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            errors.push(Error::invalid(
                &at.child("subPathExpr"),
                text(mount, "subPathExpr"),
                detail,
            ));
        }
        for key in ["subPath", "subPathExpr"] {
            let at = path;
            let sub = text(mount, key);
            if sub.starts_with('/') {
                errors.push(Error::invalid(
                    &at.child(key),
                    sub,
                    "must be a relative path",
                ));
            }
            if sub.split('/').any(|part| part == "..") {
                errors.push(Error::invalid(&at.child(key), sub, "must not contain '..'"));
            }
        }
        propagation(mount, container, path, errors);
    }
}

fn propagation(mount: &Value, container: &Value, path: &Path, errors: &mut ErrorList) {
    const MODES: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
    let at = path.child("mountPropagation");
    let mode = mount["mountPropagation"].as_str();
    if let Some(mode) = mode.filter(|mode| !MODES.contains(mode)) {
        errors.push(Error::not_supported(&at, mode, &MODES));
    }
    if mode == Some("Bidirectional") && container["securityContext"]["privileged"] != true {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.push(Error::forbidden(&at, detail));
    }
    let at = path.child("recursiveReadOnly");
    match mount["recursiveReadOnly"].as_str() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if mount["readOnly"] != true {
                let detail = "may only be specified when readOnly is true";
                errors.push(Error::forbidden(&at, detail));
            }
            if mode.is_some_and(|mode| mode != "None") {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.push(Error::forbidden(&at, detail));
            }
        }
        Some(other) => {
            let known = ["Disabled", "Enabled", "IfPossible"];
            errors.push(Error::not_supported(&at, other, &known));
        }
    }
}

/// Checks the volumes that a container has as devices.
pub(crate) fn devices(container: &Value, pod: &Pod<'_>, path: &Path, errors: &mut ErrorList) {
    let [mounted, mount_points] =
        ["name", "mountPath"].map(|key| texts(list(container, "volumeMounts"), key));
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in list(container, "volumeDevices").iter().enumerate() {
        let at = path.index(index);
        let (name, place) = (text(device, "name"), text(device, "devicePath"));
        let invalid = |key: &str, value: &str, detail: &str, errors: &mut ErrorList| {
            errors.push(Error::invalid(&at.child(key), value, detail));
        };
        let unique = "must be unique";
        if name.is_empty() {
            errors.push(Error::required(&at.child("name"), ""));
        }
        if !name.is_empty() && !names.insert(name) {
            invalid("name", name, unique, errors);
        }
        if !pod.volumes.contains(name) {
            errors.push(Error::not_found(&at.child("name"), name));
        } else if !pod.claimed.contains(name) {
            let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            invalid("name", name, detail, errors);
        }
        if place.is_empty() {
            errors.push(Error::required(&at.child("devicePath"), ""));
        }
        if paths.contains(place) {
            invalid("devicePath", place, unique, errors);
        }
        if place.split('/').any(|part| part == "..") {
            invalid(
                "devicePath",
                place,
                "can not contain backsteps ('..')",
                errors,
            );
        } else {
            paths.insert(place);
        }
        if !name.is_empty() && mounted.contains(name) {
            let detail = "must not already exist in volumeMounts";
            invalid("name", name, detail, errors);
        }
        if !place.is_empty() && mount_points.contains(place) {
            let detail = "must not already exist as a path in volumeMounts";
            invalid("devicePath", place, detail, errors);
        }
    }
}
