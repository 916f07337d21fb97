use allot_reflector::Readable as _;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::keep;

fn spec() -> Value {
    json!({
        "containers": [{"name": "main", "image": "image", "ports": [{"name": "web", "containerPort": 80}]}],
        "nodeName": "node",
        "volumes": [{"name": "data", "emptyDir": {}}],
    })
}

#[test]
fn pods_keep_what_controllers_look_at() {
    let pod = json!({
        "metadata": {"name": "pod", "managedFields": [{"manager": "somebody"}]},
        "spec": spec(),
        "status": {"phase": "Running"},
    });
    let pod = Pod::read(&pod.to_string(), keep::<Pod>()).expect("a pod");
    assert_eq!(
        serde_json::to_value(pod).expect("JSON"),
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pod"},
            "spec": {
                "containers": [{"name": "main", "ports": [{"name": "web", "containerPort": 80}]}],
                "nodeName": "node",
            },
            "status": {"phase": "Running"},
        })
    );
}

#[test]
fn templates_are_whole() {
    let set = json!({
        "metadata": {"name": "set", "managedFields": [{"manager": "somebody"}]},
        "spec": {"selector": {}, "template": {"spec": spec()}},
    });
    let set = ReplicaSet::read(&set.to_string(), keep::<ReplicaSet>()).expect("a replica set");
    let set = serde_json::to_value(set).expect("JSON");
    assert_eq!(set["spec"]["template"]["spec"], spec());
    assert_eq!(set["metadata"], json!({"name": "set"}));
}
