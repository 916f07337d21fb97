//! Device taints, rules, nodes that were deleted, drivers that are drained.

use std::time::Duration;

use allot_controllers::Config;
use allot_controllers::controller::clock::Clock;
use allot_controllers::drain::{Drain, Progress, RevertSummary, drain, undo};
use allot_controllers::liveness::{DRIVERS, TAINT};
use allot_testing::wait::PATIENCE;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::harness::{Cluster, name};

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
pub(super) const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const PODS: &str = "/api/v1/namespaces/default/pods";

pub(super) fn slice(devices: Value) -> Value {
    json!({
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d.example.com", "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    })
}

/// A pod that runs on node n with device gpu-0 through claim c.
pub(super) async fn user(cluster: &Cluster, tolerations: Value) {
    user_of(cluster, ["p", "c", "gpu-0"], tolerations).await;
}

/// A pod that runs on node n with a device through a claim.
async fn user_of(cluster: &Cluster, names: [&str; 3], tolerations: Value) {
    let [pod_name, claim, device] = names;
    let spec =
        json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}});
    cluster
        .create(CLAIMS, json!({"metadata": {"name": claim}, "spec": spec}))
        .await;
    let pod = json!({
        "metadata": {"name": pod_name},
        "spec": {
            "containers": [{"name": "main", "image": "registry.invalid/main:1"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
        },
    });
    let pod = cluster.create(PODS, pod).await;
    let finalizers =
        json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}});
    cluster
        .patch(&format!("{CLAIMS}/{claim}"), finalizers)
        .await;
    let status = json!({"status": {
        "allocation": {"devices": {"results": [
            {"request": "gpu", "driver": "d.example.com", "pool": "n", "device": device, "tolerations": tolerations},
        ]}},
        "reservedFor": [{"resource": "pods", "name": name(&pod), "uid": pod["metadata"]["uid"]}],
    }});
    cluster
        .patch(&format!("{CLAIMS}/{claim}/status"), status)
        .await;
    cluster.bind("default", pod_name, "n").await;
    cluster.run_pod("default", pod_name).await;
}

fn tainted(effect: &str) -> Value {
    json!({"spec": {"devices": [{"name": "gpu-0", "taints": [{"key": "example.com/bad", "effect": effect}]}]}})
}

fn is_ending(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string()
}

#[tokio::test]
async fn a_taint_evicts_all_pods_of_the_group_that_has_the_claim() {
    let cluster = Cluster::start_with_groups().await;
    cluster.node("n").await;
    cluster
        .create(SLICES, slice(json!([{"name": "gpu-0"}])))
        .await;
    let entry = json!({"name": "gpu", "resourceClaimName": "c"});
    let spec = json!({"schedulingPolicy": {"basic": {}}, "resourceClaims": [entry]});
    let groups = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups";
    let group = cluster
        .create(groups, json!({"metadata": {"name": "g"}, "spec": spec}))
        .await;
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu"}});
    let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}});
    cluster.create(CLAIMS, claim).await;
    for name in ["p", "q"] {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "containers": [{"name": "main", "image": "registry.invalid/main:1"}],
                "resourceClaims": [entry],
                "schedulingGroup": {"podGroupName": "g"},
            },
        });
        cluster.create(PODS, pod).await;
        cluster.bind("default", name, "n").await;
        cluster.run_pod("default", name).await;
    }
    let device =
        json!({"request": "gpu", "driver": "d.example.com", "pool": "n", "device": "gpu-0"});
    let consumer = json!({
        "apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": group["metadata"]["uid"],
    });
    let status =
        json!({"allocation": {"devices": {"results": [device]}}, "reservedFor": [consumer]});
    cluster
        .patch(&format!("{CLAIMS}/c/status"), json!({"status": status}))
        .await;
    cluster
        .patch(&format!("{SLICES}/s"), tainted("NoExecute"))
        .await;
    for name in ["p", "q"] {
        cluster
            .until(&format!("{PODS}/{name}"), "evicted", is_ending)
            .await;
    }
}

