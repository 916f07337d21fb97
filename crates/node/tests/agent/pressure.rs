//! What a node does when it is short of something: conditions, eviction, rejection of pods.

use std::path::PathBuf;
use std::time::Duration;

use allot_node::{Eviction, Thresholds};
use allot_testing::wait::until_true;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::{Value, json};

use super::harness::{Cluster, has_isolation, pod_path, shell, status, with};

const NODE: &str = "/api/v1/nodes/n1";

/// Hard thresholds.
fn hard(text: &str) -> Eviction {
    text.parse::<Thresholds>().expect("thresholds").into()
}

fn condition<'a>(node: &'a Value, kind: &str) -> &'a Value {
    let all = node["status"]["conditions"].as_array();
    let found = all.into_iter().flatten().find(|it| it["type"] == kind);
    found.unwrap_or(&Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_says_what_it_is_short_of() {
    let mut cluster = Cluster::start().await;
    let all = ["MemoryPressure", "DiskPressure", "PIDPressure"];
    let node = cluster.get(NODE).await;
    for kind in all {
        assert_eq!(condition(&node, kind)["status"], "False", "{kind}");
    }
    cluster.stop_agent().await;
    // More than any machine has.
    cluster.adjust = |config| {
        let text = "memory.available<1000000Gi,nodefs.available<1000000Gi,pid.available<1000000Gi";
        config.eviction = hard(text);
    };
    cluster.start_agent().await;
    for (kind, reason, message) in [
        (
            "MemoryPressure",
            "KubeletHasInsufficientMemory",
            "kubelet has insufficient memory available",
        ),
        (
            "DiskPressure",
            "KubeletHasDiskPressure",
            "kubelet has disk pressure",
        ),
        (
            "PIDPressure",
            "KubeletHasInsufficientPID",
            "kubelet has insufficient PID available",
        ),
    ] {
        let pressed = |node: &Value| condition(node, kind)["status"] == "True";
        let node = cluster.wait_until(NODE, kind, pressed).await;
        assert_eq!(condition(&node, kind)["reason"], reason);
        assert_eq!(condition(&node, kind)["message"], message);
    }
    cluster.stop_agent().await;
    // Something is always left of each.
    cluster.adjust = |config| {
        let text = "memory.available<1,nodefs.available<1,pid.available<1";
        config.eviction = hard(text);
    };
    cluster.start_agent().await;
    for kind in all {
        let relieved = |node: &Value| condition(node, kind)["status"] == "False";
        cluster.wait_until(NODE, kind, relieved).await;
    }
}

/// A small disk at a directory, which is taken away again.
#[derive(Default)]
struct Disk(PathBuf);

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A pod of one container with a volume, and a script that is run in it.
fn with_volume(script: &str) -> Value {
    let mount = json!({"volumeMounts": [{"name": "v", "mountPath": "/mnt/v"}]});
    json!({
        "terminationGracePeriodSeconds": 1000,
        "containers": [with(shell(script), "c", mount)],
        "volumes": [{"name": "v", "emptyDir": {}}],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pod_that_fills_the_disk_is_evicted_and_gives_its_devices_back() {
    let mut disk = Disk::default();
    let mut cluster = Cluster::start().await;
    if !has_isolation(&cluster).await || !rustix::process::geteuid().is_root() {
        return;
    }
    cluster.stop_agent().await;
    let size = c"size=64m";
    let mounted = mount("tmpfs", cluster.root(), "tmpfs", MountFlags::empty(), size);
    if mounted.is_err() {
        eprintln!("skipped: file systems cannot be mounted here");
        return;
    }
    disk.0 = cluster.root().to_owned();
    cluster.adjust = |config| {
        config.eviction = hard("nodefs.available<24Mi");
        config.eviction.period = Duration::from_millis(50);
    };
    cluster.start_agent().await;
    let (_plugin, calls) = cluster.driver().await;
    // The second one uses less, and the space that the first one releases is enough.
    let modest = with_volume("head -c 2m /dev/zero > /mnt/v/x; echo written; exec sleep 1000");
    cluster.pod("modest", modest).await;
    cluster.wait_for_logs("modest", &["c"]).await;
    cluster.claim("claim", "a").await;
    let mut greedy =
        with_volume("trap '' TERM; head -c 48m /dev/zero > /mnt/v/x; while :; do sleep 1; done");
    greedy["resourceClaims"] = json!([{"name": "r", "resourceClaimName": "claim"}]);
    greedy["containers"][0]["resources"] = json!({"claims": [{"name": "r"}]});
    let uid = cluster.pod("greedy", greedy).await;
    cluster.reserve("claim", "greedy", &uid).await;

    let pod = cluster.wait_for_phase("greedy", "Failed").await;
    assert_eq!(pod["status"]["reason"], "Evicted");
    let message = pod["status"]["message"].as_str().unwrap_or_default();
    let expected =
        "The node was low on resource: ephemeral-storage. Threshold quantity: 24Mi, available: ";
    assert!(message.starts_with(expected), "{message}");
    let target = condition(&pod, "DisruptionTarget");
    assert_eq!(target["status"], "True");
    assert_eq!(target["reason"], "TerminationByKubelet");
    assert_eq!(target["message"], message);
    assert_eq!(cluster.wait_for_event("greedy", "Evicted").await, message);
    // A hard threshold leaves a pod no time of its own.
    assert_eq!(status(&pod, "c")["state"]["terminated"]["exitCode"], 137);
    let unprepared = |call: &String| call.starts_with("unprepare");
    assert!(calls.log.lock().unwrap().iter().any(unprepared));
    until_true("the volume is gone", || {
        !cluster
            .root()
            .join("pods")
            .join(&uid)
            .join("volumes")
            .exists()
    })
    .await;

    // The condition stays for a while, and no other pod starts meanwhile.
    let pressed = |node: &Value| condition(node, "DiskPressure")["status"] == "True";
    cluster.wait_until(NODE, "under pressure", pressed).await;
    cluster.pod("late", with_volume("sleep 1000")).await;
    let late = cluster.wait_for_phase("late", "Failed").await;
    assert_eq!(late["status"]["reason"], "Evicted");
    let expected = "Pod was rejected: The node had condition: [DiskPressure]. ";
    assert_eq!(late["status"]["message"], expected);
    assert_eq!(condition(&late, "DisruptionTarget"), &Value::Null);
    let modest = cluster.get(&pod_path("modest")).await;
    assert_eq!(modest["status"]["phase"], "Running");
    cluster.stop_agent().await;
}
