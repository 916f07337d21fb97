//! Controller revisions.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::{Value, json};

use super::APPS;
use crate::object::meta;
use crate::registry::{Builtin, Generation, Rules};
use crate::table::age;
use crate::table::format::number;
use crate::validate::{immutable, not_negative};

pub(super) static CONTROLLER_REVISION: Builtin = Builtin {
    kind: "ControllerRevision",
    plural: "controllerrevisions",
    categories: &[],
    rules: Rules {
        fill_bookmark: |object| object["data"] = Value::Null,
        pod_template: None,
        generation: Generation::None,
        validate: validate_create,
        validate_update: Some(validate_update),
        validates_metadata_again: true,
        warnings: Rules::DEFAULT.warnings,
        table: Some(("Name|Controller|Revision|Age", row)),
        ..APPS.rules
    },
    ..APPS
};

fn validate(object: &Value, errors: &mut ErrorList) {
    not_negative(&object["revision"], &Path::new("revision"), errors);
}

fn validate_create(object: &Value, errors: &mut ErrorList) {
    validate(object, errors);
    if object["data"].is_null() {
        errors.push(Error::required(&Path::new("data"), "data is mandatory"));
    }
}

fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    validate(object, errors);
    immutable(object, old, "data", &Path::new("data"), errors);
}

fn row(object: &Value) -> Vec<Value> {
    let owner = object["metadata"]["ownerReferences"]
        .as_array()
        .and_then(|owners| owners.iter().find(|owner| owner["controller"] == true));
    let controller = owner.map_or("<none>".to_owned(), |owner| {
        let group = owner["apiVersion"]
            .as_str()
            .and_then(|it| it.split_once('/'))
            .map(|(group, _)| group);
        let kind = owner["kind"].as_str().unwrap_or_default().to_lowercase();
        let name = owner["name"].as_str().unwrap_or_default();
        match group {
            Some(group) => format!("{kind}.{group}/{name}"),
            None => format!("{kind}/{name}"),
        }
    });
    vec![
        json!(meta(object, "name")),
        json!(controller),
        number(&object["revision"]),
        age(object),
    ]
}
