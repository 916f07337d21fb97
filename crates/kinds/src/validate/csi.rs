//! Storage drivers: capabilities, node registration, capacity, and attachments.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::{Quantity, names};
use serde_json::Value;

use super::{
    IMMUTABLE, entries, internal, label_selector, list, not_negative, persistent, rule, storage,
    text,
};
use crate::validate::volume::driver_name;

/// Longest node ID of a driver.
const MAX_NODE_ID: usize = 256;
/// Largest metadata of an attachment, and largest message of its errors, in bytes.
const MAX_METADATA: usize = 256 << 10;
const MAX_MESSAGE: usize = 1024;
/// Shortest and longest life of a token for a driver.
const TOKEN_SECONDS: (i64, i64) = (600, 1 << 32);
/// Minimum period for reading the allocatable count of a driver.
const MIN_UPDATE_SECONDS: i64 = 10;

fn fixed(object: &Value, old: &Value, key: &str, path: &Path, errors: &mut ErrorList) {
    if object[key] != old[key] {
        errors.push(Error::invalid(path, &object[key], IMMUTABLE));
    }
}

/// Checks a driver.
pub(crate) fn driver(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    for (key, shown) in [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ] {
        if spec[key].is_null() {
            errors.push(Error::required(&path.child(shown), ""));
        }
    }
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    let at = path.child("fsGroupPolicy");
    if let Some(policy) = spec["fsGroupPolicy"].as_str()
        && !policies.contains(&policy)
    {
        errors.push(Error::not_supported(&at, policy, &policies));
    }
    tokens(
        list(spec, "tokenRequests"),
        &path.child("tokenRequests"),
        errors,
    );
    let modes = ["Ephemeral", "Persistent"];
    for mode in list(spec, "volumeLifecycleModes") {
        let mode = mode.as_str().unwrap_or_default();
        if !modes.contains(&mode) {
            let at = path.child("volumeLifecycleModes");
            errors.push(Error::not_supported(
                &at,
                mode,
                &["Persistent", "Ephemeral"],
            ));
        }
    }
    if spec["seLinuxMount"].is_null() {
        errors.push(Error::required(&path.child("seLinuxMount"), ""));
    }
    let key = "nodeAllocatableUpdatePeriodSeconds";
    if let Some(seconds) = spec[key].as_i64().filter(|it| *it < MIN_UPDATE_SECONDS) {
        let detail = "must be greater than or equal to 10 seconds";
        errors.push(Error::invalid(&path.child(key), seconds, detail));
    }
    let key = "serviceAccountTokenInSecrets";
    if !spec[key].is_null() && list(spec, "tokenRequests").is_empty() {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.push(Error::invalid(&path.child(key), &spec[key], detail));
    }
}

fn tokens(tokens: &[Value], path: &Path, errors: &mut ErrorList) {
    let mut audiences = BTreeSet::new();
    for (index, token) in tokens.iter().enumerate() {
        let at = path.index(index);
        let audience = text(token, "audience");
        if !audiences.insert(audience) {
            errors.push(Error::duplicate(&at.child("audience"), audience));
            continue;
        }
        let seconds = token["expirationSeconds"].as_i64();
        let at = at.child("expirationSeconds");
        if let Some(seconds) = seconds.filter(|it| *it < TOKEN_SECONDS.0) {
            let detail = "may not specify a duration less than 10 minutes";
            errors.push(Error::invalid(&at, seconds, detail));
        }
        if let Some(seconds) = seconds.filter(|it| *it > TOKEN_SECONDS.1) {
            let detail = "may not specify a duration larger than 2^32 seconds";
            errors.push(Error::invalid(&at, seconds, detail));
        }
    }
}

/// Checks a change of a driver.
pub(crate) fn driver_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    driver(object, errors);
    let (spec, before, path) = (&object["spec"], &old["spec"], Path::new("spec"));
    for (key, shown) in [
        ("attachRequired", "attachedRequired"),
        ("volumeLifecycleModes", "volumeLifecycleModes"),
    ] {
        fixed(spec, before, key, &path.child(shown), errors);
    }
}

/// Checks the drivers of a node.
pub(crate) fn node(object: &Value, errors: &mut ErrorList) {
    let path = Path::new("spec").child("drivers");
    let mut seen = BTreeSet::new();
    for (index, driver) in list(&object["spec"], "drivers").iter().enumerate() {
        let at = path.index(index);
        let name = text(driver, "name");
        driver_name(name, &at.child("name"), errors);
        let node = text(driver, "nodeID");
        let place = at.child("nodeID");
        if node.is_empty() {
            errors.push(Error::required(&place, ""));
        }
        if node.len() > MAX_NODE_ID {
            let detail = format!("must be {MAX_NODE_ID} characters or less");
            errors.push(Error::invalid(&place, node, detail));
        }
        let count = &driver["allocatable"]["count"];
        not_negative(count, &at.child("allocatable").child("count"), errors);
        if !seen.insert(name) {
            errors.push(Error::duplicate(&at.child("name"), name));
        }
        let mut keys = BTreeSet::new();
        for key in list(driver, "topologyKeys") {
            let key = key.as_str().unwrap_or_default();
            if key.is_empty() {
                errors.push(Error::required(&at, ""));
            }
            if !keys.insert(key) {
                errors.push(Error::duplicate(&at, key));
            }
            rule(names::qualified_name(key), key, &at, errors);
        }
    }
}

