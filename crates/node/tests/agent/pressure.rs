//! The conditions of a Node about what it is short of.

use serde_json::Value;

use super::harness::Cluster;

const NODE: &str = "/api/v1/nodes/n1";

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
        config.eviction = text.parse().expect("thresholds");
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
        let node = cluster.until(NODE, kind, pressed).await;
        assert_eq!(condition(&node, kind)["reason"], reason);
        assert_eq!(condition(&node, kind)["message"], message);
    }
    cluster.stop_agent().await;
    // Something is always left of each.
    cluster.adjust = |config| {
        let text = "memory.available<1,nodefs.available<1,pid.available<1";
        config.eviction = text.parse().expect("thresholds");
    };
    cluster.start_agent().await;
    for kind in all {
        let relieved = |node: &Value| condition(node, kind)["status"] == "False";
        cluster.until(NODE, kind, relieved).await;
    }
}
