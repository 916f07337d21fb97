//! Kinds of volumes that storage drivers have replaced.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::super::{between, entries, list, rule, text};
use super::needed;

/// Checks such a volume.
pub(crate) fn check(volume: &Value, kind: &str, path: &Path, errors: &mut ErrorList) {
    let source = &volume[kind];
    let at = path.child(match kind {
        "gcePersistentDisk" => "persistentDisk",
        other => other,
    });
    let must_have: &[&str] = match kind {
        "gitRepo" => &["repository"],
        "gcePersistentDisk" => &["pdName"],
        "awsElasticBlockStore" | "cinder" | "portworxVolume" => &["volumeID"],
        "glusterfs" => &["endpoints", "path"],
        "flexVolume" => &["driver"],
        "azureFile" => &["secretName", "shareName"],
        "azureDisk" => &["diskName", "diskURI"],
        "vsphereVolume" => &["volumePath"],
        "photonPersistentDisk" => &["pdID"],
        "scaleIO" => &["gateway", "system", "volumeName"],
        _ => &[],
    };
    for key in must_have {
        needed(source, key, &at, errors);
    }
    if matches!(kind, "rbd" | "cephfs") && list(source, "monitors").is_empty() {
        errors.push(Error::required(&at.child("monitors"), ""));
    }
    match kind {
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            let partition = source["partition"].as_i64().unwrap_or_default();
            if !(0..=255).contains(&partition) {
                // None is allowed, but not said to be.
                let detail = between(1, 255);
                errors.push(Error::invalid(&at.child("partition"), partition, detail));
            }
        }
        "gitRepo" => {
            let at = at.child("directory");
            super::super::security::descending(text(source, "directory"), &at, errors);
        }
        "iscsi" => iscsi(volume, path, errors),
        "fc" => fibre_channel(source, &at, errors),
        "flocker" => flocker(source, &at, errors),
        "rbd" => needed(source, "image", &at, errors),
        "cinder" => secret(source, &at, errors),
        "quobyte" => quobyte(source, &at, errors),
        "flexVolume" => {
            for (key, _) in entries(source, "options") {
                let space = key.split('/').next().unwrap_or_default();
                let space = format!(".{}", space.to_lowercase());
                if space.ends_with(".kubernetes.io") || space.ends_with(".k8s.io") {
                    let detail = "kubernetes.io and k8s.io namespaces are reserved";
                    errors.push(Error::invalid(
                        &at.child("options").key(key),
                        key.as_str(),
                        detail,
                    ));
                }
            }
        }
        "azureDisk" => azure_disk(source, &at, errors),
        "storageos" => {
            let name = text(source, "volumeName");
            needed(source, "volumeName", &at, errors);
            if !name.is_empty() {
                rule(
                    names::dns1123_label(name),
                    name,
                    &at.child("volumeName"),
                    errors,
                );
            }
            let space = text(source, "volumeNamespace");
            if !space.is_empty() {
                let at = at.child("volumeNamespace");
                rule(names::dns1123_label(space), space, &at, errors);
            }
            secret(source, &at, errors);
        }
        _ => {}
    }
}

fn secret(source: &Value, path: &Path, errors: &mut ErrorList) {
    if source["secretRef"].is_object() {
        needed(
            &source["secretRef"],
            "name",
            &path.child("secretRef"),
            errors,
        );
    }
}

fn azure_disk(source: &Value, path: &Path, errors: &mut ErrorList) {
    let known: [(&str, [&str; 3]); 2] = [
        ("cachingMode", ["None", "ReadOnly", "ReadWrite"]),
        ("kind", ["Dedicated", "Managed", "Shared"]),
    ];
    for (key, known) in known {
        if let Some(found) = source[key].as_str().filter(|found| !known.contains(found)) {
            errors.push(Error::not_supported(&path.child(key), found, &known));
        }
    }
    let place = text(source, "diskURI");
    let form = match source["kind"].as_str() {
        Some("Managed") if !place.starts_with("/subscriptions/") => {
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
        }
        Some(kind) if kind != "Managed" && !place.starts_with("https://") => {
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
        }
        _ => return,
    };
    errors.push(Error::not_supported(&path.child("diskURI"), place, &[form]));
}

fn quobyte(source: &Value, path: &Path, errors: &mut ErrorList) {
    let registry = text(source, "registry");
    let pairs = "must be a host:port pair or multiple pairs separated by commas";
    if registry.is_empty() {
        errors.push(Error::required(&path.child("registry"), pairs));
    } else if text(source, "tenant").len() >= 65 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.push(Error::required(&path.child("tenant"), detail));
    } else {
        let is_pair = |pair: &str| {
            pair.rsplit_once(':').is_some_and(|(host, _)| {
                !host.contains(':') || (host.starts_with('[') && host.ends_with(']'))
            })
        };
        for _ in registry.split(',').filter(|pair| !is_pair(pair)) {
            errors.push(Error::invalid(&path.child("registry"), registry, pairs));
        }
    }
    needed(source, "volume", path, errors);
}

