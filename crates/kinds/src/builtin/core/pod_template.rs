//! Pod templates.

use allot_apimachinery::field::Path;
use serde_json::{Value, json};

use crate::object::meta;
use crate::registry::{BASE, Builtin, Generation, Rules};
use crate::table::format::{self, containers};
use crate::{validate, warnings};

pub(super) static POD_TEMPLATE: Builtin = Builtin {
    kind: "PodTemplate",
    plural: "podtemplates",
    rules: Rules {
        pod_template: Some(&["template"]),
        generation: Generation::FromCreate,
        spec_changed: |new, old| new["template"] != old["template"],
        validate: |object, errors| {
            validate::pod::template(&object["template"], &Path::new("template"), errors)
        },
        validates_metadata_again: false,
        warnings: of_template,
        warnings_update: Some(|object, old| warnings::after_change(object, old, of_template)),
        delete_returns_object: |_| true,
        table: Some(("Name|Containers|Images|Pod Labels", row)),
        ..Rules::DEFAULT
    },
    ..BASE
};

fn of_template(object: &Value) -> Vec<String> {
    warnings::pod::warnings(&object["template"], "template.")
}

fn row(object: &Value) -> Vec<Value> {
    let (names, images) = containers(&object["template"]["spec"]);
    let pod_labels = format::labels(&object["template"]["metadata"]["labels"]);
    vec![
        json!(meta(object, "name")),
        json!(names),
        json!(images),
        json!(pod_labels),
    ]
}