#[tokio::test]
async fn a_no_execute_taint_evicts_and_says_why() {
    let cluster = Cluster::start().await;
    cluster.node("n").await;
    cluster
        .create(SLICES, slice(json!([{"name": "gpu-0"}, {"name": "gpu-1"}])))
        .await;
    user(&cluster, Value::Null).await;
    user_of(&cluster, ["q", "d", "gpu-1"], Value::Null).await;
    // One change of the slice: the pod of the one device has to go, that of the other one stays.
    let taint = |effect: &str| json!([{"key": "example.com/bad", "effect": effect}]);
    let devices = json!({"spec": {"devices": [
        {"name": "gpu-0", "taints": taint("NoSchedule")},
        {"name": "gpu-1", "taints": taint("NoExecute")},
    ]}});
    cluster.patch(&format!("{SLICES}/s"), devices).await;
    cluster
        .until(&format!("{PODS}/q"), "evicted", is_ending)
        .await;
    cluster
        .until("/api/v1/namespaces/default/events", "an event", |list| {
            let mut events = list["items"].as_array().into_iter().flatten();
            events.any(|e| {
                e["reason"] == "DeviceTaintManagerEviction" && e["involvedObject"]["name"] == "q"
            })
        })
        .await;
    assert!(!is_ending(
        &cluster.get(&format!("{PODS}/p")).await.unwrap()
    ));
    cluster
        .patch(&format!("{SLICES}/s"), tainted("NoExecute"))
        .await;
    let pod = cluster
        .until(&format!("{PODS}/p"), "evicted", is_ending)
        .await;
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let disrupted = conditions
        .iter()
        .find(|c| c["type"] == "DisruptionTarget")
        .unwrap();
    assert_eq!(disrupted["reason"], "DeletionByDeviceTaintManager");
    assert!(
        conditions.iter().any(|c| c["type"] == "Ready"),
        "other conditions stay"
    );
    cluster
        .until("/api/v1/namespaces/default/events", "an event", |l| {
            let items = l["items"].as_array().unwrap();
            items.iter().any(|e| {
                e["reason"] == "DeviceTaintManagerEviction"
                    && e["message"] == "Marking for deletion"
                    && e["involvedObject"]["name"] == "p"
            })
        })
        .await;
    // Once the pod is deleted the claim is free.
    cluster
        .delete_with(&format!("{PODS}/p"), json!({"gracePeriodSeconds": 0}))
        .await;
    cluster
        .until(&format!("{CLAIMS}/c"), "deallocated", |c| {
            c["status"]["allocation"].is_null()
        })
        .await;
}