fn flocker(source: &Value, path: &Path, errors: &mut ErrorList) {
    let name = text(source, "datasetName");
    match (name.is_empty(), text(source, "datasetUUID").is_empty()) {
        (true, true) => {
            let detail = "one of datasetName and datasetUUID is required";
            errors.push(Error::required(path, detail));
        }
        (false, false) => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            errors.push(Error::invalid(path, "resource", detail));
        }
        _ => {}
    }
    if name.contains('/') {
        let at = path.child("datasetName");
        errors.push(Error::invalid(&at, name, "must not contain '/'"));
    }
}

fn fibre_channel(source: &Value, path: &Path, errors: &mut ErrorList) {
    let (targets, at) = (list(source, "targetWWNs"), path.child("targetWWNs"));
    match (targets.is_empty(), list(source, "wwids").is_empty()) {
        (true, true) => {
            let detail = "must specify either targetWWNs or wwids, but not both";
            errors.push(Error::required(&at, detail));
        }
        (false, false) => {
            let detail = "targetWWNs and wwids can not be specified simultaneously";
            errors.push(Error::invalid(&at, &source["targetWWNs"], detail));
        }
        _ => {}
    }
    if targets.is_empty() {
        return;
    }
    match source["lun"].as_i64() {
        None => {
            let detail = "lun is required if targetWWNs is specified";
            errors.push(Error::required(&path.child("lun"), detail));
        }
        Some(lun) => unit(lun, path, errors),
    }
}

fn unit(lun: i64, path: &Path, errors: &mut ErrorList) {
    if !(0..=255).contains(&lun) {
        errors.push(Error::invalid(&path.child("lun"), lun, between(0, 255)));
    }
}

fn iscsi(volume: &Value, path: &Path, errors: &mut ErrorList) {
    const LONGEST: usize = 64;
    let (source, at) = (&volume["iscsi"], path.child("iscsi"));
    needed(source, "targetPortal", &at, errors);
    let name = text(source, "iqn");
    if name.is_empty() {
        errors.push(Error::required(&at.child("iqn"), ""));
    } else {
        qualified(name, &at.child("iqn"), errors);
    }
    unit(source["lun"].as_i64().unwrap_or_default(), &at, errors);
    let keys = ["chapAuthDiscovery", "chapAuthSession"];
    if keys.iter().any(|key| source[*key] == true) && !source["secretRef"].is_object() {
        errors.push(Error::required(&at.child("secretRef"), ""));
    }
    if let Some(initiator) = source["initiatorName"].as_str() {
        qualified(initiator, &at.child("initiatorname"), errors);
        let (name, portal) = (text(volume, "name"), text(source, "targetPortal"));
        if name.len() + 1 + portal.len() > LONGEST {
            let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
            errors.push(Error::invalid(&path.child("name"), name, detail));
        }
    }
}

/// Checks a name of one of the three forms that initiators and targets have.
fn qualified(name: &str, path: &Path, errors: &mut ErrorList) {
    let hex = |rest: &str, lengths: &[usize]| {
        lengths.contains(&rest.len()) && rest.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let well_formed = match name.get(..3) {
        Some("iqn") => is_dated(&name[3..]),
        Some("eui") => name[3..].strip_prefix('.').is_some_and(|it| hex(it, &[16])),
        Some("naa") => name[3..]
            .strip_prefix('.')
            .is_some_and(|it| hex(it, &[16, 32])),
        _ => {
            let detail = "must be valid format starting with iqn, eui, or naa";
            return errors.push(Error::invalid(path, name, detail));
        }
    };
    if !well_formed {
        errors.push(Error::invalid(path, name, "must be valid format"));
    }
}

/// `.YYYY-MM.` and the reversed domain of the naming authority.
fn is_dated(rest: &str) -> bool {
    let mut parts = rest.strip_prefix('.').unwrap_or_default().splitn(2, '.');
    let (date, domain) = (
        parts.next().unwrap_or_default().as_bytes(),
        parts.next().unwrap_or_default(),
    );
    let digits = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    date.len() == 7
        && date[4] == b'-'
        && digits(&date[..4])
        && digits(&date[5..])
        && !domain.is_empty()
        && !domain.contains(char::is_whitespace)
}
