//! Config maps, secrets, leases, priority classes, budgets, API services, runtime classes.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::{decoded_length, entries, rule, text};

/// Largest payload of a config map or secret, in bytes.
const MAX_DATA: usize = 1 << 20;

pub(crate) fn config_map(object: &Value, errors: &mut ErrorList) {
    let mut total = 0;
    for (key, value) in entries(object, "data") {
        let at = Path::new("data").key(key);
        rule(names::config_map_key(key), key, &at, errors);
        if object["binaryData"].get(key).is_some() {
            errors.push(Error::invalid(
                &at,
                key,
                "duplicate of key present in binaryData",
            ));
        }
        total += value.as_str().map_or(0, str::len);
    }
    for (key, value) in entries(object, "binaryData") {
        rule(
            names::config_map_key(key),
            key,
            &Path::new("binaryData").key(key),
            errors,
        );
        total += value.as_str().map_or(0, decoded_length);
    }
    if total > MAX_DATA {
        errors.push(Error::too_long(&Path::new("[]"), MAX_DATA));
    }
}

pub(crate) fn config_map_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    immutable(object, old, &["data", "binaryData"], errors);
    config_map(object, errors);
}

fn immutable(object: &Value, old: &Value, keys: &[&str], errors: &mut ErrorList) {
    if old["immutable"] != true {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    if object["immutable"] != true {
        errors.push(Error::forbidden(&Path::new("immutable"), detail));
    }
    for key in keys {
        if object[*key] != old[*key] {
            errors.push(Error::forbidden(&Path::new(key), detail));
        }
    }
}

pub(crate) fn secret(object: &Value, errors: &mut ErrorList) {
    let path = Path::new("data");
    let mut total = 0;
    for (key, value) in entries(object, "data") {
        rule(names::config_map_key(key), key, &path.key(key), errors);
        total += value.as_str().map_or(0, decoded_length);
    }
    if total > MAX_DATA {
        errors.push(Error::too_long(&path, MAX_DATA));
    }
    let has = |key: &str| object["data"].get(key).is_some();
    match text(object, "type") {
        "kubernetes.io/service-account-token"
            if text(
                &object["metadata"]["annotations"],
                "kubernetes.io/service-account.name",
            )
            .is_empty() =>
        {
            let at = Path::new("metadata")
                .child("annotations")
                .key("kubernetes.io/service-account.name");
            errors.push(Error::required(&at, ""));
        }
        "kubernetes.io/dockercfg" => registry_secret(object, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => registry_secret(object, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            errors.push(Error::required(&path.key("username"), ""));
            errors.push(Error::required(&path.key("password"), ""));
        }
        "kubernetes.io/ssh-auth" if !has("ssh-privatekey") => {
            errors.push(Error::required(&path.key("ssh-privatekey"), ""));
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !has(key) {
                    errors.push(Error::required(&path.key(key), ""));
                }
            }
        }
        _ => {}
    }
}

/// The file of a registry client: it must exist and be JSON. Errors do not contain its content.
fn registry_secret(object: &Value, key: &str, errors: &mut ErrorList) {
    use base64::Engine as _;
    let at = Path::new("data").key(key);
    let Some(encoded) = object["data"][key].as_str() else {
        errors.push(Error::required(&at, ""));
        return;
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded);
    if let Err(error) = allot_schema::decode::decode_json(&bytes.unwrap_or_default(), None) {
        let hidden = "<secret contents redacted>";
        errors.push(Error::invalid(&at, hidden, error.to_string()));
    }
}

pub(crate) fn secret_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    if object["type"] != old["type"] {
        errors.push(Error::invalid(
            &Path::new("type"),
            &object["type"],
            "field is immutable",
        ));
    }
    immutable(object, old, &["data"], errors);
    secret(object, errors);
}
