//! Pod disruption budgets.

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::{Value, json};

use crate::object::meta;
use crate::registry::{BASE, Builtin, Generation, MetadataErrors, Rules, STATUS};
use crate::table::age;
use crate::table::format::number;
use crate::validate::{int_or_percent, internal, label_selector, list, not_negative, one_of, text};

pub(super) static POD_DISRUPTION_BUDGET: Builtin = Builtin {
    group: "policy",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    short: &["pdb"],
    subresources: &[STATUS],
    rules: Rules {
        name: names::path_segment_name,
        requires_version: |_| true,
        generation: Generation::FromCreate,
        validate,
        validate_status: Some(|budget, _, errors| validate_status(budget, errors)),
        metadata_errors: MetadataErrors::Alone,
        checks_metadata_change: |_| false,
        validates_metadata_again: false,
        table: Some((
            "Name|Min Available|Max Unavailable|Allowed Disruptions:integer|Age",
            row,
        )),
        ..Rules::DEFAULT
    },
    ..BASE
};

fn validate_status(object: &Value, errors: &mut ErrorList) {
    let (status, path) = (&object["status"], Path::new("status"));
    let (conditions, at) = (list(status, "conditions"), path.child("conditions"));
    errors.extend(allot_model::validate::conditions(conditions, &at));
    for key in [
        "disruptionsAllowed",
        "currentHealthy",
        "desiredHealthy",
        "expectedPods",
    ] {
        not_negative(&status[key], &path.child(key), errors);
    }
}

fn validate(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let (least, most) = (&spec["minAvailable"], &spec["maxUnavailable"]);
    if !least.is_null() && !most.is_null() {
        let shown = format!(
            "{{\"MinAvailable\":{least},\"Selector\":{},\"MaxUnavailable\":{most},\"UnhealthyPodEvictionPolicy\":{}}}",
            internal::selector(&spec["selector"]),
            spec["unhealthyPodEvictionPolicy"]
        );
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(Error::invalid(&path, BadValue::raw(shown), detail));
    }
    for (key, value) in [("minAvailable", least), ("maxUnavailable", most)] {
        if !value.is_null() {
            int_or_percent(value, &path.child(key), errors);
            let percent = value.as_str().and_then(|text| text.strip_suffix('%'));
            if percent.is_some_and(|text| text.parse::<u64>().is_ok_and(|it| it > 100)) {
                let detail = "must not be greater than 100%";
                errors.push(Error::invalid(&path.child(key), value, detail));
            }
        }
    }
    label_selector(&spec["selector"], &path.child("selector"), errors);
    let policy = text(spec, "unhealthyPodEvictionPolicy");
    let at = path.child("unhealthyPodEvictionPolicy");
    one_of(
        policy,
        &["AlwaysAllow", "IfHealthyBudget"],
        false,
        &at,
        errors,
    );
}

fn row(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let amount = |value: &Value| match value {
        Value::Null => "N/A".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    vec![
        json!(meta(object, "name")),
        json!(amount(&spec["minAvailable"])),
        json!(amount(&spec["maxUnavailable"])),
        number(&object["status"]["disruptionsAllowed"]),
        age(object),
    ]
}
