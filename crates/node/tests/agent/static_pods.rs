//! Static pods: from manifests on the node to containers, and to mirror pods on the API server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_testing::wait::until_true;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::harness::{Cluster, pod_path, shell, status};

const HASH: &str = "kubernetes.io/config.hash";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A cluster whose node has a directory of manifests, and that directory. Its agent does not run yet.
async fn cluster() -> (Cluster, PathBuf) {
    let mut cluster = Cluster::start().await;
    cluster.stop_agent().await;
    let directory = cluster.root().join("manifests");
    std::fs::create_dir(&directory).expect("a new directory");
    cluster.manifests = Some(directory.clone());
    (cluster, directory)
}

/// Writes the manifest of a pod atomically.
fn write(directory: &Path, name: &str, spec: Value) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    let (hidden, file) = (directory.join(".new"), directory.join(name));
    std::fs::write(&hidden, pod.to_string()).expect("a writable directory");
    std::fs::rename(hidden, file).expect("a writable directory");
}

/// A container that prints a text and runs until SIGTERM.
fn service(text: &str) -> Value {
    shell(&format!(
        "trap 'exit 0' TERM; echo {text}; while :; do sleep 0.1; done"
    ))
}

fn runs(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
}

fn container_id(pod: &Value) -> &str {
    status(pod, "c")["containerID"].as_str().unwrap_or_default()
}

