//! Pod templates.

use allot_apimachinery::field::Path;

use crate::registry::{BASE, Builtin, Generation, Rules};
use crate::{table, validate, warnings};

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
        warnings: |object| warnings::pod::warnings(&object["template"], "template."),
        delete_returns_object: |_| true,
        table: Some((
            "Name|Containers|Images|Pod Labels",
            table::workloads::pod_template,
        )),
        ..Rules::DEFAULT
    },
    ..BASE
};
