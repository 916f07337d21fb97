//! Secrets.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use allot_schema::decode::{decode_json, json_type};
use serde_json::{Value, json};

use super::config_map::{MAX_DATA, immutable};
use crate::object;
use crate::registry::{BASE, Builtin, Rules, UnsupportedField};
use crate::table::age;
use crate::table::format::name;
use crate::validate::{IMMUTABLE, decoded_length, entries, rule, text};

mod key_pair;

pub(super) static SECRET: Builtin = Builtin {
    kind: "Secret",
    plural: "secrets",
    rules: Rules {
        validate,
        validate_update: Some(validate_update),
        warnings: key_pair::warnings,
        selectable: &["type"],
        unsupported_field: UnsupportedField::NotSupported,
        table: Some(("Name|Type|Data|Age", row)),
        ..Rules::DEFAULT
    },
    ..BASE
};

fn validate(object: &Value, errors: &mut ErrorList) {
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
    let why = match decode_json(&bytes.unwrap_or_default(), None) {
        Err(error) => error.to_string(),
        Ok(decoded) => match decoded.value {
            Value::Object(_) | Value::Null => return,
            other => format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                json_type(&other)
            ),
        },
    };
    errors.push(Error::invalid(&at, "<secret contents redacted>", why));
}

fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    if object["type"] != old["type"] {
        errors.push(Error::invalid(
            &Path::new("type"),
            text(object, "type"),
            IMMUTABLE,
        ));
    }
    immutable(object, old, &["data"], errors);
    validate(object, errors);
}

fn row(object: &Value) -> Vec<Value> {
    let count = object["data"].as_object().map_or(0, serde_json::Map::len);
    vec![
        name(object),
        json!(object::text(object, &["type"])),
        json!(count),
        age(object),
    ]
}
