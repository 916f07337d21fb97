//! The selector of a job and the labels of its pods, which the server generates unless the job has its own.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::labels::LabelSelector;
use serde_json::{Value, json};

use crate::object::{child_mut, meta};

/// The labels of a job's pods, with the names they had before 1.27 and have since.
const UID: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
const NAME: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];

fn by_hand(job: &Value) -> bool {
    job["spec"]["manualSelector"] == true
}

/// A job without labels has those of its pods, also where an update has removed them.
pub fn label(job: &mut Value) {
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    let has = |labels: &Value| labels.as_object().is_some_and(|labels| !labels.is_empty());
    if !has(&job["metadata"]["labels"]) && has(labels) {
        job["metadata"]["labels"] = labels.clone();
    }
}

/// Generates labels and selector from name and UID. Labels that the template already has stay.
pub(super) fn generate_selector(job: &mut Value) {
    if by_hand(job) {
        return;
    }
    let (uid, name): (Value, Value) = (meta(job, "uid").into(), meta(job, "name").into());
    let spec = child_mut(job, "spec");
    let template = spec.entry("template").or_insert_with(|| json!({}));
    child_mut(template, "metadata");
    let labels = child_mut(&mut template["metadata"], "labels");
    let before = labels.clone();
    for (pair, value) in [(NAME, name), (UID, uid.clone())] {
        if !labels.contains_key(pair[0]) {
            for key in pair {
                labels.insert(key.to_owned(), value.clone());
            }
        }
    }
    let all = labels.clone();
    let selector = spec.entry("selector").or_insert_with(|| json!({}));
    let wanted = child_mut(selector, "matchLabels");
    if !wanted.contains_key(UID[1]) {
        wanted.insert(UID[1].to_owned(), uid);
    }
    // Defaulting copies the labels of its template to a job without labels; in upstream that includes the generated
    // ones.
    let own = child_mut(&mut job["metadata"], "labels");
    if own.is_empty() || *own == before {
        *own = all;
    }
}

/// Checks that the pods are labelled as the job's, and that the selector is the generated one.
pub(super) fn validate_selector(job: &Value, errors: &mut ErrorList) {
    let spec = &job["spec"];
    let path = Path::new("spec");
    let at = path.child("selector");
    if by_hand(job) || spec["selector"].is_null() {
        return;
    }
    let place = path.child("template").child("metadata").child("labels");
    let labels = &spec["template"]["metadata"]["labels"];
    let selector = LabelSelector::from_json(&spec["selector"])
        .ok()
        .and_then(|selector| selector.to_selector().ok());
    let matches = |labels: &Value| {
        let labels = crate::object::string_map(labels);
        selector
            .as_ref()
            .is_none_or(|selector| selector.matches(&labels))
    };
    let mut expected = json!({});
    let (uid, name) = (meta(job, "uid"), meta(job, "name"));
    // The legacy labels come before those with a prefix.
    for (key, value) in [
        (UID[0], uid),
        (NAME[0], name),
        (UID[1], uid),
        (NAME[1], name),
    ] {
        expected[key] = value.into();
        let detail = format!("must be '{value}'");
        if labels[key].is_null() {
            errors.push(Error::required(&place.key(key), &detail));
        } else if labels[key] != value {
            errors.push(Error::invalid(&place.key(key), labels, &detail));
        }
    }
    if !matches(&expected) {
        let detail = "`selector` not auto-generated";
        let shown = crate::validate::internal::selector(&spec["selector"]);
        errors.push(Error::invalid(&at, shown, detail));
    }
}