/// Validates an update of a CSINode: of a remaining driver, only the allocatable count may change.
pub(crate) fn node_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    node(object, errors);
    let lasting = |driver: &Value| {
        let mut driver = driver.clone();
        if let Value::Object(map) = &mut driver {
            map.remove("allocatable");
        }
        driver
    };
    let mut now_by_name: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for driver in list(&object["spec"], "drivers") {
        let same = now_by_name.entry(text(driver, "name")).or_default();
        same.push(driver);
    }
    for before in list(&old["spec"], "drivers") {
        for now in now_by_name.get(text(before, "name")).into_iter().flatten() {
            let now_fixed = lasting(now);
            if now_fixed != lasting(before) {
                let at = Path::new("spec").child("drivers");
                let kind = ("storage.k8s.io", "v1", "CSINode");
                let shown = internal::shown(kind, &["spec", "drivers"], &now_fixed);
                errors.push(Error::invalid(&at, shown, IMMUTABLE));
            }
        }
    }
}

/// Checks how much a driver has left.
pub(crate) fn capacity(object: &Value, errors: &mut ErrorList) {
    let topology = &object["nodeTopology"];
    if topology.is_object() {
        label_selector(topology, &Path::new("nodeTopology"), errors);
    }
    let class = text(object, "storageClassName");
    let at = Path::new("storageClassName");
    rule(names::dns1123_subdomain(class), class, &at, errors);
    let amount = object["capacity"].as_str();
    if let Some(amount) = amount.and_then(|it| it.parse::<Quantity>().ok())
        && amount < Quantity::ZERO
    {
        let detail = "must be greater than or equal to 0";
        errors.push(Error::invalid(
            &Path::new("capacity"),
            &object["capacity"],
            detail,
        ));
    }
}

/// Checks a change of how much a driver has left.
pub(crate) fn capacity_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    capacity(object, errors);
    for key in ["nodeTopology", "storageClassName"] {
        fixed(object, old, key, &Path::new(key), errors);
    }
}

/// Checks an attachment; a new one has to name its driver properly.
pub(crate) fn attachment(object: &Value, create: bool, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let attacher = text(spec, "attacher");
    if attacher.is_empty() {
        errors.push(Error::required(&path.child("attacher"), ""));
    }
    let (source, at) = (&spec["source"], path.child("source"));
    let volume = source["persistentVolumeName"].as_str();
    let only_one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (source["inlineVolumeSpec"].is_object(), volume) {
        (false, None) => errors.push(Error::required(&at, only_one)),
        (true, Some(_)) => errors.push(Error::forbidden(&at, only_one)),
        (false, Some("")) => {
            let detail = "must specify non empty persistentVolumeName";
            errors.push(Error::required(&at.child("persistentVolumeName"), detail));
        }
        (true, None) => {
            let (inline, at) = (&source["inlineVolumeSpec"], at.child("inlineVolumeSpec"));
            persistent::spec(inline, true, &at, errors);
        }
        _ => {}
    }
    let node = text(spec, "nodeName");
    let place = path.child("nodeName");
    rule(names::dns1123_subdomain(node), node, &place, errors);
    let (status, path) = (&object["status"], Path::new("status"));
    let said = entries(status, "attachmentMetadata");
    let size: usize = said
        .map(|(key, it)| key.len() + it.as_str().map_or(0, str::len))
        .sum();
    if size > MAX_METADATA {
        errors.push(Error::too_long(
            &path.child("attachmentMetadata"),
            MAX_METADATA,
        ));
    }
    for key in ["attachError", "detachError"] {
        let (error, at) = (&status[key], path.child(key));
        if text(error, "message").len() > MAX_MESSAGE {
            errors.push(Error::too_long(&at.child("message"), MAX_METADATA));
        }
        if let Some(code) = error["errorCode"].as_i64().filter(|it| *it < 0) {
            let detail = super::between(0, i64::from(i32::MAX));
            errors.push(Error::invalid(&at.child("errorCode"), code, detail));
        }
    }
    if create {
        if !attacher.is_empty() {
            driver_name(attacher, &Path::new("spec").child("attacher"), errors);
        }
        if let Some(volume) = volume {
            let at = at.child("persistentVolumeName");
            rule(names::dns1123_subdomain(volume), volume, &at, errors);
        }
    }
}

/// Checks a change of an attachment.
pub(crate) fn attachment_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    attachment(object, false, errors);
    if object["spec"] != old["spec"] {
        let kind = ("storage.k8s.io", "v1", "VolumeAttachment");
        let shown = internal::shown(kind, &["spec"], &object["spec"]);
        errors.push(Error::invalid(&Path::new("spec"), shown, IMMUTABLE));
    }
}

/// Checks a class of attributes.
pub(crate) fn attributes(object: &Value, errors: &mut ErrorList) {
    storage::provisioner(text(object, "driverName"), &Path::new("driverName"), errors);
    storage::parameters(object, errors);
    if entries(object, "parameters").next().is_none() {
        let detail = "must contain at least one key/value pair";
        errors.push(Error::required(&Path::new("parameters"), detail));
    }
}

/// Checks a change of a class of attributes.
pub(crate) fn attributes_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    for key in ["driverName", "parameters"] {
        if object[key] != old[key] {
            let detail = format!("updates to {key} are forbidden.");
            errors.push(Error::forbidden(&Path::new(key), detail));
        }
    }
    attributes(object, errors);
}
