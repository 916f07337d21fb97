//! Removes confidential content from a snapshot that does not affect placement.
//!
//! A snapshot is attached to bug reports. Environment variables, command lines, probes and annotations hold
//! credentials in practice; the scheduler reads none of them, except for a few annotations that Kubernetes itself
//! defines.

use serde_json::{Map, Value};

/// Annotations that the scheduler or the controllers read. Every other annotation is removed.
const KEPT_ANNOTATIONS: [&str; 9] = [
    "resource.kubernetes.io/extended-resource-claim",
    "resource.kubernetes.io/pod-claim-name",
    allot_apimachinery::well_known::BETA_STORAGE_CLASS_ANNOTATION,
    "volume.kubernetes.io/selected-node",
    "volume.kubernetes.io/storage-provisioner",
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "kubernetes.io/config.mirror",
    "allot.dev/registered-drivers",
];

/// Fields of a container that no scheduling decision reads.
const CONTAINER_FIELDS: [&str; 9] = [
    "command",
    "args",
    "envFrom",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "terminationMessagePath",
    "workingDir",
];

/// Removes confidential fields from one object of a snapshot.
pub fn redact(object: &mut Value) {
    redact_metadata(object.get_mut("metadata"));
    let is_pod = object["kind"] == "Pod";
    if is_pod && let Some(spec) = object.get_mut("spec") {
        redact_pod_spec(spec);
    }
    if is_pod && let Some(status) = object.get_mut("status") {
        redact_pod_status(status);
    }
    // Templates carry the metadata of the created objects.
    if let Some(template) = object
        .get_mut("spec")
        .filter(|spec| spec.is_object())
        .filter(|spec| spec.get("metadata").is_some())
    {
        redact_metadata(template.get_mut("metadata"));
    }
}

fn redact_metadata(metadata: Option<&mut Value>) {
    let Some(metadata) = metadata.and_then(Value::as_object_mut) else {
        return;
    };
    metadata.remove("managedFields");
    if let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.retain(|key, _| KEPT_ANNOTATIONS.contains(&key.as_str()));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

fn redact_pod_spec(spec: &mut Value) {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in objects(spec.get_mut(list)) {
            for field in CONTAINER_FIELDS {
                container.remove(field);
            }
            for variable in objects(container.get_mut("env")) {
                variable.remove("value");
            }
        }
    }
}

/// A container's termination message is its own output.
fn redact_pod_status(status: &mut Value) {
    for list in [
        "initContainerStatuses",
        "containerStatuses",
        "ephemeralContainerStatuses",
    ] {
        for container in objects(status.get_mut(list)) {
            for state in ["state", "lastState"] {
                let Some(state) = container.get_mut(state).and_then(Value::as_object_mut) else {
                    continue;
                };
                for detail in state.values_mut().filter_map(Value::as_object_mut) {
                    detail.remove("message");
                }
            }
        }
    }
}

fn objects(list: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let list = list.and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// No string of the object contains `SECRET` after the redaction; `expected` is what remains.
    fn check(mut object: Value, expected: &Value) {
        redact(&mut object);
        assert_eq!(&object, expected);
        assert!(!object.to_string().contains("SECRET"), "{object}");
    }

    #[test]
    fn a_pod_keeps_what_decides_where_it_runs() {
        let secret = || {
            json!([{"name": "TOKEN", "value": "SECRET"}, {"name": "NODE",
            "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}])
        };
        let probe = json!({"httpGet": {"path": "/", "port": 1,
            "httpHeaders": [{"name": "Authorization", "value": "SECRET"}]}});
        let resources = json!({"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]});
        let names = || {
            json!([{"name": "TOKEN"}, {"name": "NODE",
            "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}])
        };
        check(
            json!({
                "kind": "Pod",
                "metadata": {"name": "p", "labels": {"app": "a"}, "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "SECRET",
                    "kubernetes.io/config.mirror": "hash"}},
                "spec": {
                    "nodeName": "n",
                    "containers": [{"name": "c", "image": "i", "command": ["run", "--token=SECRET"],
                        "args": ["SECRET"], "env": secret(), "livenessProbe": probe,
                        "resources": resources}],
                    "initContainers": [{"name": "i", "env": secret()}],
                    "ephemeralContainers": [{"name": "e", "env": secret()}],
                },
                "status": {"phase": "Running", "containerStatuses": [{"name": "c",
                    "state": {"terminated": {"exitCode": 1, "message": "SECRET"}},
                    "lastState": {"terminated": {"exitCode": 2, "message": "SECRET"}}}]},
            }),
            &json!({
                "kind": "Pod",
                "metadata": {"name": "p", "labels": {"app": "a"},
                    "annotations": {"kubernetes.io/config.mirror": "hash"}},
                "spec": {
                    "nodeName": "n",
                    "containers": [{"name": "c", "image": "i", "env": names(), "resources": resources}],
                    "initContainers": [{"name": "i", "env": names()}],
                    "ephemeralContainers": [{"name": "e", "env": names()}],
                },
                "status": {"phase": "Running", "containerStatuses": [{"name": "c",
                    "state": {"terminated": {"exitCode": 1}}, "lastState": {"terminated": {"exitCode": 2}}}]},
            }),
        );
    }

    #[test]
    fn other_objects_lose_annotations_only() {
        let spec = json!({"metadata": {"annotations": {"note": "SECRET"}},
            "spec": {"devices": {"requests": [{"name": "r"}]}}});
        check(
            json!({"kind": "ResourceClaimTemplate",
                "metadata": {"name": "t", "annotations": {"note": "SECRET"}}, "spec": spec}),
            &json!({"kind": "ResourceClaimTemplate", "metadata": {"name": "t"},
                "spec": {"metadata": {}, "spec": {"devices": {"requests": [{"name": "r"}]}}}}),
        );
    }

    #[test]
    fn objects_of_unexpected_form_are_left_as_they_are() {
        for object in [
            json!(null),
            json!([]),
            json!({"kind": "Pod", "spec": [], "status": "x", "metadata": 1}),
            json!({"kind": "Pod", "spec": {"containers": [1, {"env": "x"}]}}),
        ] {
            let mut copy = object.clone();
            if !copy.is_null() && copy.is_object() {
                redact(&mut copy);
            }
            assert_eq!(copy, object);
        }
    }
}
