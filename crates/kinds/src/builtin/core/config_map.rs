//! Config maps.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::{Value, json};

use crate::registry::{BASE, Builtin, Rules};
use crate::table::age;
use crate::table::format::name;
use crate::validate::{decoded_length, entries, rule};

pub(super) static CONFIG_MAP: Builtin = Builtin {
    kind: "ConfigMap",
    plural: "configmaps",
    short: &["cm"],
    rules: Rules {
        validate,
        validate_update: Some(validate_update),
        table: Some(("Name|Data|Age", row)),
        ..Rules::DEFAULT
    },
    ..BASE
};

/// Largest payload of a config map or secret, in bytes.
pub(super) const MAX_DATA: usize = 1 << 20;

pub(super) fn immutable(object: &Value, old: &Value, keys: &[&str], errors: &mut ErrorList) {
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

fn validate(object: &Value, errors: &mut ErrorList) {
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

fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    immutable(object, old, &["data", "binaryData"], errors);
    validate(object, errors);
}

fn row(object: &Value) -> Vec<Value> {
    let count = ["data", "binaryData"]
        .iter()
        .map(|key| object[*key].as_object().map_or(0, serde_json::Map::len))
        .sum::<usize>();
    vec![name(object), json!(count), age(object)]
}
