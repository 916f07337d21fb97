//! Status fields of workload controllers.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::numbers;

/// Validates the status of a workload.
pub(crate) fn validate_status(plural: &str, object: &Value, old: &Value, errors: &mut ErrorList) {
    let (status, path) = (&object["status"], Path::new("status"));
    let (counts, within, of_ready): (&[&str], &[&str], &str) = match plural {
        "deployments" => (
            &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "collisionCount",
            ],
            &["updatedReplicas", "readyReplicas", "availableReplicas"],
            "cannot be greater than readyReplicas",
        ),
        "replicasets" | "replicationcontrollers" => (
            &[
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
            ],
            &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
            "cannot be greater than readyReplicas",
        ),
        "statefulsets" => (
            &[
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ],
            &[
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
            ],
            "cannot be greater than status.readyReplicas",
        ),
        "daemonsets" => (
            &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ],
            &[],
            "",
        ),
        _ => return,
    };
    numbers(status, counts, &path, errors);
    let count = |key: &str| status[key].as_i64().unwrap_or_default();
    for key in within {
        if count(key) > count("replicas") {
            let detail = "cannot be greater than status.replicas";
            errors.push(Error::invalid(&path.child(key), count(key), detail));
        }
    }
    if !within.is_empty() && count("availableReplicas") > count("readyReplicas") {
        let at = path.child("availableReplicas");
        errors.push(Error::invalid(&at, count("availableReplicas"), of_ready));
    }
    if let Some(before) = old["status"]["collisionCount"].as_i64()
        && count("collisionCount") < before
    {
        let at = path.child("collisionCount");
        let detail = "cannot be decremented";
        errors.push(Error::invalid(&at, count("collisionCount"), detail));
    }
}
