use super::*;

/// A kubelet shows the mounts of each container, with what became of `recursiveReadOnly`.
#[test]
fn regression_the_mounts_of_containers_are_in_their_status() {
    let mounts = json!([
        {"name": "a", "mountPath": "/a"},
        {"name": "b", "mountPath": "/b", "readOnly": true},
        {"name": "c", "mountPath": "/c", "readOnly": true, "recursiveReadOnly": "Enabled"},
        {"name": "d", "mountPath": "/d", "readOnly": true, "recursiveReadOnly": "IfPossible"},
    ]);
    let container = json!({"name": "c", "image": "app", "volumeMounts": mounts});
    let pod = json!({"spec": {"containers": [container, {"name": "d", "image": "app"}]}});
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    let found = |runtime| {
        let input = Input {
            pod: &pod,
            containers: &HashMap::new(),
            runtime,
            address: "127.0.0.1",
            own: &[],
            sandbox: false,
            ending: false,
            failed: None,
            now: Timestamp::UNIX_EPOCH,
            start: Timestamp::UNIX_EPOCH,
            since: &HashMap::new(),
        };
        status(&input)["containerStatuses"].clone()
    };
    let all = found("process");
    assert_eq!(
        all[0]["volumeMounts"],
        json!([
            {"name": "a", "mountPath": "/a"},
            {"name": "b", "mountPath": "/b", "readOnly": true, "recursiveReadOnly": "Disabled"},
            {"name": "c", "mountPath": "/c", "readOnly": true, "recursiveReadOnly": "Enabled"},
            {"name": "d", "mountPath": "/d", "readOnly": true, "recursiveReadOnly": "Enabled"},
        ])
    );
    assert!(all[1].get("volumeMounts").is_none());
    let delegated = &found("containerd")[0]["volumeMounts"];
    assert_eq!(delegated[3]["recursiveReadOnly"], "Disabled");
}
