use super::super::state::Terminated;
use super::*;

/// The status of a pod in which these containers have done something.
fn status_of(pod: &Pod, containers: &HashMap<String, ContainerState>, runtime: &str) -> Value {
    status(&Input {
        pod,
        containers,
        runtime,
        address: "127.0.0.1",
        own: &[],
        sandbox: false,
        ending: false,
        failed: None,
        disrupted: false,
        now: Timestamp::UNIX_EPOCH,
        start: Timestamp::UNIX_EPOCH,
        since: &HashMap::new(),
    })
}

/// The attack: many containers that each say as much as one may. A kubelet reports so much of a pod.
#[test]
fn the_messages_of_a_pod_share_their_size() {
    let check = |number: usize, most: usize| {
        let names: Vec<String> = (0..number).map(|number| format!("c{number}")).collect();
        let containers: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        let (init, others) = containers.split_at(number / 2);
        let pod = json!({"spec": {"initContainers": init, "containers": others}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let end = Terminated {
            id: String::new(),
            started: None,
            exit: crate::shim::spec::Exit {
                code: 1,
                finished: Timestamp::UNIX_EPOCH,
                oom_killed: false,
            },
            reason: "Error".into(),
            message: "ä".repeat(2048),
        };
        let state = ContainerState {
            phase: Phase::Terminated(end.clone()),
            last: Some(end),
            ..ContainerState::default()
        };
        let states = names.iter().map(|name| (name.clone(), state.clone()));
        let status = status_of(&pod, &states.collect(), "process");
        for list in ["initContainerStatuses", "containerStatuses"] {
            for found in status[list].as_array().into_iter().flatten() {
                for state in ["state", "lastState"] {
                    let message = &found[state]["terminated"]["message"];
                    assert_eq!(message.as_str().map(str::len), Some(most), "{number}");
                }
            }
        }
    };
    check(1, 4096);
    check(3, 4096);
    check(4, 3072);
    // Not in the middle of a character.
    check(13, 944);
}

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
    let found = |runtime| status_of(&pod, &HashMap::new(), runtime)["containerStatuses"].clone();
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
