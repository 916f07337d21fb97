//! Controllers of pods: deployments, replica sets, daemon sets, stateful sets, replication controllers.

use std::collections::BTreeMap;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::labels::{LabelSelector, Selector};
use allot_apimachinery::names;
use allot_model::validate::meta as meta_rules;
use serde_json::{Value, json};

use super::{
    int_or_percent, internal, label_selector, list, not_negative, pod, rule, storage, text,
};

mod status;

pub(crate) use status::validate_status;

/// Checks a new object of apps, or a new or changed replication controller.
pub(crate) fn validate(plural: &str, object: &Value, errors: &mut ErrorList) {
    check(plural, object, true, errors);
}

fn check(plural: &str, object: &Value, is_new: bool, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    match plural {
        "replicationcontrollers" => replication_controller(spec, &path, errors),
        "deployments" => deployment(spec, &path, errors),
        "replicasets" => {
            numbers(spec, &["replicas", "minReadySeconds"], &path, errors);
            selector(spec, "deployment", &path, errors);
            matching_template(spec, "ReplicaSet", &path, errors);
        }
        "daemonsets" => daemon_set(spec, &path, errors),
        "statefulsets" => stateful_set(spec, is_new, &path, errors),
        "controllerrevisions" => {
            not_negative(&object["revision"], &Path::new("revision"), errors);
            if is_new && object["data"].is_null() {
                errors.push(Error::required(&Path::new("data"), "data is mandatory"));
            }
        }
        _ => {}
    }
}

/// Checks a change.
pub(crate) fn validate_update(plural: &str, object: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, before, path) = (&object["spec"], &old["spec"], Path::new("spec"));
    // Of these the change is judged first.
    if plural == "daemonsets" {
        immutable(spec, before, "selector", &path.child("selector"), errors);
    }
    check(plural, object, false, errors);
    match plural {
        "daemonsets" => {}
        "statefulsets" => {
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
        "controllerrevisions" => immutable(object, old, "data", &Path::new("data"), errors),
        "replicationcontrollers" => {}
        _ => immutable(spec, before, "selector", &path.child("selector"), errors),
    }
}

fn immutable(object: &Value, old: &Value, key: &str, path: &Path, errors: &mut ErrorList) {
    if object[key] != old[key] {
        errors.push(Error::invalid(path, &object[key], "field is immutable"));
    }
}

fn numbers(object: &Value, keys: &[&str], path: &Path, errors: &mut ErrorList) {
    for key in keys {
        not_negative(&object[*key], &path.child(key), errors);
    }
}

fn is_empty(selector: &Value) -> bool {
    let empty = |key: &str| match &selector[key] {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    };
    empty("matchLabels") && empty("matchExpressions")
}

/// A required selector; upstream's message says "deployment" for replica sets, too.
fn selector(spec: &Value, owner: &str, path: &Path, errors: &mut ErrorList) {
    let at = path.child("selector");
    if !spec["selector"].is_object() {
        errors.push(Error::required(&at, ""));
        return;
    }
    label_selector(&spec["selector"], &at, errors);
    if is_empty(&spec["selector"]) {
        let detail = format!("empty selector is invalid for {owner}");
        let shown = internal::selector(&spec["selector"]);
        errors.push(Error::invalid(&at, shown, detail));
    }
}

/// The parsed selector; an absent one selects nothing. `None` if it is invalid.
pub(crate) fn working_selector(spec: &Value) -> Option<Option<Selector>> {
    if !spec["selector"].is_object() {
        return Some(None);
    }
    let selector = LabelSelector::from_json(&spec["selector"]).ok()?;
    Some(Some(selector.to_selector().ok()?))
}

/// Checks that a selector matches the labels of the template; an absent one matches nothing.
pub(crate) fn template_matches(
    spec: &Value,
    selector: Option<&Selector>,
    path: &Path,
    errors: &mut ErrorList,
) {
    let shown = &spec["template"]["metadata"]["labels"];
    let labels = crate::object::string_map(shown);
    if !selector.is_some_and(|selector| selector.matches(&labels)) {
        let at = path.child("template").child("metadata").child("labels");
        let detail = "`selector` does not match template `labels`";
        errors.push(Error::invalid(&at, shown, detail));
    }
}

