//! Validation of stateful sets.

use std::collections::BTreeMap;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names;
use allot_model::validate::meta as meta_rules;
use serde_json::{Value, json};

use crate::validate::workloads::{
    amount, at_most_all, endless, numbers, selector, template_matches, working_selector,
};
use crate::validate::{int_or_percent, internal, list, not_negative, pod, rule, storage, text};

/// Checks a new stateful set.
pub(super) fn validate(object: &Value, errors: &mut ErrorList) {
    validate_spec(&object["spec"], true, &Path::new("spec"), errors);
}

/// Checks a change of a stateful set.
pub(super) fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, before, path) = (&object["spec"], &old["spec"], Path::new("spec"));
    validate_spec(spec, false, &path, errors);
    const CHANGEABLE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let fixed = |spec: &Value| {
        let mut map = spec.as_object().cloned().unwrap_or_default();
        map.retain(|key, _| !CHANGEABLE.contains(&key.as_str()));
        map
    };
    if fixed(spec) != fixed(before) {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        errors.push(Error::forbidden(&path, detail));
    }
}

/// Checks the spec of a stateful set. What does not change may be as it was allowed to be in the past.
fn validate_spec(spec: &Value, is_new: bool, path: &Path, errors: &mut ErrorList) {
    let policy = text(spec, "podManagementPolicy");
    let at = path.child("podManagementPolicy");
    if policy.is_empty() {
        errors.push(Error::required(&at, ""));
    } else if !matches!(policy, "OrderedReady" | "Parallel") {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.push(Error::invalid(&at, policy, detail));
    }
    validate_strategy(
        &spec["updateStrategy"],
        &path.child("updateStrategy"),
        errors,
    );
    let retention = "persistentVolumeClaimRetentionPolicy";
    if spec[retention].is_object() {
        for key in ["whenDeleted", "whenScaled"] {
            let (value, at) = (
                text(&spec[retention], key),
                path.child(retention).child(key),
            );
            if !matches!(value, "Retain" | "Delete") {
                errors.push(Error::not_supported(&at, value, &["Retain", "Delete"]));
            }
        }
    }
    let claims = list(spec, "volumeClaimTemplates");
    if is_new {
        let at = path.child("volumeClaimTemplates");
        for (index, claim) in claims.iter().enumerate() {
            storage::claim_spec(&claim["spec"], &at.index(index).child("spec"), errors);
        }
    }
    numbers(spec, &["replicas", "minReadySeconds"], path, errors);
    let start = &spec["ordinals"]["start"];
    not_negative(start, &path.child("ordinals.start"), errors);
    let service = text(spec, "serviceName");
    if is_new && !service.is_empty() {
        let at = path.child("serviceName");
        rule(names::dns1123_label(service), service, &at, errors);
    }
    selector(spec, "statefulset", path, errors);
    let at = path.child("template");
    match working_selector(spec) {
        Some(selector) => {
            template_matches(spec, selector.as_ref(), path, errors);
            pod::template(&as_controller_makes_it(spec), &at, errors);
            // Upstream validates these twice.
            let metadata = &spec["template"]["metadata"];
            errors.extend(meta_rules::labels(metadata, &at.child("labels")));
            errors.extend(meta_rules::annotations(metadata, &at.child("annotations")));
        }
        None => {
            let shown = internal::selector(&spec["selector"]);
            errors.push(Error::invalid(&path.child("selector"), shown, ""));
        }
    }
    endless(spec, "StatefulSet", &at, errors);
}

/// The template of a stateful set with the volumes of its claims, and without what its controller overwrites.
fn as_controller_makes_it(spec: &Value) -> Value {
    let mut template = spec["template"].clone();
    let claims = list(spec, "volumeClaimTemplates");
    let Some(pod) = template["spec"].as_object_mut() else {
        return template;
    };
    pod.remove("subdomain");
    pod.remove("hostname");
    if claims.is_empty() {
        return template;
    }
    let name = |claim: &Value| text(&claim["metadata"], "name").to_owned();
    let made: BTreeMap<String, Value> = claims
        .iter()
        .map(|claim| {
            let name = name(claim);
            let volume = json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
            (name, volume)
        })
        .collect();
    let own = list(&spec["template"]["spec"], "volumes").iter();
    let own = own.filter(|volume| !made.contains_key(text(volume, "name")));
    let volumes: Vec<Value> = made.values().chain(own).cloned().collect();
    pod.insert("volumes".to_owned(), volumes.into());
    template
}

fn validate_strategy(strategy: &Value, path: &Path, errors: &mut ErrorList) {
    let (rolling, at) = (&strategy["rollingUpdate"], path.child("rollingUpdate"));
    let shown = || match rolling {
        Value::Object(_) => format!(
            "{{\"Partition\":{},\"MaxUnavailable\":{}}}",
            rolling["partition"].as_i64().unwrap_or_default(),
            rolling["maxUnavailable"]
        ),
        _ => "null".to_owned(),
    };
    match text(strategy, "type") {
        "" => errors.push(Error::required(path, "")),
        "OnDelete" if rolling.is_object() => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.push(Error::invalid(&at, BadValue::raw(shown()), detail));
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            not_negative(&rolling["partition"], &at.child("partition"), errors);
            let most = &rolling["maxUnavailable"];
            if !most.is_null() {
                let at = at.child("maxUnavailable");
                int_or_percent(most, &at, errors);
                if amount(most) == 0 {
                    errors.push(Error::invalid(&at, most, "cannot be 0"));
                }
                at_most_all(most, &at, errors);
            }
        }
        other => {
            let shown = format!(
                "{{\"Type\":{},\"RollingUpdate\":{}}}",
                Value::from(other),
                shown()
            );
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(Error::invalid(path, BadValue::raw(shown), detail));
        }
    }
}
