use allot_reflector::Readable as _;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceSlice;
use serde_json::{Value, json};

use super::{keep, tidy};

fn spec() -> Value {
    json!({
        "containers": [{"name": "main", "image": "image", "ports": [{"name": "web", "containerPort": 80}]}],
        "nodeName": "node",
        "nodeSelector": {"zone": "a"},
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
fn of_containers_that_run_their_state_is_kept() {
    let state = json!({"terminated": {"exitCode": 1}});
    let status = json!({
        "name": "main",
        "ready": false,
        "restartCount": 3,
        "state": state,
        "lastState": state,
        "image": "registry.example.com/image:1",
        "imageID": "registry.example.com/image@sha256:0",
        "containerID": "containerd://0",
        "user": {"linux": {"uid": 0, "gid": 0}},
    });
    let spec = json!({"containers": [], "schedulerName": "default-scheduler", "serviceAccountName": "default"});
    let pod = json!({"spec": spec, "status": {"containerStatuses": [status]}});
    let pod = Pod::read(&pod.to_string(), keep::<Pod>()).expect("a pod");
    let pod = serde_json::to_value(pod).expect("JSON");
    assert_eq!(pod["spec"], json!({"containers": []}));
    assert_eq!(
        pod["status"]["containerStatuses"],
        json!([{
            "name": "main",
            "ready": false,
            "restartCount": 3,
            "state": state,
            "lastState": state,
            "image": "",
            "imageID": "",
        }])
    );
}

#[test]
fn lists_of_pods_have_no_empty_places() {
    let pod = json!({
        "spec": {
            "containers": [{"name": "main"}],
            "initContainers": [{"name": "init", "ports": [{"containerPort": 80}]}],
            "tolerations": [{"key": "a"}, {"key": "b"}, {"key": "c"}, {"key": "d"}, {"key": "e"}],
        },
        "status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]},
    });
    let mut pod = Pod::read(&pod.to_string(), keep::<Pod>()).expect("a pod");
    tidy(&mut pod);
    let spec = pod.spec.expect("a specification");
    assert_eq!(spec.containers.capacity(), 0);
    assert_eq!(spec.init_containers, None);
    assert_eq!(spec.tolerations.map(|list| list.capacity()), Some(5));
    let conditions = pod.status.and_then(|status| status.conditions);
    assert_eq!(conditions.map(|list| list.capacity()), Some(2));
}

#[test]
fn slices_keep_what_devices_are_called_where_they_are_and_their_taints() {
    let device =
        json!({"name": "a", "nodeName": "node", "taints": [{"key": "k", "effect": "NoSchedule"}]});
    let spec = json!({
        "driver": "gpu.example.com",
        "pool": {"name": "pool", "generation": 2, "resourceSliceCount": 1},
        "nodeName": "node",
        "devices": [device],
    });
    let mut published = json!({"metadata": {"name": "slice"}, "spec": spec});
    published["spec"]["sharedCounters"] = json!([{"name": "card", "counters": {}}]);
    published["spec"]["devices"][0]["attributes"] = json!({"model": {"string": "A"}});
    published["spec"]["devices"][0]["capacity"] = json!({"memory": {"value": "80Gi"}});
    published["spec"]["devices"][0]["consumesCounters"] =
        json!([{"counterSet": "card", "counters": {}}]);
    let slice = ResourceSlice::read(&published.to_string(), keep::<ResourceSlice>());
    let slice = serde_json::to_value(slice.expect("a slice")).expect("JSON");
    assert_eq!(slice["spec"], spec);
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