/// The template of a deployment or replica set: the selector must match its labels, and its restart policy must be
/// Always.
fn matching_template(spec: &Value, owner: &str, path: &Path, errors: &mut ErrorList) {
    let Some(selector) = working_selector(spec) else {
        let detail = "invalid label selector";
        let shown = internal::selector(&spec["selector"]);
        errors.push(Error::invalid(&path.child("selector"), shown, detail));
        return;
    };
    template_matches(spec, selector.as_ref(), path, errors);
    let at = path.child("template");
    pod::template(&spec["template"], &at, errors);
    endless(spec, owner, &at, errors);
}

/// Pods of a controller must have restart policy Always.
fn endless(spec: &Value, owner: &str, at: &Path, errors: &mut ErrorList) {
    let pod = &spec["template"]["spec"];
    let policy = text(pod, "restartPolicy");
    if policy != "Always" {
        let at = at.child("spec").child("restartPolicy");
        errors.push(Error::not_supported(&at, policy, &["Always"]));
    }
    if pod["activeDeadlineSeconds"].is_i64() {
        let at = at.child("spec").child("activeDeadlineSeconds");
        let detail = format!("activeDeadlineSeconds in {owner} is not Supported");
        errors.push(Error::forbidden(&at, detail));
    }
}

fn replication_controller(spec: &Value, path: &Path, errors: &mut ErrorList) {
    not_negative(
        &spec["minReadySeconds"],
        &path.child("minReadySeconds"),
        errors,
    );
    let at = path.child("selector");
    let wanted = &spec["selector"];
    if wanted.as_object().is_none_or(serde_json::Map::is_empty) {
        errors.push(Error::required(&at, ""));
    }
    not_negative(&spec["replicas"], &path.child("replicas"), errors);
    let at = path.child("template");
    if !spec["template"].is_object() {
        errors.push(Error::required(&at, ""));
        return;
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if !super::entries(spec, "selector").all(|(key, value)| labels.get(key) == Some(value)) {
        let at = at.child("metadata").child("labels");
        let detail = "`selector` does not match template `labels`";
        errors.push(Error::invalid(&at, labels, detail));
    }
    pod::template(&spec["template"], &at, errors);
    endless(spec, "ReplicationController", &at, errors);
}

fn deployment(spec: &Value, path: &Path, errors: &mut ErrorList) {
    not_negative(&spec["replicas"], &path.child("replicas"), errors);
    selector(spec, "deployment", path, errors);
    matching_template(spec, "ReplicaSet", path, errors);
    deployment_strategy(&spec["strategy"], &path.child("strategy"), errors);
    let keys = [
        "minReadySeconds",
        "revisionHistoryLimit",
        "progressDeadlineSeconds",
    ];
    numbers(spec, &keys, path, errors);
    let ready = spec["minReadySeconds"].as_i64().unwrap_or_default();
    if let Some(deadline) = spec["progressDeadlineSeconds"]
        .as_i64()
        .filter(|deadline| *deadline <= ready)
    {
        let at = path.child("progressDeadlineSeconds");
        let detail = "must be greater than minReadySeconds";
        errors.push(Error::invalid(&at, deadline, detail));
    }
}

fn deployment_strategy(strategy: &Value, path: &Path, errors: &mut ErrorList) {
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "type") {
        "Recreate" => {
            if rolling.is_object() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                errors.push(Error::forbidden(&path.child("rollingUpdate"), detail));
            }
        }
        "RollingUpdate" => {
            let at = path.child("rollingUpdate");
            for key in ["maxUnavailable", "maxSurge"] {
                int_or_percent(&rolling[key], &at.child(key), errors);
            }
            let unavailable = &rolling["maxUnavailable"];
            if amount(unavailable) == 0 && amount(&rolling["maxSurge"]) == 0 {
                let detail = "may not be 0 when `maxSurge` is 0";
                errors.push(Error::invalid(
                    &at.child("maxUnavailable"),
                    unavailable,
                    detail,
                ));
            }
            at_most_all(unavailable, &at.child("maxUnavailable"), errors);
        }
        other => {
            let shown = unknown_strategy(other, rolling);
            let known = ["Recreate", "RollingUpdate"];
            errors.push(Error::not_supported(path, shown, &known));
        }
    }
}

