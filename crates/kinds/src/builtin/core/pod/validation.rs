//! Validation that pods have in addition to that of pod templates.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use crate::validate::pod::{Holder, spec};
use crate::validate::{container, list, pod_annotations, text};

/// Validates a whole pod; `old` is the stored pod of an update.
pub(super) fn validate(object: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    let path = Path::new("spec");
    pod_annotations::check(
        &object["metadata"],
        old.map(|old| &old["metadata"]),
        &object["spec"],
        &Path::new("metadata").child("annotations"),
        errors,
    );
    let of = Holder::Pod(old);
    spec(&object["spec"], &object["metadata"], of, &path, errors);
    only_for_pods(&object["spec"], &path, errors);
}

/// Rules of pods that upstream does not apply to templates, for compatibility.
fn only_for_pods(spec: &Value, path: &Path, errors: &mut ErrorList) {
    if text(spec, "serviceAccountName").is_empty() {
        for (index, volume) in list(spec, "volumes").iter().enumerate() {
            let at = path.child("volumes").index(index).child("projected");
            for (index, source) in list(&volume["projected"], "sources").iter().enumerate() {
                if source["serviceAccountToken"].is_object() {
                    let at = at.child("sources").index(index);
                    let detail = "must not be specified when serviceAccountName is not set";
                    errors.push(Error::forbidden(&at.child("serviceAccountToken"), detail));
                }
            }
        }
    }
    for key in ["containers", "initContainers"] {
        for (index, container) in list(spec, key).iter().enumerate() {
            container::padded_image(container, &path.child(key).index(index), errors);
        }
    }
}

/// Rules for new pods only.
pub(super) fn validate_create(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    if !list(spec, "ephemeralContainers").is_empty() {
        let at = path.child("ephemeralContainers");
        errors.push(Error::forbidden(&at, "cannot be set on create"));
    }
    if !list(spec, "schedulingGates").is_empty() && !text(spec, "nodeName").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(Error::forbidden(&path.child("nodeName"), detail));
    }
    pod_annotations::check_match(object, &path, errors);
}
