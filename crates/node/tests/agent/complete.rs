//! Pods of a container runtime behind its interface: life, re-adoption, a runtime that goes away, devices.

use allot_protos::cri_v1 as v1;
use allot_testing::wait::until_true;
use serde_json::{Value, json};

use super::harness::{Cluster, pod_path, status};
use super::runtime::Fake;

const NODE: &str = "/api/v1/nodes/n1";

async fn start() -> (Fake, Cluster, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("cri.sock");
    let fake = Fake::start(&socket);
    let cluster = Cluster::with_runtime(socket).await;
    (fake, cluster, directory)
}

fn app(more: Value) -> Value {
    let mut container = json!({"name": "c", "image": "app", "imagePullPolicy": "IfNotPresent", "command": ["run", "$(A)"],
        "env": [{"name": "A", "value": "1"}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        container[key] = value.clone();
    }
    container
}

fn condition<'a>(node: &'a Value, kind: &str) -> &'a Value {
    let all = node["status"]["conditions"].as_array();
    let found = all.into_iter().flatten().find(|it| it["type"] == kind);
    found.unwrap_or(&Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_lives_and_leaves_nothing() {
    let (fake, cluster, _directory) = start().await;
    let spec = json!({"restartPolicy": "Never", "containers": [app(json!({}))]});
    let uid = cluster.pod("p", spec).await;
    let pod = cluster.until_phase("p", "Running").await;
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
    let pod = cluster.until_phase("p", "Failed").await;
    let end = &status(&pod, "c")["state"]["terminated"];
    assert_eq!(
        (&end["reason"], &end["exitCode"]),
        (&json!("OOMKilled"), &json!(137))
    );
    cluster.delete(&pod_path("p")).await;
    cluster.until(&pod_path("p"), "gone", Value::is_null).await;
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
        .until(NODE, "with a network", |node| {
            condition(node, "NetworkReady")["status"] == "True"
        })
        .await;
    let own = json!({"containers": [app(json!({"env": [{"name": "A",
        "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}))]});
    cluster.pod("p", own).await;
    let pod = cluster.until_phase("p", "Running").await;
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
    cluster.until(&pod_path("p"), "gone", Value::is_null).await;
    let calls = fake.state.lock().expect("a state").calls.clone();
    let stops: Vec<_> = calls.iter().filter(|it| it.starts_with("Stop")).collect();
    assert_eq!(stops, ["StopContainer 7"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_agent_goes_on_with_what_runs() {
    let (fake, mut cluster, _directory) = start().await;
    let spec = json!({"restartPolicy": "Never", "containers": [app(json!({}))]});
    cluster.pod("stays", spec.clone()).await;
    cluster.until_phase("stays", "Running").await;
    let stays = fake.running("c").expect("a container");
    cluster.stop_agent().await;
    cluster.start_agent().await;
    let spec = json!({"restartPolicy": "Never", "containers": [app(json!({"name": "d"}))]});
    cluster.pod("later", spec).await;
    cluster.until_phase("later", "Running").await;
    assert_eq!(fake.running("c").as_ref(), Some(&stays));

    // What ends while nobody looks is told as it ended; what was deleted meanwhile is removed.
    let later = fake.running("d").expect("a container");
    cluster.stop_agent().await;
    fake.state.lock().expect("a state").end(&stays, 3, "Error");
    let force = format!("{}?gracePeriodSeconds=0", pod_path("later"));
    cluster.delete(&force).await;
    cluster.start_agent().await;
    let pod = cluster.until_phase("stays", "Failed").await;
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
    cluster.until_phase("p", "Running").await;
    let id = fake.running("c").expect("a container");
    fake.go();
    let node = cluster
        .until(NODE, "not ready", |node| {
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
    fake.come();
    cluster
        .until(NODE, "ready again", |node| {
            condition(node, "Ready")["status"] == "True"
        })
        .await;
    cluster.until_phase("p", "Succeeded").await;
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
        .until(&pod_path("p"), "refused", |pod| {
            status(pod, "c")["state"]["waiting"]["reason"] == "CreateContainerError"
        })
        .await;
    let message = status(&pod, "c")["state"]["waiting"]["message"].to_string();
    let expected =
        "failed to inject CDI devices: unresolvable CDI devices test.example.com/device=";
    assert!(message.contains(expected), "{message}");
    let remedy = cluster.until_event("p", "DevicesNotInjected").await;
    assert!(remedy.contains("set enable_cdi = true"), "{remedy}");
    assert!(fake.running("c").is_none());

    // Once CDI is switched on, the container is started by the agent itself.
    fake.state.lock().expect("a state").config = r#"{"enableCDI": true}"#.into();
    cluster.until_phase("p", "Running").await;
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
async fn images_are_pulled_with_the_secrets_of_the_pod() {
    let (fake, cluster, _directory) = start().await;
    let config = r#"{"auths": {"registry.example.com": {"username": "u", "password": "right"}}}"#;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": config}});
    cluster
        .post("/api/v1/namespaces/default/secrets", secret)
        .await;
    let container = app(json!({"image": "registry.example.com/private"}));
    cluster
        .pod("without", json!({"containers": [container.clone()]}))
        .await;
    let message = cluster.until_event("without", "Failed").await;
    assert!(
        message.contains("401 Unauthorized") || message.contains("ErrImagePull"),
        "{message}"
    );
    let with = json!({"containers": [container], "imagePullSecrets": [{"name": "s"}]});
    cluster.pod("with", with).await;
    cluster.until_phase("with", "Running").await;
    let passwords = fake.state.lock().expect("a state").passwords.clone();
    assert!(passwords.contains(&"right".to_owned()), "{passwords:?}");
}

/// The attack: a pod names a private image that a pod of another tenant has brought to the node, without its secret.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_private_image_on_the_node_is_for_pods_that_could_pull_it() {
    let (fake, mut cluster, _directory) = start().await;
    let config = r#"{"auths": {"registry.example.com": {"username": "u", "password": "right"}}}"#;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": config}});
    let secrets = "/api/v1/namespaces/default/secrets";
    cluster.post(secrets, secret).await;
    let container = |name: &str, policy: &str| {
        app(
            json!({"name": name, "image": "registry.example.com/private:1", "imagePullPolicy": policy}),
        )
    };
    let owner = json!({"containers": [container("c", "IfNotPresent")], "imagePullSecrets": [{"name": "s"}]});
    cluster.pod("owner", owner).await;
    cluster.until_phase("owner", "Running").await;
    // The records outlive the agent.
    for attempt in ["before", "after"] {
        for (policy, reason) in [
            ("IfNotPresent", "ErrImagePull"),
            ("Never", "ErrImageNeverPull"),
        ] {
            let name = format!("thief-{attempt}-{}", policy.to_lowercase());
            let spec = json!({"containers": [container("d", policy)]});
            cluster.pod(&name, spec).await;
            cluster
                .until(&pod_path(&name), "refused", |pod| {
                    assert_ne!(pod["status"]["phase"], "Running");
                    status(pod, "d")["state"]["waiting"]["reason"] == reason
                })
                .await;
            assert!(fake.running("d").is_none());
            cluster.delete(&pod_path(&name)).await;
        }
        let pulls = fake.state.lock().expect("a state").passwords.len();
        let name = format!("friend-{attempt}");
        let spec = json!({"containers": [container("e", "IfNotPresent")], "imagePullSecrets": [{"name": "s"}]});
        cluster.pod(&name, spec).await;
        cluster.until_phase(&name, "Running").await;
        let after = fake.state.lock().expect("a state").passwords.len();
        assert_eq!(pulls, after, "a pod with the secret needs no pull");
        let force = format!("{}?gracePeriodSeconds=0", pod_path(&name));
        cluster.delete(&force).await;
        cluster
            .until(&pod_path(&name), "gone", Value::is_null)
            .await;
        cluster.stop_agent().await;
        cluster.start_agent().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_and_programs_that_do_not_start_are_told() {
    let (fake, cluster, _directory) = start().await;
    let probe = |command: &str| json!({"exec": {"command": [command]}, "periodSeconds": 1, "failureThreshold": 1});
    let good = app(json!({"readinessProbe": probe("true")}));
    cluster.pod("good", json!({"containers": [good]})).await;
    cluster
        .until(&pod_path("good"), "ready", |pod| {
            status(pod, "c")["ready"] == true
        })
        .await;
    let bad = app(json!({"name": "d", "readinessProbe": probe("false")}));
    cluster.pod("bad", json!({"containers": [bad]})).await;
    let message = cluster.until_event("bad", "Unhealthy").await;
    assert_eq!(message, "Readiness probe failed: told");
    let missing = app(json!({"name": "e", "command": ["missing"]}));
    let spec = json!({"restartPolicy": "Never", "containers": [missing]});
    cluster.pod("missing", spec).await;
    let pod = cluster.until_phase("missing", "Failed").await;
    let end = &status(&pod, "e")["state"]["terminated"];
    assert_eq!(end["reason"], "StartError");
    assert!(end["message"].to_string().contains("not found"));
    drop(fake);
}
