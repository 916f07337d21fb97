//! Volumes.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::{Quantity, names};
use allot_model::validate::meta as meta_rules;
use serde_json::Value;

use super::{between, list, one_of, rule, storage, text};

pub(crate) mod classic;
mod projected;

/// Checks the volumes of a pod with its name, or of a template; answers the names of those without a mistake.
pub(crate) fn validate(
    volumes: &[Value],
    pod: Option<&str>,
    path: &Path,
    errors: &mut ErrorList,
) -> BTreeSet<String> {
    let mut names_seen = BTreeSet::new();
    for (index, volume) in volumes.iter().enumerate() {
        let at = path.index(index);
        let before = errors.len();
        source(volume, pod, &at, errors);
        let name = text(volume, "name");
        let texts = names::dns1123_label(name);
        if name.is_empty() {
            errors.push(Error::required(&at.child("name"), ""));
        } else if !texts.is_empty() {
            rule(texts, name, &at.child("name"), errors);
        } else if names_seen.contains(name) {
            errors.push(Error::duplicate(&at.child("name"), name));
        }
        if errors.len() == before {
            names_seen.insert(name.to_owned());
        }
    }
    names_seen
}

/// The kinds in upstream's order: the first one of a volume is the one that counts.
const KINDS: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

fn source(volume: &Value, pod: Option<&str>, path: &Path, errors: &mut ErrorList) {
    let mut count = 0;
    for kind in KINDS.into_iter().filter(|kind| volume[*kind].is_object()) {
        count += 1;
        if count == 1 {
            one(volume, kind, pod, path, errors);
        } else {
            let name = match kind {
                "cephfs" => "cephFS",
                // Not a mistake of ours.
                "downwardAPI" => "downwarAPI",
                other => other,
            };
            let detail = "may not specify more than 1 volume type";
            errors.push(Error::forbidden(&path.child(name), detail));
        }
    }
    if count == 0 {
        errors.push(Error::required(path, "must specify a volume type"));
    }
}

fn one(volume: &Value, kind: &str, pod: Option<&str>, path: &Path, errors: &mut ErrorList) {
    let (source, at) = (&volume[kind], path.child(kind));
    match kind {
        "emptyDir" => {
            let size = source["sizeLimit"].as_str().and_then(|it| it.parse().ok());
            if size.is_some_and(|size: Quantity| size < Quantity::ZERO) {
                let detail = "SizeLimit field must be a valid resource quantity";
                errors.push(Error::forbidden(&at.child("sizeLimit"), detail));
            }
        }
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
        "nfs" => nfs(source, &at, errors),
        "csi" => {
            driver_name(text(source, "driver"), &at.child("driver"), errors);
            let secret = &source["nodePublishSecretRef"];
            let name = text(secret, "name");
            if secret.is_object() && name.is_empty() {
                let at = at.child("nodePublishSecretRef").child("name");
                errors.push(Error::required(&at, ""));
            } else if !name.is_empty() {
                rule(
                    names::dns1123_subdomain(name),
                    name,
                    &at.child("name"),
                    errors,
                );
            }
        }
        "ephemeral" => ephemeral(volume, pod, path, errors),
        "projected" => projected::check(source, &at, errors),
        "downwardAPI" => {
            mode(&source["defaultMode"], &at.child("defaultMode"), errors);
            for file in list(source, "items") {
                projected::downward_file(file, &at, errors);
            }
        }
        "image" => {
            if pod.is_some() {
                needed(source, "reference", &at, errors);
            }
            let policies = ["Always", "IfNotPresent", "Never"];
            let at = at.child("pullPolicy");
            one_of(text(source, "pullPolicy"), &policies, true, &at, errors);
        }
        _ => classic::check(volume, kind, path, errors),
    }
}

/// A generic ephemeral volume, whose claim is named after the pod and the volume.
fn ephemeral(volume: &Value, pod: Option<&str>, path: &Path, errors: &mut ErrorList) {
    let template = &volume["ephemeral"]["volumeClaimTemplate"];
    let at = path.child("ephemeral").child("volumeClaimTemplate");
    if template.is_object() {
        errors.extend(meta_rules::template_meta(
            &template["metadata"],
            &at.child("metadata"),
        ));
        storage::claim_spec(&template["spec"], &at.child("spec"), errors);
    } else {
        errors.push(Error::required(&at, ""));
    }
    let name = text(volume, "name");
    if let Some(pod) = pod.filter(|pod| !pod.is_empty() && !name.is_empty()) {
        let claim = format!("{pod}-{name}");
        for text in names::dns1123_subdomain(&claim) {
            let detail = format!("PVC name {claim:?}: {text}");
            errors.push(Error::invalid(&path.child("name"), name, detail));
        }
    }
}

pub(crate) fn needed(source: &Value, key: &str, path: &Path, errors: &mut ErrorList) {
    if text(source, key).is_empty() {
        errors.push(Error::required(&path.child(key), ""));
    }
}

pub(crate) fn mode(value: &Value, path: &Path, errors: &mut ErrorList) {
    if let Some(mode) = value.as_i64().filter(|mode| !(0..=0o777).contains(mode)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.push(Error::invalid(path, mode, detail));
    }
}

pub(crate) fn items(source: &Value, path: &Path, errors: &mut ErrorList) {
    for (index, item) in list(source, "items").iter().enumerate() {
        let at = path.child("items").index(index);
        needed(item, "key", &at, errors);
        let target = text(item, "path");
        if target.is_empty() {
            errors.push(Error::required(&at.child("path"), ""));
        }
        projected::local_path(target, &at.child("path"), errors);
        mode(&item["mode"], &at.child("mode"), errors);
    }
}

pub(crate) fn nfs(source: &Value, at: &Path, errors: &mut ErrorList) {
    needed(source, "server", at, errors);
    needed(source, "path", at, errors);
    let place = text(source, "path");
    if !place.starts_with('/') {
        let detail = "must be an absolute path";
        errors.push(Error::invalid(&at.child("path"), place, detail));
    }
}

pub(crate) fn host_path(source: &Value, path: &Path, errors: &mut ErrorList) {
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
        return errors.push(Error::required(&path.child("path"), ""));
    }
    super::security::without_steps_up(target, &path.child("path"), errors);
    let kind = text(source, "type");
    if !TYPES.contains(&kind) {
        errors.push(Error::not_supported(&path.child("type"), kind, &TYPES));
    }
}

/// A port of a volume source or service.
pub(crate) fn port(value: i64, path: &Path, errors: &mut ErrorList) {
    if !(1..=65535).contains(&value) {
        errors.push(Error::invalid(path, value, between(1, 65535)));
    }
}

/// The name of a driver; in upper case, too.
pub(crate) fn driver_name(name: &str, path: &Path, errors: &mut ErrorList) {
    if name.is_empty() {
        return errors.push(Error::required(path, ""));
    }
    if name.len() > 63 {
        errors.push(Error::too_long(path, 63));
    }
    rule(
        names::dns1123_subdomain(&name.to_lowercase()),
        name,
        path,
        errors,
    );
}