/// A strategy as upstream shows it in an error: its struct in the order of its fields.
fn unknown_strategy(kind: &str, rolling: &Value) -> BadValue {
    let rolling = match rolling {
        Value::Object(_) => format!(
            "{{\"MaxUnavailable\":{},\"MaxSurge\":{}}}",
            rolling["maxUnavailable"], rolling["maxSurge"]
        ),
        _ => "null".to_owned(),
    };
    BadValue::raw(format!(
        "{{\"Type\":{},\"RollingUpdate\":{rolling}}}",
        Value::from(kind)
    ))
}

/// The number in a number or percentage, 0 if it is neither.
fn amount(value: &Value) -> i64 {
    match value {
        Value::String(text) => percentage(text).unwrap_or_default(),
        value => value.as_i64().unwrap_or_default(),
    }
}

fn percentage(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    digits
        .bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| digits.parse().ok())?
}

fn at_most_all(value: &Value, path: &Path, errors: &mut ErrorList) {
    let percent = value.as_str().and_then(percentage);
    if percent.is_some_and(|percent| percent > 100) {
        errors.push(Error::invalid(path, value, "must not be greater than 100%"));
    }
}

fn daemon_set(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let wanted = &spec["selector"];
    label_selector(wanted, &path.child("selector"), errors);
    if let Some(selector) = working_selector(spec) {
        template_matches(spec, selector.as_ref(), path, errors);
    }
    if wanted.is_object() && is_empty(wanted) {
        let detail = "empty selector is invalid for daemonset";
        errors.push(Error::invalid(&path.child("selector"), wanted, detail));
    }
    let at = path.child("template");
    pod::template(&spec["template"], &at, errors);
    endless(spec, "DaemonSet", &at, errors);
    not_negative(
        &spec["minReadySeconds"],
        &path.child("minReadySeconds"),
        errors,
    );
    daemon_set_strategy(
        &spec["updateStrategy"],
        &path.child("updateStrategy"),
        errors,
    );
    let at = path.child("revisionHistoryLimit");
    not_negative(&spec["revisionHistoryLimit"], &at, errors);
}

fn daemon_set_strategy(strategy: &Value, path: &Path, errors: &mut ErrorList) {
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let at = path.child("rollingUpdate");
            let keys = ["maxUnavailable", "maxSurge"];
            for key in keys {
                int_or_percent(&rolling[key], &at.child(key), errors);
            }
            for key in keys {
                at_most_all(&rolling[key], &at.child(key), errors);
            }
            match keys.map(|key| amount(&rolling[key]) != 0) {
                [true, true] => {
                    let detail = "may not be set when maxUnavailable is non-zero";
                    let surge = &rolling["maxSurge"];
                    errors.push(Error::invalid(&at.child("maxSurge"), surge, detail));
                }
                [false, false] => {
                    let detail = "cannot be 0 when maxSurge is 0";
                    errors.push(Error::required(&at.child("maxUnavailable"), detail));
                }
                _ => {}
            }
        }
        other => {
            let shown = unknown_strategy(other, rolling);
            let known = ["RollingUpdate", "OnDelete"];
            errors.push(Error::not_supported(path, shown, &known));
        }
    }
}

/// Checks the spec of a stateful set. What does not change may be as it was allowed to be in the past.
fn stateful_set(spec: &Value, is_new: bool, path: &Path, errors: &mut ErrorList) {
    let policy = text(spec, "podManagementPolicy");
    let at = path.child("podManagementPolicy");
    if policy.is_empty() {
        errors.push(Error::required(&at, ""));
    } else if !matches!(policy, "OrderedReady" | "Parallel") {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.push(Error::invalid(&at, policy, detail));
    }
    stateful_set_strategy(
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
            // Upstream validates these once more.
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

fn stateful_set_strategy(strategy: &Value, path: &Path, errors: &mut ErrorList) {
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
