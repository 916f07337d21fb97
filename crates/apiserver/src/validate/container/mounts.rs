//! Volumes in a container: as directories, and as devices.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::super::{list, one_of, text};
use super::Pod;

/// Checks where the volumes of a pod appear in a container.
pub(super) fn mounts(
    mounts: &[Value],
    volumes: &BTreeSet<String>,
    path: &Path,
    errors: &mut ErrorList,
) {
    let mut points: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, mount) in mounts.iter().enumerate() {
        let at = path.index(index);
        let name = text(mount, "name");
        if name.is_empty() {
            errors.push(Error::required(&at.child("name"), ""));
        } else if !volumes.contains(name) {
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
        for key in ["subPath", "subPathExpr"] {
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
        if !text(mount, "subPath").is_empty() && !text(mount, "subPathExpr").is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            errors.push(Error::invalid(
                &at.child("subPathExpr"),
                text(mount, "subPathExpr"),
                detail,
            ));
        }
        let modes = ["Bidirectional", "HostToContainer", "None"];
        one_of(
            text(mount, "mountPropagation"),
            &modes,
            false,
            &at.child("mountPropagation"),
            errors,
        );
    }
}

/// Checks the volumes that a container has as devices.
pub(super) fn devices(container: &Value, pod: &Pod<'_>, path: &Path, errors: &mut ErrorList) {
    let mounted = |key: &str, value: &str| {
        let mut mounts = list(container, "volumeMounts").iter();
        !value.is_empty() && mounts.any(|mount| text(mount, key) == value)
    };
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in list(container, "volumeDevices").iter().enumerate() {
        let at = path.index(index);
        let (name, place) = (text(device, "name"), text(device, "devicePath"));
        let mut invalid = |key: &str, value: &str, detail: &str| {
            errors.push(Error::invalid(&at.child(key), value, detail));
        };
        let unique = "must be unique";
        if !name.is_empty() && !names.insert(name) {
            invalid("name", name, unique);
        }
        if pod.volumes.contains(name) && !pod.claimed.contains(name) {
            let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            invalid("name", name, detail);
        }
        if place.split('/').any(|part| part == "..") {
            invalid("devicePath", place, "can not contain backsteps ('..')");
        } else if !place.is_empty() && !paths.insert(place) {
            invalid("devicePath", place, unique);
        }
        if mounted("name", name) {
            invalid("name", name, "must not already exist in volumeMounts");
        }
        if mounted("mountPath", place) {
            let detail = "must not already exist as a path in volumeMounts";
            invalid("devicePath", place, detail);
        }
        if name.is_empty() {
            errors.push(Error::required(&at.child("name"), ""));
        }
        if !pod.volumes.contains(name) {
            errors.push(Error::not_found(&at.child("name"), name));
        }
        if place.is_empty() {
            errors.push(Error::required(&at.child("devicePath"), ""));
        }
    }
}
