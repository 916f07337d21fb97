//! CSI drivers.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::{Value, json};

use super::STORAGE;
use crate::object::{items, strings};
use crate::registry::{Builtin, Generation, Rules};
use crate::table::age;
use crate::table::format::{name, or_none};
use crate::validate::{immutable, list, text};

pub(super) static CSI_DRIVER: Builtin = Builtin {
    kind: "CSIDriver",
    plural: "csidrivers",
    rules: Rules {
        requires_version: |_| true,
        generation: Generation::FromChange,
        drop_disabled: Some(|_, driver, old| drop_limit_scaling(driver, old)),
        validate,
        validate_update: Some(validate_update),
        validates_metadata_again: false,
        warnings_create: Some(unsafe_tokens),
        warnings_update: Some(|driver, old| {
            let changed = driver["spec"]["tokenRequests"] != old["spec"]["tokenRequests"];
            if changed {
                unsafe_tokens(driver)
            } else {
                Vec::new()
            }
        }),
        table: Some((
            "Name|AttachRequired:boolean|PodInfoOnMount:boolean|StorageCapacity:boolean|TokenRequests|\
         RequiresRepublish:boolean|Modes|Age",
            row,
        )),
        ..STORAGE.rules
    },
    ..STORAGE
};

/// Tokens should be among the secrets of a driver.
fn unsafe_tokens(object: &Value) -> Vec<String> {
    let spec = &object["spec"];
    let asks = spec["tokenRequests"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    let unsafe_tokens = asks && spec["serviceAccountTokenInSecrets"].is_null();
    let warning = unsafe_tokens.then(|| {
        "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes".to_owned()
    });
    warning.into_iter().collect()
}

/// Removes the field of VolumeLimitScaling, which is off by default.
fn drop_limit_scaling(driver: &mut Value, old: &Value) {
    let key = "preventPodSchedulingIfMissing";
    if old["spec"][key].is_null()
        && let Some(spec) = driver["spec"].as_object_mut()
    {
        spec.remove(key);
    }
}

/// Shortest and longest life of a token for a driver.
const TOKEN_SECONDS: (i64, i64) = (600, 1 << 32);
/// Minimum period for reading the allocatable count of a driver.
const MIN_UPDATE_SECONDS: i64 = 10;

/// Checks a driver.
fn validate(object: &Value, errors: &mut ErrorList) {
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
fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    validate(object, errors);
    let (spec, before, path) = (&object["spec"], &old["spec"], Path::new("spec"));
    for (key, shown) in [
        ("attachRequired", "attachedRequired"),
        ("volumeLifecycleModes", "volumeLifecycleModes"),
    ] {
        immutable(spec, before, key, &path.child(shown), errors);
    }
}

fn row(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let flag = |key: &str, default: bool| json!(spec[key].as_bool().unwrap_or(default));
    let tokens: Vec<&str> = items(&spec["tokenRequests"])
        .iter()
        .filter_map(|it| it["audience"].as_str())
        .collect();
    let tokens = if spec["tokenRequests"].is_null() {
        "<unset>".to_owned()
    } else {
        tokens.join(",")
    };
    vec![
        name(object),
        flag("attachRequired", true),
        flag("podInfoOnMount", false),
        flag("storageCapacity", false),
        json!(tokens),
        flag("requiresRepublish", false),
        json!(or_none(strings(&spec["volumeLifecycleModes"]).join(","))),
        age(object),
    ]
}
