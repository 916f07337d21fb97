//! Restart policies of containers, and fields only for containers that keep running.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::super::{list, text};

const MOST_RULES: usize = 20;
const MOST_CODES: usize = 255;

/// Checks the policy of a container and its exceptions.
pub(crate) fn rules(container: &Value, path: &Path, errors: &mut ErrorList) {
    let rules = list(container, "restartPolicyRules");
    let at = path.child("restartPolicy");
    match container["restartPolicy"].as_str() {
        None if rules.is_empty() => return,
        None => {
            let detail = "must specify restartPolicy when restart rules are used";
            errors.push(Error::required(&at, detail));
        }
        Some(policy) => {
            let known = ["Always", "Never", "OnFailure"];
            if !known.contains(&policy) {
                errors.push(Error::not_supported(&at, policy, &known));
            }
        }
    }
    let at = path.child("restartPolicyRules");
    if rules.len() > MOST_RULES {
        errors.push(Error::too_many(&at, rules.len(), MOST_RULES));
    }
    for (index, rule) in rules.iter().enumerate() {
        let at = at.index(index);
        let action = text(rule, "action");
        let known = ["Restart", "RestartAllContainers"];
        if !known.contains(&action) {
            errors.push(Error::not_supported(&at.child("action"), action, &known));
        }
        let (codes, at) = (&rule["exitCodes"], at.child("exitCodes"));
        if !codes.is_object() {
            errors.push(Error::required(&at, "must be specified"));
            continue;
        }
        let operator = text(codes, "operator");
        let known = ["In", "NotIn"];
        if !known.contains(&operator) {
            errors.push(Error::not_supported(
                &at.child("operator"),
                operator,
                &known,
            ));
        }
        let values = list(codes, "values").len();
        if values > MOST_CODES {
            errors.push(Error::too_many(&at.child("values"), values, MOST_CODES));
        }
    }
}

/// Checks when an init container starts again.
pub(crate) fn of_init(container: &Value, path: &Path, errors: &mut ErrorList) {
    if container["restartPolicy"].is_string() {
        return rules(container, path, errors);
    }
    if !list(container, "restartPolicyRules").is_empty() {
        let detail = "must specify restartPolicy when restart rules are used";
        errors.push(Error::required(&path.child("restartPolicy"), detail));
    }
}

/// What an init container that ends before the others begin has no use for.
pub(crate) fn only_for_sidecars(container: &Value, path: &Path, errors: &mut ErrorList) {
    for key in [
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
    ] {
        if container[key].is_object() {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.push(Error::forbidden(&path.child(key), detail));
        }
    }
    for (index, policy) in list(container, "resizePolicy").iter().enumerate() {
        let found = text(policy, "restartPolicy");
        if found == "RestartContainer" {
            let at = path
                .child("resizePolicy")
                .index(index)
                .child("restartPolicy");
            let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            errors.push(Error::invalid(&at, found, detail));
        }
    }
}
