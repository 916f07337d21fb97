//! Claims that a restarted agent must unprepare: of pods that ended while the agent or the driver did not run, and after the checkpoint was lost.

use std::path::Path;

use allot_testing::wait::until_true;
use serde_json::{Value, json};

use super::harness::{Cluster, pod_path, shell, status, with};

/// The spec of a pod with a claim, whose container succeeds as soon as the file `go` exists in a directory.
fn pod_until_file(claim: &str, directory: &Path) -> Value {
    let path = directory.to_str().expect("a path");
    let script = format!("until [ -e {path}/go ]; do sleep 0.05; done");
    let more = json!({
        "resources": {"claims": [{"name": "device"}]},
        "volumeMounts": [{"name": "v", "mountPath": path}],
    });
    json!({
        "restartPolicy": "Never",
        "containers": [with(shell(&script), "c", more)],
        "resourceClaims": [{"name": "device", "resourceClaimName": claim}],
        "volumes": [{"name": "v", "hostPath": {"path": path}}],
    })
}

/// Waits until the shim has recorded the exit of the container.
async fn wait_for_exit(cluster: &Cluster, pod: &Value) {
    let id = status(pod, "c")["containerID"].as_str().expect("an id");
    let (_, id) = id.rsplit_once('/').expect("an id");
    let exit = cluster.root().join("containers").join(id).join("exit.json");
    until_true("the container has ended", || {
        std::fs::read(&exit).is_ok_and(|text| text.starts_with(b"{"))
    })
    .await;
}

/// The pod was reported as Completed when the agent ended, and its claim was never unprepared: another pod got the device.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_pod_is_not_over_before_its_claim_is_given_back() {
    let mut cluster = Cluster::start().await;
    let directory = tempfile::tempdir().expect("a directory");
    let (plugin, _) = cluster.driver().await;
    cluster.claim("claim", "a").await;
    let spec = pod_until_file("claim", directory.path());
    let uid = cluster.pod("p", spec).await;
    cluster.reserve("claim", "p", &uid).await;
    let pod = cluster.wait_for_phase("p", "Running").await;
    // The driver is away when the pod ends, and the agent is asked to end.
    plugin.stop().await;
    std::fs::write(directory.path().join("go"), "").expect("a file");
    wait_for_exit(&cluster, &pod).await;
    // Only the agent's log said what the pod waited for.
    let events = "/api/v1/namespaces/default/events";
    let told = "Failed to unprepare dynamic resources: ";
    cluster
        .wait_until(events, "reported", |events| {
            events.to_string().contains(told)
        })
        .await;
    cluster.stop_agent().await;
    let pod = cluster.get(&pod_path("p")).await;
    assert_eq!(pod["status"]["phase"], "Running", "{pod}");
    assert!(cluster.checkpoint().contains("claim\\\""));
    cluster.start_agent().await;
    let (_plugin, calls) = cluster.driver().await;
    cluster.wait_for_phase("p", "Succeeded").await;
    let log = calls.log.lock().expect("a log").clone();
    assert_eq!(
        log.last().map(String::as_str),
        Some("unprepare default/claim")
    );
    assert!(!cluster.checkpoint().contains("claim\\\""));
}

/// An empty checkpoint, as of a full disk, kept the agent from starting.
#[tokio::test(flavor = "multi_thread")]
async fn regression_claims_are_given_back_although_the_checkpoint_was_lost() {
    let mut cluster = Cluster::start().await;
    let directory = tempfile::tempdir().expect("a directory");
    let (_plugin, calls) = cluster.driver().await;
    for (claim, device) in [("stays", "a"), ("goes", "b")] {
        cluster.claim(claim, device).await;
        let spec = pod_until_file(claim, directory.path());
        let uid = cluster.pod(claim, spec).await;
        cluster.reserve(claim, claim, &uid).await;
        cluster.wait_for_phase(claim, "Running").await;
    }
    cluster.stop_agent().await;
    cluster.delete(&pod_path("goes")).await;
    std::fs::write(cluster.root().join("dra_manager_state"), "").expect("a file");
    calls.log.lock().expect("a log").clear();
    cluster.start_agent().await;
    cluster.wait_until_gone("goes").await;
    let logged = |line: &str| {
        let log = calls.log.lock().expect("a log");
        log.iter().any(|it| it == line)
    };
    assert!(logged("unprepare default/goes"), "{:?}", calls.log);
    cluster
        .wait_until("/api/v1/namespaces/default/events", "told", |events| {
            events.to_string().contains("CheckpointDamaged")
        })
        .await;
    // The other one continues, and its claim is known again.
    until_true("the claim is recorded", || {
        cluster.checkpoint().contains("stays\\\"")
    })
    .await;
    let pod = cluster.get(&pod_path("stays")).await;
    assert_eq!(status(&pod, "c")["restartCount"], 0, "{pod}");
    assert!(status(&pod, "c")["state"]["running"].is_object(), "{pod}");
    std::fs::write(directory.path().join("go"), "").expect("a file");
    cluster.wait_for_phase("stays", "Succeeded").await;
    assert!(logged("unprepare default/stays"), "{:?}", calls.log);
}

/// The worker of a pod that was force-deleted reported the end of its containers as that of the next pod of this name.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_deleted_pod_writes_nothing_to_its_successor() {
    let mut cluster = Cluster::start().await;
    let spec = json!({"restartPolicy": "Never", "containers": [shell("sleep 1000")]});
    cluster.pod("p", spec.clone()).await;
    let first = cluster.wait_for_phase("p", "Running").await;
    let id = |pod: &Value| {
        let id = status(pod, "c")["containerID"].as_str();
        id.unwrap_or_default().to_owned()
    };
    let old = id(&first);
    let directory = old.rsplit_once('/').expect("an id").1;
    let directory = cluster.root().join("containers").join(directory);
    cluster.stop_agent().await;
    let force = json!({"gracePeriodSeconds": 0});
    let path = pod_path("p");
    let deleted = cluster.call(http::Method::DELETE, &path, Some(force));
    deleted.await.expect("deleted");
    let uid = cluster.pod("p", spec).await;
    cluster.start_agent().await;
    cluster.wait_for_phase("p", "Running").await;
    until_true("the first container is gone", || !directory.exists()).await;
    // The API server refuses what an agent without this would send.
    let uid_of_first = &first["metadata"]["uid"];
    let late = json!({"metadata": {"uid": uid_of_first}, "status": {"phase": "Failed"}});
    let path = format!("{}/status", pod_path("p"));
    let refused = cluster.call(http::Method::PATCH, &path, Some(late)).await;
    assert!(refused.is_err(), "{refused:?}");
    let pod = cluster.get(&pod_path("p")).await;
    assert_eq!(pod["metadata"]["uid"], uid.as_str());
    assert_eq!(pod["status"]["phase"], "Running", "{pod}");
    assert!(status(&pod, "c")["state"]["running"].is_object(), "{pod}");
    assert_ne!(id(&pod), old);
}
