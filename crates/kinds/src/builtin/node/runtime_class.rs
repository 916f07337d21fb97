//! Runtime classes.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::{Value, json};

use crate::object;
use crate::registry::{Builtin, CLUSTER, Rules};
use crate::table::age;
use crate::table::format::name;
use crate::validate::{IMMUTABLE, entries, labels, list, resources, rule, scheduling, text};
use crate::warnings::pod::deprecated_label;

pub(super) static RUNTIME_CLASS: Builtin = Builtin {
    group: "node.k8s.io",
    kind: "RuntimeClass",
    plural: "runtimeclasses",
    rules: Rules {
        create_on_update: true,
        own_finalizers: true,
        requires_version: |_| true,
        validate,
        validate_update: Some(validate_update),
        warnings: old_labels,
        table: Some(("Name|Handler|Age", row)),
        ..Rules::DEFAULT
    },
    ..CLUSTER
};

/// Warnings about deprecated node labels.
fn old_labels(class: &Value) -> Vec<String> {
    let words = entries(&class["scheduling"], "nodeSelector")
        .filter_map(|(label, _)| deprecated_label(label));
    words
        .map(|words| format!("scheduling.nodeSelector: {words}"))
        .collect()
}

fn validate(object: &Value, errors: &mut ErrorList) {
    let (handler, at) = (text(object, "handler"), Path::new("handler"));
    if handler.is_empty() {
        errors.push(Error::required(&at, ""));
    } else {
        rule(names::dns1123_label(handler), handler, &at, errors);
    }
    let fixed = &object["overhead"]["podFixed"];
    if fixed.is_object() {
        let amounts = serde_json::json!({"limits": fixed});
        resources::container(&amounts, &Path::new("overhead"), errors);
    }
    let path = Path::new("scheduling");
    labels(
        &object["scheduling"]["nodeSelector"],
        &path.child("nodeSelector"),
        errors,
    );
    let tolerations = list(&object["scheduling"], "tolerations");
    let path = path.child("tolerations");
    scheduling::tolerations(tolerations, &path, errors);
    let mut seen = BTreeSet::new();
    for (index, toleration) in tolerations.iter().enumerate() {
        let key = ["key", "operator", "value", "effect"].map(|part| text(toleration, part));
        if !seen.insert(key) {
            let shown = scheduling::shown_toleration(toleration);
            errors.push(Error::duplicate(&path.index(index), shown));
        }
    }
}

fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    validate(object, errors);
    if object["handler"] != old["handler"] {
        errors.push(Error::invalid(
            &Path::new("handler"),
            text(object, "handler"),
            IMMUTABLE,
        ));
    }
}

fn row(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(object::text(object, &["handler"])),
        age(object),
    ]
}
