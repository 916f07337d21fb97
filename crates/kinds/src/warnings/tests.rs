use serde_json::json;

use super::*;

fn check_pod(spec: Value, expected: &[&str]) {
    assert_eq!(
        pod::warnings(&json!({ "spec": spec }), ""),
        expected,
        "{spec}"
    );
}

#[test]
fn pod_fields_have_upstreams_warnings() {
    check_pod(json!({"containers": [{"name": "a"}]}), &[]);
    check_pod(
        json!({"nodeSelector": {"beta.kubernetes.io/os": "linux"}}),
        &[
            "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
        ],
    );
    check_pod(
        json!({"containers": [
            {"ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "TCP", "hostPort": 8}]},
            {"ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "UDP"}]},
        ]}),
        &[
            "spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]",
            "spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[0]",
            "spec.containers[1].ports[0]: overlapping port definition with spec.containers[0].ports[1]",
        ],
    );
    check_pod(
        json!({"containers": [{"env": [
            {"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A", "value": "3"},
        ]}]}),
        &[
            "spec.containers[0].env[2]: hides previous definition of \"A\", which may be dropped when using apply",
        ],
    );
    check_pod(
        json!({"containers": [{"resources": {"requests": {"memory": "0.5"}}}]}),
        &[
            "spec.containers[0].resources.requests[memory]: fractional byte value \"500m\" is invalid, must be an integer",
        ],
    );
    check_pod(
        json!({"imagePullSecrets": [{"name": "a"}, {"name": "a"}, {}], "terminationGracePeriodSeconds": -1}),
        &[
            "spec.imagePullSecrets[1].name: duplicate name \"a\"",
            "spec.imagePullSecrets[2].name: invalid empty name \"\"",
            "spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
        ],
    );
    check_pod(
        json!({"topologySpreadConstraints": [{"topologyKey": "beta.kubernetes.io/arch"}]}),
        &[
            "spec.topologySpreadConstraints[0].topologyKey: beta.kubernetes.io/arch is deprecated since v1.14; use \"kubernetes.io/arch\" instead",
            "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
        ],
    );
}

#[test]
fn owners_named_twice_count_once() {
    let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid});
    let mut object = json!({"metadata": {"ownerReferences": [owner("a"), owner("b"), owner("a")]}});
    let warning = repeated_owners(&mut object, false).unwrap();
    assert!(
        warning.ends_with("duplicate UID(s) observed: a"),
        "{warning}"
    );
    assert_eq!(
        object["metadata"]["ownerReferences"],
        json!([owner("a"), owner("b")])
    );
    assert_eq!(repeated_owners(&mut object, false), None);
}

#[test]
fn finalizers_should_say_whose_they_are() {
    let object =
        json!({"metadata": {"finalizers": ["mine", "example.com", "example.com/x", "orphan"]}});
    assert_eq!(
        finalizers(&object, &Value::Null),
        [
            "metadata.finalizers: \"example.com\": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers",
            "metadata.finalizers: \"mine\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers",
        ]
    );
}
