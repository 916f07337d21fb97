//! The end of the machine under containers that the agent runs itself.

use allot_testing::wait::until_true;
use serde_json::{Value, json};

use super::harness::{Cluster, pod_path, shell, status, with};

/// Ends all containers as the end of the machine does: their helpers cannot tell how.
async fn end_containers(cluster: &Cluster) {
    let entries = std::fs::read_dir(cluster.root().join("containers")).expect("containers");
    let mut helpers = Vec::new();
    for entry in entries.flatten() {
        let state = std::fs::read(entry.path().join("state.json")).unwrap_or_default();
        let state: Value = serde_json::from_slice(&state).unwrap_or_default();
        let pid = state["shim"].as_i64().and_then(|it| i32::try_from(it).ok());
        helpers.extend(pid.and_then(rustix::process::Pid::from_raw));
    }
    for helper in helpers {
        let _ = rustix::process::kill_process(helper, rustix::process::Signal::KILL);
        let stat = format!("/proc/{}/stat", helper.as_raw_nonzero());
        // This process is its parent, and may not have reaped it yet.
        until_true("a helper has ended", || {
            std::fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z "))
        })
        .await;
    }
}

/// After a reboot nothing is there of what init containers have set up: they run again, also under the agent's own runtime. They do not
/// if only containers have ended.
#[tokio::test(flavor = "multi_thread")]
async fn regression_init_containers_run_again_after_a_reboot() {
    let mut cluster = Cluster::start().await;
    let before = with(shell("echo begun"), "before", json!({}));
    let spec = json!({
        "terminationGracePeriodSeconds": 0,
        "initContainers": [before], "containers": [shell("echo up; sleep 1000")],
    });
    let uid = cluster.pod("p", spec).await;
    cluster.wait_for_phase("p", "Running").await;
    let again = |runs: u64| {
        move |pod: &Value| {
            let own = status(pod, "c");
            own["restartCount"] == runs && own["state"]["running"].is_object()
        }
    };
    let initialized = |pod: &Value| status(pod, "before")["restartCount"].clone();

    // The helpers alone are killed.
    cluster.stop_agent().await;
    end_containers(&cluster).await;
    cluster.start_agent().await;
    let pod = cluster
        .wait_until(&pod_path("p"), "running", again(1))
        .await;
    assert_eq!(initialized(&pod), 0, "{pod}");

    cluster.stop_agent().await;
    end_containers(&cluster).await;
    let record = cluster.root().join("pods").join(uid).join("boot.json");
    assert!(record.is_file(), "the boot is recorded");
    std::fs::write(&record, "\"that before\"").expect("a record");
    cluster.start_agent().await;
    let pod = cluster
        .wait_until(&pod_path("p"), "running", again(2))
        .await;
    assert_eq!(initialized(&pod), 1, "{pod}");
    let end = &status(&pod, "before")["state"]["terminated"];
    assert_eq!(end["exitCode"], 0, "{pod}");
    cluster.wait_for_event("p", "SandboxChanged").await;
}
