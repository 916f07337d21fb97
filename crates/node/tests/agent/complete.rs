//! Pods of a container runtime behind its interface: life, re-adoption, a runtime that goes away, devices.

use allot_protos::cri_v1 as v1;
use allot_testing::wait::until_true;
use serde_json::{Value, json};

use super::harness::{Cluster, pod_path, status};
use super::runtime::FakeRuntime;

const NODE: &str = "/api/v1/nodes/n1";

pub(super) async fn start() -> (FakeRuntime, Cluster, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("cri.sock");
    let fake = FakeRuntime::start(&socket);
    let cluster = Cluster::with_runtime(socket).await;
    (fake, cluster, directory)
}

pub(super) fn app(more: Value) -> Value {
    let mut container = json!({"name": "c", "image": "app", "imagePullPolicy": "IfNotPresent", "command": ["run", "$(A)"],
        "env": [{"name": "A", "value": "1"}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        container[key] = value.clone();
    }
    container
}

pub(super) fn condition<'a>(node: &'a Value, kind: &str) -> &'a Value {
    let all = node["status"]["conditions"].as_array();
    let found = all.into_iter().flatten().find(|it| it["type"] == kind);
    found.unwrap_or(&Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_lives_and_leaves_nothing() {
    let (fake, cluster, _directory) = start().await;
    let spec = json!({"restartPolicy": "Never", "containers": [app(json!({}))]});
    let uid = cluster.pod("p", spec).await;
    let pod = cluster.wait_for_phase("p", "Running").await;
    let id = fake.running("c").expect("a container");
    assert_eq!(
        status(&pod, "c")["containerID"],
        format!("containerd://{id}")
    );
    assert_eq!(status(&pod, "c")["imageID"], "sha256:app");
    {
        let state = fake.state.lock().expect("a state");
        let sandbox = state.sandboxes.values().next().expect("a sandbox");
        let context = sandbox.config.linux.clone().expect("options");
        let context = context.security_context.expect("a security context");
        let namespaces = context.namespace_options.expect("namespaces");
        assert_eq!(
            namespaces.network(),
            v1::NamespaceMode::Node,
            "there is no network for pods"
        );
        let container = &state.containers[&id].config;
        assert_eq!(container.labels["io.kubernetes.pod.uid"], uid);
        assert_eq!(container.command, ["run", "1"]);
        let logs = format!("{}/logs/default_p_{uid}", cluster.root().display());
        assert_eq!(sandbox.config.log_directory, logs);
        assert_eq!(container.log_path, "c/0.log");
    }
    let node = cluster.get(NODE).await;
    let version = &node["status"]["nodeInfo"]["containerRuntimeVersion"];
    assert_eq!(version, "containerd://v2.0.0-fake");
    let network = condition(&node, "NetworkReady");
    assert_eq!(network["status"], "False");
    let message = network["message"].as_str().unwrap_or_default();
    assert!(message.contains("cni plugin not initialized"), "{message}");

    fake.state
        .lock()
        .expect("a state")
        .end(&id, 137, "OOMKilled");
    let pod = cluster.wait_for_phase("p", "Failed").await;
    let end = &status(&pod, "c")["state"]["terminated"];
    assert_eq!(
        (&end["reason"], &end["exitCode"]),
        (&json!("OOMKilled"), &json!(137))
    );
    cluster.delete(&pod_path("p")).await;
    cluster.wait_until_gone("p").await;
    until_true("nothing is left", || {
        let state = fake.state.lock().expect("a state");
        state.sandboxes.is_empty() && state.containers.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_the_address_of_its_sandbox_and_its_grace() {
    let (fake, cluster, _directory) = start().await;
    fake.state.lock().expect("a state").address = Some("10.88.0.7".into());
    cluster
        .wait_until(NODE, "with a network", |node| {
            condition(node, "NetworkReady")["status"] == "True"
        })
        .await;
    let own = json!({"containers": [app(json!({"env": [{"name": "A",
        "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}))]});
    cluster.pod("p", own).await;
    let pod = cluster.wait_for_phase("p", "Running").await;
    assert_eq!(pod["status"]["podIP"], "10.88.0.7");
    assert_eq!(pod["status"]["hostIP"], "127.0.0.1");
    let id = fake.running("c").expect("a container");
    let command = fake.state.lock().expect("a state").containers[&id]
        .config
        .command
        .clone();
    assert_eq!(command, ["run", "10.88.0.7"]);
    cluster
        .delete(&format!("{}?gracePeriodSeconds=7", pod_path("p")))
        .await;
    cluster.wait_until_gone("p").await;
    let calls = fake.state.lock().expect("a state").calls.clone();
    let stops: Vec<_> = calls.iter().filter(|it| it.starts_with("Stop")).collect();
    assert_eq!(stops, ["StopContainer 7"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_agent_goes_on_with_what_runs() {
    let (fake, mut cluster, _directory) = start().await;
    let spec = json!({"restartPolicy": "Never", "containers": [app(json!({}))]});
    cluster.pod("stays", spec.clone()).await;
    cluster.wait_for_phase("stays", "Running").await;
    let stays = fake.running("c").expect("a container");
    cluster.stop_agent().await;
    cluster.start_agent().await;
    let spec = json!({"restartPolicy": "Never", "containers": [app(json!({"name": "d"}))]});
    cluster.pod("later", spec).await;
    cluster.wait_for_phase("later", "Running").await;
    assert_eq!(fake.running("c").as_ref(), Some(&stays));

    // What ends while nobody looks is told as it ended; what was deleted meanwhile is removed.
    let later = fake.running("d").expect("a container");
    cluster.stop_agent().await;
    fake.state.lock().expect("a state").end(&stays, 3, "Error");
    let force = format!("{}?gracePeriodSeconds=0", pod_path("later"));
    cluster.delete(&force).await;
    cluster.start_agent().await;
    let pod = cluster.wait_for_phase("stays", "Failed").await;
    let end = &status(&pod, "c")["state"]["terminated"];
    assert_eq!(end["exitCode"], 3);
    assert_eq!(end["containerID"], format!("containerd://{stays}"));
    until_true("the other is removed", || {
        let state = fake.state.lock().expect("a state");
        !state.containers.contains_key(&later) && state.sandboxes.len() == 1
    })
    .await;
    let calls = fake.state.lock().expect("a state").calls.clone();
    let made = calls.iter().filter(|it| *it == "CreateContainer").count();
    assert_eq!(made, 2, "{calls:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_concluded_while_the_runtime_is_away() {
    let (mut fake, cluster, _directory) = start().await;
    let spec = json!({"restartPolicy": "Never", "containers": [app(json!({}))]});
    cluster.pod("p", spec).await;
    cluster.wait_for_phase("p", "Running").await;
    let id = fake.running("c").expect("a container");
    fake.shut_down();
    let node = cluster
        .wait_until(NODE, "not ready", |node| {
            condition(node, "Ready")["status"] == "False"
        })
        .await;
    let ready = condition(&node, "Ready");
    assert_eq!(ready["reason"], "KubeletNotReady");
    let message = ready["message"].as_str().unwrap_or_default();
    assert!(
        message.starts_with("container runtime is down: unix:///"),
        "{message}"
    );
    let pod = cluster.get(&pod_path("p")).await;
    assert_eq!(pod["status"]["phase"], "Running");
    fake.state.lock().expect("a state").end(&id, 0, "Completed");
    fake.serve();
    cluster
        .wait_until(NODE, "ready again", |node| {
            condition(node, "Ready")["status"] == "True"
        })
        .await;
    cluster.wait_for_phase("p", "Succeeded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_given_to_the_runtime_or_the_pod_waits() {
    let (fake, cluster, _directory) = start().await;
    let (_plugin, _calls) = cluster.driver().await;
    fake.state.lock().expect("a state").config =
        r#"{"enableCDI": false, "cdiSpecDirs": ["/etc/cdi"]}"#.into();
    let with_claim = |claim: &str| {
        json!({
            "containers": [app(json!({"resources": {"claims": [{"name": "device"}]}}))],
            "resourceClaims": [{"name": "device", "resourceClaimName": claim}],
        })
    };
    cluster.claim("claim", "b").await;
    let uid = cluster.pod("p", with_claim("claim")).await;
    cluster.reserve("claim", "p", &uid).await;
    let pod = cluster
        .wait_until(&pod_path("p"), "refused", |pod| {
            status(pod, "c")["state"]["waiting"]["reason"] == "CreateContainerError"
        })
        .await;
    let message = status(&pod, "c")["state"]["waiting"]["message"].to_string();
    let expected =
        "failed to inject CDI devices: unresolvable CDI devices test.example.com/device=";
    assert!(message.contains(expected), "{message}");
    let remedy = cluster.wait_for_event("p", "DevicesNotInjected").await;
    assert!(remedy.contains("set enable_cdi = true"), "{remedy}");
    assert!(fake.running("c").is_none());

    // Once CDI is switched on, the container is started by the agent itself.
    fake.state.lock().expect("a state").config = r#"{"enableCDI": true}"#.into();
    cluster.wait_for_phase("p", "Running").await;
    let id = fake.running("c").expect("a container");
    let state = fake.state.lock().expect("a state");
    let devices = &state.containers[&id].config.cdi_devices;
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    // The device, and the device that mounts its metadata.
    assert_eq!(names.len(), 2, "{names:?}");
    let is_device = |name: &&str| name.starts_with("test.example.com/device=");
    assert!(names.iter().any(is_device), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_and_programs_that_do_not_start_are_told() {
    let (fake, cluster, _directory) = start().await;
    let probe = |command: &str| json!({"exec": {"command": [command]}, "periodSeconds": 1, "failureThreshold": 1});
    let good = app(json!({"readinessProbe": probe("true")}));
    cluster.pod("good", json!({"containers": [good]})).await;
    cluster
        .wait_until(&pod_path("good"), "ready", |pod| {
            status(pod, "c")["ready"] == true
        })
        .await;
    let bad = app(json!({"name": "d", "readinessProbe": probe("false")}));
    cluster.pod("bad", json!({"containers": [bad]})).await;
    let message = cluster.wait_for_event("bad", "Unhealthy").await;
    assert_eq!(message, "Readiness probe failed: told");
    let missing = app(json!({"name": "e", "command": ["missing"]}));
    let spec = json!({"restartPolicy": "Never", "containers": [missing]});
    cluster.pod("missing", spec).await;
    let pod = cluster.wait_for_phase("missing", "Failed").await;
    let end = &status(&pod, "e")["state"]["terminated"];
    assert_eq!(end["reason"], "StartError");
    assert!(end["message"].to_string().contains("not found"));
    drop(fake);
}

/// What the runtime made although the agent had given up the call is in the way of the next attempt.
#[tokio::test(flavor = "multi_thread")]
async fn regression_what_was_made_after_its_deadline_is_removed() {
    let (fake, cluster, _directory) = start().await;
    let lost = ["RunPodSandbox", "CreateContainer"].map(str::to_owned);
    fake.state.lock().expect("a state").lost_responses = lost.to_vec();
    let spec = json!({"containers": [app(json!({}))]});
    cluster.pod("p", spec.clone()).await;
    cluster.wait_for_phase("p", "Running").await;
    fake.running("c").expect("a container");
    until_true("only what is used is left", || {
        let state = fake.state.lock().expect("a state");
        state.lost_responses.is_empty() && state.sandboxes.len() == 1 && state.containers.len() == 1
    })
    .await;
    // Of a pod that is deleted before the next attempt, too.
    fake.state.lock().expect("a state").lost_responses = lost[..1].to_vec();
    cluster.pod("q", spec).await;
    until_true("the answer is lost", || {
        fake.state
            .lock()
            .expect("a state")
            .lost_responses
            .is_empty()
    })
    .await;
    for pod in ["q", "p"] {
        let force = format!("{}?gracePeriodSeconds=0", pod_path(pod));
        cluster.delete(&force).await;
    }
    until_true("nothing is left", || {
        let state = fake.state.lock().expect("a state");
        state.sandboxes.is_empty() && state.containers.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn regression_a_removal_that_does_not_end_delays_no_exit() {
    let (fake, cluster, _directory) = start().await;
    let spec =
        |name: &str| json!({"restartPolicy": "Never", "containers": [app(json!({"name": name}))]});
    cluster.pod("goes", spec("c")).await;
    cluster.pod("ends", spec("d")).await;
    cluster.wait_for_phase("goes", "Running").await;
    cluster.wait_for_phase("ends", "Running").await;
    fake.state.lock().expect("a state").removals_hang = true;
    let force = format!("{}?gracePeriodSeconds=0", pod_path("goes"));
    cluster.delete(&force).await;
    until_true("the sandbox is being removed", || {
        let state = fake.state.lock().expect("a state");
        state.calls.iter().any(|call| call == "RemovePodSandbox")
    })
    .await;
    let id = fake.running("d").expect("a container");
    fake.state.lock().expect("a state").end(&id, 0, "Completed");
    cluster.wait_for_phase("ends", "Succeeded").await;
}

/// The runtime had a network when the sandbox was made; the containers of the pod are in it, whatever the runtime has now.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_new_agent_knows_which_network_a_sandbox_has() {
    let (fake, mut cluster, _directory) = start().await;
    let with_network = |status: &'static str| {
        move |node: &Value| condition(node, "NetworkReady")["status"] == status
    };
    fake.state.lock().expect("a state").address = Some("10.88.0.7".into());
    cluster
        .wait_until(NODE, "with a network", with_network("True"))
        .await;
    cluster
        .pod("p", json!({"containers": [app(json!({}))]}))
        .await;
    cluster.wait_for_phase("p", "Running").await;
    let first = fake.running("c").expect("a container");
    cluster.stop_agent().await;
    fake.state.lock().expect("a state").address = None;
    cluster.start_agent().await;
    cluster
        .wait_until(NODE, "without a network", with_network("False"))
        .await;
    fake.state.lock().expect("a state").end(&first, 1, "Error");
    until_true("the container is started again", || {
        fake.running("c").is_some_and(|id| id != first)
    })
    .await;
    let second = fake.running("c").expect("a container");
    let state = fake.state.lock().expect("a state");
    let linux = state.containers[&second].config.linux.clone();
    let context = linux.and_then(|linux| linux.security_context);
    let namespaces = context.and_then(|context| context.namespace_options);
    let network = namespaces.expect("namespaces").network();
    assert_eq!(network, v1::NamespaceMode::Pod);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_handler_of_the_runtime_class_is_told() {
    let (fake, cluster, _directory) = start().await;
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "safe"}, "handler": "runsc"});
    let classes = "/apis/node.k8s.io/v1/runtimeclasses";
    cluster.post(classes, class).await;
    let spec = json!({"runtimeClassName": "safe", "containers": [app(json!({}))]});
    cluster.pod("p", spec).await;
    cluster.wait_for_phase("p", "Running").await;
    let state = fake.state.lock().expect("a state");
    let handlers: Vec<_> = state.sandboxes.values().map(|it| &it.handler).collect();
    assert_eq!(handlers, ["runsc"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_logs_are_rotated() {
    let (_fake, cluster, _directory) = start().await;
    let spec = json!({"containers": [app(json!({}))]});
    let uid = cluster.pod("p", spec).await;
    cluster.wait_for_phase("p", "Running").await;
    let directory = cluster.root().join(format!("logs/default_p_{uid}/c"));
    let log = directory.join("0.log");
    let names = || {
        let all = std::fs::read_dir(&directory)
            .expect("a directory")
            .flatten();
        let mut names: Vec<_> = all.map(|it| it.path()).collect();
        names.sort();
        names
    };
    // The runtime begins the log.
    until_true("there is a log", || log.exists()).await;
    for run in 0..4_usize {
        let line = format!("2026-01-01T00:00:00Z stdout F {run} {}\n", "x".repeat(100));
        std::fs::write(&log, line).expect("a log");
        until_true("the log is put aside", || {
            std::fs::metadata(&log).is_ok_and(|log| log.len() == 0)
                && names().len() == (run + 2).min(3)
        })
        .await;
    }
    let content = |path: &std::path::PathBuf| std::fs::read_to_string(path).expect("a log");
    let kept: Vec<String> = names()[1..].iter().map(content).collect();
    assert!(
        kept[0].contains("F 2 ") && kept[1].contains("F 3 "),
        "{kept:?}"
    );
}

/// A runtime learns of the exit and of why the kernel killed the program from different sources.
#[tokio::test(flavor = "multi_thread")]
async fn regression_the_reason_of_an_exit_may_be_known_late() {
    let (fake, cluster, _directory) = start().await;
    let spec = json!({"restartPolicy": "Never", "containers": [app(json!({}))]});
    cluster.pod("p", spec).await;
    cluster.wait_for_phase("p", "Running").await;
    let id = fake.running("c").expect("a container");
    {
        let mut state = fake.state.lock().expect("a state");
        state.late_reason = Some("OOMKilled".into());
        state.end(&id, 137, "Error");
    }
    let pod = cluster.wait_for_phase("p", "Failed").await;
    let end = &status(&pod, "c")["state"]["terminated"];
    assert_eq!(end["reason"], "OOMKilled");
    let left = fake.state.lock().expect("a state").late_reason.clone();
    assert_eq!(left, None, "the agent asked before");
}