#[tokio::test]
async fn a_toleration_delays_and_a_healed_device_cancels() {
    let cluster = Cluster::start().await;
    cluster.node("n").await;
    cluster
        .create(SLICES, slice(json!([{"name": "gpu-0"}])))
        .await;
    let toleration =
        json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]);
    user(&cluster, toleration).await;
    let healed = json!({"spec": {"devices": [{"name": "gpu-0"}]}});
    let cancelled = async {
        // No event reports that the taint was observed: it is added and removed, for longer each time, until it was.
        for round in 1.. {
            for devices in [tainted("NoExecute"), healed.clone()] {
                cluster.patch(&format!("{SLICES}/s"), devices).await;
                tokio::time::sleep(Duration::from_millis(50 * round)).await;
            }
            let events = cluster.list("/api/v1/namespaces/default/events").await;
            if events.iter().any(|e| e["message"] == "Cancelling deletion") {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, cancelled)
        .await
        .expect("a cancellation");
    assert!(!is_ending(
        &cluster.get(&format!("{PODS}/p")).await.unwrap()
    ));
}

#[tokio::test]
async fn pods_leave_an_unreachable_node_and_come_back_to_none() {
    let mut cluster = Cluster::bare().await;
    cluster.node("n").await;
    cluster
        .create(SLICES, slice(json!([{"name": "gpu-0"}])))
        .await;
    user(&cluster, Value::Null).await;
    let mut config = Config::embedded();
    config.node_monitor_grace_period = Duration::from_millis(300);
    config.slice_liveness_delay = Duration::from_millis(100);
    cluster.start_controllers(config);
    let node = cluster
        .until("/api/v1/nodes/n", "unreachable", |n| {
            n["spec"]["taints"].as_array().is_some_and(|t| {
                t.iter().any(|t| {
                    t["key"] == "node.kubernetes.io/unreachable" && t["effect"] == "NoExecute"
                })
            })
        })
        .await;
    let ready = &node["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["type"] == "Ready")
        .unwrap()
        .clone();
    assert_eq!(ready["status"], "Unknown");
    cluster
        .until(&format!("{SLICES}/s"), "tainted", |s| {
            s["spec"]["devices"][0]["taints"][0]["key"] == TAINT
        })
        .await;
    // The node reports again: everything is released.
    let status = json!({"status": {"conditions": [
        {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": null},
    ]}});
    let slice = format!("{SLICES}/s");
    let reports = async {
        // The time of a report is a change only if it is another one.
        for minute in 0.. {
            let mut status = status.clone();
            let time = format!("2030-01-01T{:02}:{:02}:00Z", minute / 60 % 24, minute % 60);
            status["status"]["conditions"][0]["lastHeartbeatTime"] = json!(time);
            cluster.patch("/api/v1/nodes/n/status", status).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let released = cluster.until(&slice, "released", |s| {
        s["spec"]["devices"][0]["taints"].is_null()
    });
    tokio::select! {
        () = reports => unreachable!("it reports for ever"),
        _ = released => {}
    }
}

#[tokio::test]
async fn a_lost_driver_taints_its_devices_until_it_is_back() {
    let mut cluster = Cluster::bare().await;
    let mut config = Config::embedded();
    config.slice_liveness_delay = Duration::from_millis(100);
    cluster.start_controllers(config);
    cluster.node("n").await;
    let drivers = |list: &str| json!({"metadata": {"annotations": {DRIVERS: list}}});
    cluster
        .patch("/api/v1/nodes/n", drivers("d.example.com"))
        .await;
    cluster
        .create(SLICES, slice(json!([{"name": "gpu-0"}, {"name": "gpu-1"}])))
        .await;
    cluster.patch("/api/v1/nodes/n", drivers("")).await;
    let slice = cluster
        .until(&format!("{SLICES}/s"), "tainted", |s| {
            s["spec"]["devices"][1]["taints"][0]["key"] == TAINT
        })
        .await;
    assert_eq!(
        slice["spec"]["devices"][0]["taints"][0]["effect"],
        "NoSchedule"
    );
    assert_eq!(slice["spec"]["pool"]["generation"], 1);
    cluster
        .patch(
            "/api/v1/nodes/n",
            drivers("other.example.com,d.example.com"),
        )
        .await;
    cluster
        .until(&format!("{SLICES}/s"), "released", |s| {
            s["spec"]["devices"][1]["taints"].is_null()
        })
        .await;
}

#[tokio::test]
async fn draining_waits_for_the_last_user() {
    let cluster = Cluster::start().await;
    cluster.node("n").await;
    cluster
        .create(SLICES, slice(json!([{"name": "gpu-0"}])))
        .await;
    user(&cluster, Value::Null).await;
    let what = Drain {
        driver: "d.example.com".to_owned(),
        node: Some("n".to_owned()),
        evict: false,
        clock: Clock::System,
        hold: None,
    };
    let (sender, mut progress) = tokio::sync::mpsc::unbounded_channel();
    let client = cluster.client.clone();
    let work = tokio::spawn(async move {
        drain(client, what, CancellationToken::new(), |p| {
            sender.send(p).unwrap()
        })
        .await
    });
    assert_eq!(
        progress.recv().await,
        Some(Progress::Tainted {
            slices: 1,
            devices: 1
        })
    );
    assert_eq!(
        progress.recv().await,
        Some(Progress::InUse(vec!["default/c".to_owned()]))
    );
    assert!(cluster.get(&format!("{SLICES}/s")).await.is_some());
    cluster.finish_pod("default", "p", "Succeeded").await;
    assert_eq!(progress.recv().await, Some(Progress::Removed(1)));
    work.await.unwrap().unwrap();
    cluster.until_gone(&format!("{SLICES}/s")).await;
}

#[tokio::test]
async fn a_drain_is_undone() {
    let cluster = Cluster::start().await;
    let one = slice(json!([{"name": "gpu-0", "taints": [
        {"key": "allot.dev/draining", "effect": "NoSchedule"}, {"key": "k", "effect": "NoSchedule"},
    ]}, {"name": "gpu-1", "taints": [{"key": "allot.dev/draining", "effect": "NoExecute"}]}]));
    cluster.create(SLICES, one).await;
    let what = Drain {
        driver: "d.example.com".to_owned(),
        node: None,
        evict: false,
        clock: Clock::System,
        hold: None,
    };
    for changed in [(1, 2), (0, 0)] {
        let done = undo(cluster.client.clone(), &what, CancellationToken::new()).await;
        let (slices, devices) = changed;
        let expected = RevertSummary {
            found: 1,
            slices,
            devices,
        };
        assert_eq!(done.unwrap(), expected);
    }
    let slice = cluster.get(&format!("{SLICES}/s")).await.unwrap();
    let devices = &slice["spec"]["devices"];
    assert_eq!(devices[0]["taints"][0]["key"], "k");
    assert_eq!(devices[0]["taints"][1], Value::Null);
    assert_eq!(devices[1]["taints"], Value::Null);
}

#[tokio::test]
async fn pods_of_a_deleted_unbound_or_missing_node_do_not_stay() {
    let cluster = Cluster::start().await;
    let pod = json!({
        "metadata": {"name": "q"},
        "spec": {"containers": [{"name": "main", "image": "registry.invalid/main:1"}]},
    });
    cluster.create(PODS, pod).await;
    cluster.delete(&format!("{PODS}/q")).await;
    cluster.until_gone(&format!("{PODS}/q")).await;
}

#[tokio::test]
async fn a_taint_without_a_time_is_tolerated_for_the_seconds_that_the_pod_says() {
    let cluster = Cluster::start().await;
    cluster.node("n").await;
    for (name, seconds) in [("short", 1), ("long", 600)] {
        let toleration = json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "containers": [{"name": "main", "image": "registry.invalid/main:1"}],
                "tolerations": [toleration],
            },
        });
        cluster.create(PODS, pod).await;
        cluster.bind("default", name, "n").await;
        cluster.run_pod("default", name).await;
    }
    let taint = json!([{"key": "k", "effect": "NoExecute"}]);
    cluster
        .patch("/api/v1/nodes/n", json!({"spec": {"taints": taint}}))
        .await;
    cluster
        .until(&format!("{PODS}/short"), "evicted", is_ending)
        .await;
    assert!(!is_ending(
        &cluster.get(&format!("{PODS}/long")).await.unwrap()
    ));
}

/// Regression: a node that was created in the second in which the controllers started got no event.
#[tokio::test]
async fn added_and_removed_nodes_have_events() {
    let cluster = Cluster::start().await;
    let told = async |reason: &str| {
        let is_told = |events: &Value| {
            let mut events = events["items"].as_array().into_iter().flatten();
            events.any(|e| e["reason"] == reason && e["involvedObject"]["name"] == "n")
        };
        let events = "/api/v1/namespaces/default/events";
        cluster.until(events, reason, is_told).await;
    };
    cluster.node("n").await;
    told("RegisteredNode").await;
    cluster.delete("/api/v1/nodes/n").await;
    told("RemovingNode").await;
}
