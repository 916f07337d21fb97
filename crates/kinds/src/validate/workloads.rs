//! What the validation of workloads shares: selector, pod template, update strategy, counts in the status.

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::labels::{LabelSelector, Selector};
use serde_json::Value;

use super::{internal, label_selector, not_negative, pod, text};

/// The selector of a workload cannot change: its pods would be left behind.
pub(crate) fn immutable_selector(object: &Value, old: &Value, errors: &mut ErrorList) {
    let now = &object["spec"]["selector"];
    if *now != old["spec"]["selector"] {
        let at = Path::new("spec").child("selector");
        let shown = match now {
            Value::Null => BadValue::raw("null"),
            now => internal::selector(now),
        };
        errors.push(Error::invalid(&at, shown, super::IMMUTABLE));
    }
}

/// The numbers with these names are not negative.
pub(crate) fn numbers(object: &Value, keys: &[&str], path: &Path, errors: &mut ErrorList) {
    for key in keys {
        not_negative(&object[*key], &path.child(key), errors);
    }
}

/// The label selector has no requirement.
pub(crate) fn is_empty(selector: &Value) -> bool {
    let empty = |key: &str| match &selector[key] {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    };
    empty("matchLabels") && empty("matchExpressions")
}

/// A required selector; upstream's message says "deployment" for replica sets, too.
pub(crate) fn selector(spec: &Value, owner: &str, path: &Path, errors: &mut ErrorList) {
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

/// Labels as an error shows them: a map that was sent empty is no absent one.
pub(crate) fn sent_labels(labels: &Value, at: &Path) -> Value {
    match labels.is_null() && crate::empties::has(at) {
        true => serde_json::json!({}),
        false => labels.clone(),
    }
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
        errors.push(Error::invalid(&at, &sent_labels(shown, &at), detail));
    }
}

/// The template of a deployment or replica set: the selector must match its labels, and its restart policy must be
/// Always.
pub(crate) fn matching_template(spec: &Value, owner: &str, path: &Path, errors: &mut ErrorList) {
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
pub(crate) fn endless(spec: &Value, owner: &str, at: &Path, errors: &mut ErrorList) {
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

/// A strategy as upstream shows it in an error: its struct in the order of its fields.
pub(crate) fn unknown_strategy(kind: &str, rolling: &Value) -> BadValue {
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

/// The number in a number or percentage, 0 if it is neither. A number in a string counts here, though it is not valid.
pub(crate) fn amount(value: &Value) -> i64 {
    match value {
        Value::String(text) => percentage(text)
            .or_else(|| text.parse().ok())
            .unwrap_or_default(),
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

/// A percentage of the pods is at most 100%.
pub(crate) fn at_most_all(value: &Value, path: &Path, errors: &mut ErrorList) {
    let percent = value.as_str().and_then(percentage);
    if percent.is_some_and(|percent| percent > 100) {
        errors.push(Error::invalid(path, value, "must not be greater than 100%"));
    }
}

/// The counts in the status of a workload.
pub(crate) struct Counts {
    /// Those that must not be negative.
    pub(crate) not_negative: &'static [&'static str],
    /// Those that must not be greater than `replicas`. With some, available replicas must be ready, too.
    pub(crate) within_replicas: &'static [&'static str],
    /// The message for more available than ready replicas.
    pub(crate) more_than_ready: &'static str,
}

/// Checks the status of a workload.
pub(crate) fn validate_status(
    counts: &Counts,
    object: &Value,
    old: &Value,
    errors: &mut ErrorList,
) {
    let (status, path) = (&object["status"], Path::new("status"));
    numbers(status, counts.not_negative, &path, errors);
    let count = |key: &str| status[key].as_i64().unwrap_or_default();
    for key in counts.within_replicas {
        if count(key) > count("replicas") {
            let detail = "cannot be greater than status.replicas";
            errors.push(Error::invalid(&path.child(key), count(key), detail));
        }
    }
    if !counts.within_replicas.is_empty() && count("availableReplicas") > count("readyReplicas") {
        let at = path.child("availableReplicas");
        errors.push(Error::invalid(
            &at,
            count("availableReplicas"),
            counts.more_than_ready,
        ));
    }
    if let Some(before) = old["status"]["collisionCount"].as_i64()
        && count("collisionCount") < before
    {
        let at = path.child("collisionCount");
        let detail = "cannot be decremented";
        errors.push(Error::invalid(&at, count("collisionCount"), detail));
    }
}
