//! Priority classes.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::{Value, json};

use crate::object;
use crate::registry::{Builtin, CLUSTER, Generation, Rules};
use crate::table::age;
use crate::table::format::{name, number};
use crate::validate::{immutable, one_of, text};

pub(super) static PRIORITY_CLASS: Builtin = Builtin {
    group: "scheduling.k8s.io",
    kind: "PriorityClass",
    plural: "priorityclasses",
    short: &["pc"],
    rules: Rules {
        generation: Generation::FromCreate,
        validate,
        validate_update: Some(validate_update),
        validates_metadata_again: false,
        refuses_delete: Some(refuses_delete),
        table: Some((
            "Name|Value:integer|Global-Default:boolean|Age|PreemptionPolicy",
            row,
        )),
        ..Rules::DEFAULT
    },
    ..CLUSTER
};

/// The priority classes of critical system pods.
const SYSTEM_CLASSES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];

fn refuses_delete(name: &str) -> Option<&'static str> {
    let system_class = SYSTEM_CLASSES.contains(&name);
    system_class.then_some("this is a system priority class and cannot be deleted")
}

/// The highest priority that users may give.
const MAX_USER_PRIORITY: i64 = 1_000_000_000;

fn validate(object: &Value, errors: &mut ErrorList) {
    let name = text(&object["metadata"], "name");
    if name.starts_with("system-")
        && let Some(why) = system_class(object, name)
    {
        let detail = format!(
            "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
        );
        let at = Path::new("metadata").child("name");
        errors.push(Error::forbidden(&at, detail));
    }
    if object["value"].as_i64().unwrap_or_default() > MAX_USER_PRIORITY
        && !name.starts_with("system-")
    {
        let detail =
            format!("maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}");
        errors.push(Error::forbidden(&Path::new("value"), detail));
    }
    let policies = ["PreemptLowerPriority", "Never"];
    one_of(
        text(object, "preemptionPolicy"),
        &policies,
        true,
        &Path::new("preemptionPolicy"),
        errors,
    );
}

/// Validates an update of a priority class: values that pods copied cannot change.
fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    if object["value"] != old["value"] {
        let detail = "may not be changed in an update.";
        errors.push(Error::forbidden(&Path::new("value"), detail));
    }
    const POLICY: &str = "preemptionPolicy";
    immutable(object, old, POLICY, &Path::new(POLICY), errors);
}

/// What a class with the name of one of the server's has other than that.
fn system_class(object: &Value, name: &str) -> Option<String> {
    let wanted = match name {
        "system-node-critical" => 2_000_001_000,
        "system-cluster-critical" => 2_000_000_000,
        _ => return Some(format!("{name} is not a known system priority class")),
    };
    if object["value"].as_i64() != Some(wanted) {
        return Some(format!("value of {name} PriorityClass must be {wanted}"));
    }
    let default = object["globalDefault"] == true;
    default.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

fn row(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        number(&object["value"]),
        json!(object["globalDefault"].as_bool().unwrap_or(false)),
        age(object),
        json!(object::text(object, &["preemptionPolicy"])),
    ]
}