/// Waits until the node has no containers.
async fn wait_until_no_containers(cluster: &Cluster) {
    let directory = cluster.root().join("containers");
    until_true("all containers are removed", || {
        let mut left = std::fs::read_dir(&directory).into_iter().flatten();
        left.next().is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_pod_runs_and_its_mirror_shows_it() {
    let (mut cluster, directory) = cluster().await;
    cluster.start_agent().await;
    write(&directory, "web", json!({"containers": [service("up")]}));
    let pod = cluster
        .wait_until(&pod_path("web-n1"), "Running", runs)
        .await;
    cluster.wait_for_logs("web-n1", &["c"]).await;
    let annotations = &pod["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert!(annotations["kubernetes.io/config.seen"].is_string());
    assert_eq!(annotations[MIRROR], annotations[HASH]);
    let owner = &pod["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"]),
        (&json!("Node"), &json!("n1"))
    );
    assert!(pod["status"]["podIP"].is_string());
    let event = cluster.wait_for_event("web-n1", "Started").await;
    assert_eq!(event, "Started container c");

    // A client cannot end it: only its mirror is created again.
    cluster.delete(&pod_path("web-n1")).await;
    let again = cluster
        .wait_until(&pod_path("web-n1"), "another mirror, Running", |found| {
            runs(found) && found["metadata"]["uid"] != pod["metadata"]["uid"]
        })
        .await;
    assert_eq!(container_id(&again), container_id(&pod));
    assert_eq!(status(&again, "c")["restartCount"], 0);

    std::fs::remove_file(directory.join("web")).expect("the manifest");
    cluster.wait_until_gone("web-n1").await;
    wait_until_no_containers(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_manifest_is_another_pod_that_starts_when_the_first_has_ended() {
    let (mut cluster, directory) = cluster().await;
    cluster.start_agent().await;
    let shared = cluster.root().join("shared");
    std::fs::create_dir(&shared).expect("a new directory");
    // The lock is held to the end, which takes a while.
    let script = "trap 'sleep 0.5; rmdir /mnt/s/lock; exit 0' TERM; mkdir /mnt/s/lock || echo both; echo VERSION; while :; do sleep 0.1; done";
    let spec = |version: &str| {
        let mut container = shell(&script.replace("VERSION", version));
        container["volumeMounts"] = json!([{"name": "s", "mountPath": "/mnt/s"}]);
        let volume = json!({"name": "s", "hostPath": {"path": shared}});
        json!({"containers": [container], "volumes": [volume]})
    };
    if !super::harness::has_isolation(&cluster).await {
        return;
    }
    write(&directory, "web", spec("one"));
    let first = cluster
        .wait_until(&pod_path("web-n1"), "Running", runs)
        .await;
    cluster.wait_for_logs("web-n1", &["c"]).await;
    let hash = first["metadata"]["annotations"][HASH].clone();
    write(&directory, "web", spec("two"));
    // Back and forth: the same pod again has to wait for its own end.
    write(&directory, "web", spec("one"));
    write(&directory, "web", spec("three"));
    let second = cluster
        .wait_until(&pod_path("web-n1"), "Running, changed", |pod| {
            runs(pod) && pod["metadata"]["annotations"][HASH] != hash
        })
        .await;
    assert_eq!(
        second["metadata"]["annotations"][MIRROR],
        second["metadata"]["annotations"][HASH]
    );
    until_true("only the last one is logged", || {
        cluster.log("web-n1", "c", 0) == "three\n"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_pod_runs_without_an_api_server_and_is_adopted() {
    let (mut cluster, directory) = cluster().await;
    write(&directory, "web", json!({"containers": [service("up")]}));
    write(
        &directory,
        "short",
        json!({"restartPolicy": "Never", "containers": [shell("echo once")]}),
    );
    cluster.start_agent_alone();
    cluster.wait_for_logs("web-n1", &["c"]).await;
    cluster.wait_for_logs("short-n1", &["c"]).await;
    cluster.stop_agent().await;
    // The first pod continues, the second one stays ended, and the third is gone.
    cluster.start_agent().await;
    let web = cluster
        .wait_until(&pod_path("web-n1"), "Running", runs)
        .await;
    assert_eq!(status(&web, "c")["restartCount"], 0);
    assert_eq!(cluster.log("web-n1", "c", 0), "up\n");
    cluster.wait_for_phase("short-n1", "Succeeded").await;
    assert_eq!(cluster.log("short-n1", "c", 0), "once\n");

    // What changes while no agent runs is noticed by the next one.
    cluster.stop_agent().await;
    write(
        &directory,
        "web",
        json!({"containers": [service("changed")]}),
    );
    std::fs::remove_file(directory.join("short")).expect("the manifest");
    cluster.start_agent().await;
    cluster
        .wait_until(&pod_path("web-n1"), "Running, changed", |pod| {
            runs(pod) && pod["metadata"]["uid"] != web["metadata"]["uid"]
        })
        .await;
    cluster.wait_until_gone("short-n1").await;
    let containers = std::fs::read_dir(cluster.root().join("containers"));
    assert_eq!(containers.expect("a directory").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_at_fault_disturb_no_others() {
    let (mut cluster, directory) = cluster().await;
    let secret = json!({"secretRef": {"name": "s"}});
    let mut thief = shell("echo stolen");
    thief["envFrom"] = json!([secret]);
    write(&directory, "a-thief", json!({"containers": [thief]}));
    std::fs::write(directory.join("b-broken"), "a: [").expect("a file");
    std::fs::create_dir(directory.join("c-directory")).expect("a directory");
    write(&directory, "web", json!({"containers": [service("up")]}));
    cluster.start_agent().await;
    cluster
        .wait_until(&pod_path("web-n1"), "Running", runs)
        .await;
    assert_eq!(cluster.log("a-thief-n1", "c", 0), "");
    assert!(cluster.get(&pod_path("a-thief-n1")).await.is_null());
    write(
        &directory,
        "b-broken",
        json!({"containers": [service("mended")]}),
    );
    cluster
        .wait_until(&pod_path("b-broken-n1"), "Running", runs)
        .await;
}

/// A client that may create pods cannot make a node run one as its own, past what admission adds to other pods.
#[tokio::test(flavor = "multi_thread")]
async fn mirror_pods_of_clients_are_removed_and_never_run() {
    let (mut cluster, directory) = cluster().await;
    write(&directory, "web", json!({"containers": [service("up")]}));
    cluster.start_agent().await;
    let web = cluster
        .wait_until(&pod_path("web-n1"), "Running", runs)
        .await;
    for hash in [json!("x"), web["metadata"]["annotations"][HASH].clone()] {
        let annotations = json!({HASH: hash, MIRROR: hash, "kubernetes.io/config.source": "file"});
        let metadata = json!({"name": "forged", "annotations": annotations});
        let spec = json!({"nodeName": "n1", "containers": [shell("echo forged")]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        let pods = "/api/v1/namespaces/default/pods";
        let created = cluster.call(Method::POST, pods, Some(pod)).await;
        created.expect("a pod that names its node");
        cluster.wait_until_gone("forged").await;
    }
    assert_eq!(cluster.log("forged", "c", 0), "");
    let after = cluster.get(&pod_path("web-n1")).await;
    assert_eq!(after["metadata"]["uid"], web["metadata"]["uid"]);
}

/// The counters began again with each agent, and so did the back-off: a container that fails was started at once.
#[tokio::test(flavor = "multi_thread")]
async fn regression_restarts_of_static_pods_outlive_the_agent() {
    let (mut cluster, directory) = cluster().await;
    cluster.start_agent().await;
    let spec = json!({"containers": [shell("echo failed; exit 1")]});
    write(&directory, "web", spec);
    let path = pod_path("web-n1");
    let waits = |pod: &Value, pause: &str| {
        let waiting = &status(pod, "c")["state"]["waiting"];
        let message = waiting["message"].as_str().unwrap_or_default();
        message.starts_with(&format!("back-off {pause} "))
    };
    let first = cluster
        .wait_until(&path, "waiting for 10 s", |pod| waits(pod, "10s"))
        .await;
    cluster.stop_agent().await;
    // This one has only what its predecessor left on the node.
    cluster.start_agent_alone();
    cluster.stop_agent().await;
    cluster.start_agent().await;
    let next = cluster
        .wait_until(&path, "waiting for 20 s", |pod| waits(pod, "20s"))
        .await;
    assert_eq!(next["status"]["startTime"], first["status"]["startTime"]);
    assert_eq!(status(&next, "c")["restartCount"], 2);
    // Those of the last two runs are kept.
    let logs = [0, 1, 2].map(|attempt| cluster.log("web-n1", "c", attempt));
    assert_eq!(logs, ["", "failed\n", "failed\n"]);
}

/// What the manifests say is not known if they cannot be read: their pods go on, and the node does its other work.
#[tokio::test(flavor = "multi_thread")]
async fn regression_manifests_that_cannot_be_read_end_nothing() {
    let (mut cluster, directory) = cluster().await;
    cluster.start_agent().await;
    write(&directory, "web", json!({"containers": [service("up")]}));
    let web = cluster
        .wait_until(&pod_path("web-n1"), "Running", runs)
        .await;
    let other = json!({"terminationGracePeriodSeconds": 0, "containers": [service("other")]});
    let uid = cluster.pod("other", other).await;
    cluster
        .wait_until(&pod_path("other"), "Running", runs)
        .await;
    cluster.stop_agent().await;
    let aside = cluster.root().join("aside");
    std::fs::rename(&directory, &aside).expect("the directory");
    std::os::unix::fs::symlink(&directory, &directory).expect("a link to itself");
    let now = "?gracePeriodSeconds=0";
    cluster.delete(&format!("{}{now}", pod_path("other"))).await;

    cluster.start_agent().await;
    let pods = cluster.root().join("pods");
    until_true("the remains of the deleted pod are removed", || {
        !pods.join(&uid).exists()
    })
    .await;
    let hash = web["metadata"]["annotations"][HASH].as_str();
    assert!(pods.join(hash.expect("a hash")).exists());
    let containers = std::fs::read_dir(cluster.root().join("containers"));
    assert_eq!(containers.expect("a directory").count(), 1);
    let mirror = cluster.get(&pod_path("web-n1")).await;
    assert_eq!(mirror["metadata"]["uid"], web["metadata"]["uid"]);

    // At once: if there is no directory, there are no static pods.
    let link = cluster.root().join("link");
    std::os::unix::fs::symlink(&aside, &link).expect("a link");
    std::fs::rename(&link, &directory).expect("another link");
    write(&directory, "more", json!({"containers": [service("more")]}));
    cluster
        .wait_until(&pod_path("more-n1"), "Running", runs)
        .await;
    let after = cluster
        .wait_until(&pod_path("web-n1"), "Running", runs)
        .await;
    assert_eq!(container_id(&after), container_id(&web));
    assert_eq!(cluster.log("web-n1", "c", 0), "up\n");
}

/// An API server that has nothing, and refuses the node when that is notified.
fn refusing(refuse: Arc<Notify>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let refuse = Arc::clone(&refuse);
        async move {
            let (code, reason) = match request.uri().path() {
                "/api/v1/nodes/n1" => {
                    refuse.notified().await;
                    (422, "Invalid")
                }
                _ => (404, "NotFound"),
            };
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "reason": reason, "message": "no", "code": code});
            let body = Body::from(status.to_string().into_bytes());
            let response = Response::builder().status(code).body(body);
            response.map_err(std::io::Error::other)
        }
    });
    Client::new(service, "default")
}

/// An ephemeral node left what it ran when it ended with an error.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_node_that_fails_leaves_no_containers() {
    let (mut cluster, directory) = cluster().await;
    write(&directory, "web", json!({"containers": [service("up")]}));
    let refuse = Arc::new(Notify::new());
    cluster.start_agent_of(refusing(Arc::clone(&refuse)), true);
    cluster.wait_for_logs("web-n1", &["c"]).await;
    refuse.notify_one();
    let error = cluster.agent_error().await;
    assert!(
        error.starts_with("node \"n1\" cannot be registered"),
        "{error}"
    );
    let containers = std::fs::read_dir(cluster.root().join("containers"));
    assert_eq!(containers.expect("a directory").count(), 0);
}
