//! Volume attributes classes.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::{Value, json};

use super::{STORAGE, storage_class};
use crate::object;
use crate::registry::{Builtin, Rules};
use crate::table::age;
use crate::table::format::name;
use crate::validate::{entries, text};

pub(super) static VOLUME_ATTRIBUTES_CLASS: Builtin = Builtin {
    kind: "VolumeAttributesClass",
    plural: "volumeattributesclasses",
    short: &["vac"],
    rules: Rules {
        protection_finalizer: Some("kubernetes.io/vac-protection"),
        validate,
        validate_update: Some(validate_update),
        table: Some(("Name|DriverName|Age", row)),
        ..STORAGE.rules
    },
    ..STORAGE
};

/// Checks a class of attributes.
fn validate(object: &Value, errors: &mut ErrorList) {
    storage_class::provisioner(text(object, "driverName"), &Path::new("driverName"), errors);
    storage_class::parameters(object, errors);
    if entries(object, "parameters").next().is_none() {
        let detail = "must contain at least one key/value pair";
        errors.push(Error::required(&Path::new("parameters"), detail));
    }
}

/// Checks a change of a class of attributes.
fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    for key in ["driverName", "parameters"] {
        if object[key] != old[key] {
            let detail = format!("updates to {key} are forbidden.");
            errors.push(Error::forbidden(&Path::new(key), detail));
        }
    }
    validate(object, errors);
}

fn row(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(object::text(object, &["driverName"])),
        age(object),
    ]
}
