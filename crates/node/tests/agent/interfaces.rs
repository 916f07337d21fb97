//! Interfaces of the host that CDI devices move into pods.

use std::path::Path;
use std::process::Command;

use allot_testing::wait::until_true;
use serde_json::{Value, json};

use super::harness::{Cluster, pod_path, shell, status, with};
use super::hostile_driver::{driver, prepare_response, wait_for_event_message};
use super::network::can_create_pod_networks;

/// A pair of virtual interfaces of the host, which is removed when it is dropped.
struct VethPair {
    name: String,
    peer: String,
}

impl VethPair {
    /// `None` if the interfaces cannot be created; this prints that the test is skipped.
    fn create(letter: char) -> Option<Self> {
        let of = |end| format!("al{:x}{letter}{end}", std::process::id());
        let pair = Self {
            name: of("0"),
            peer: of("1"),
        };
        let (name, peer) = (&pair.name, &pair.peer);
        let made = ip(&format!("link add {name} type veth peer name {peer}"));
        if !made {
            eprintln!("skipped: the program ip cannot create interfaces here");
        }
        made.then_some(pair)
    }
}

impl Drop for VethPair {
    fn drop(&mut self) {
        for name in [&self.name, &self.peer] {
            if exists_on_host(name) {
                ip(&format!("link delete {name}"));
            }
        }
    }
}

fn ip(arguments: &str) -> bool {
    let ended = Command::new("ip").args(arguments.split(' ')).status();
    ended.is_ok_and(|status| status.success())
}

fn exists_on_host(interface: &str) -> bool {
    Path::new("/sys/class/net").join(interface).exists()
}

/// The CDI file of the device `a`, which moves an interface.
fn write_file(cluster: &Cluster, host: &str) {
    std::fs::create_dir_all(cluster.cdi()).expect("a directory");
    let edits = json!({"netDevices": [{"hostInterfaceName": host, "name": "net1"}]});
    let spec = json!({"cdiVersion": "1.1.0", "kind": "test.example.com/device",
        "devices": [{"name": "a", "containerEdits": edits}]});
    std::fs::write(cluster.cdi().join("a.json"), spec.to_string()).expect("a file");
}

/// A pod with a claim for the device, which its containers share.
async fn pod(cluster: &Cluster, name: &str, containers: Value, more: Value) {
    cluster.claim(name, "a").await;
    let mut spec = json!({"containers": containers, "volumes": [{"name": "v", "emptyDir": {}}],
        "resourceClaims": [{"name": "d", "resourceClaimName": name}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let uid = cluster.pod(name, spec).await;
    cluster.reserve(name, name, &uid).await;
}

fn container(name: &str, script: &str) -> Value {
    let more = json!({
        "resources": {"claims": [{"name": "d"}]},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    });
    with(shell(script), name, more)
}

/// Names and addresses of the interfaces of a container, from the kernel.
const SHOW: &str =
    "cut -d: -f1 /proc/net/dev; cat /proc/net/if_inet6 /proc/net/fib_trie; echo done";

#[tokio::test(flavor = "multi_thread")]
async fn an_interface_of_a_device_is_moved_into_the_pod() {
    let mut cluster = Cluster::start().await;
    if !can_create_pod_networks(&cluster).await {
        return;
    }
    let Some(pair) = VethPair::create('a') else {
        return;
    };
    let name = &pair.name;
    assert!(ip(&format!("link set {name} up")));
    assert!(ip(&format!("address add 192.0.2.77/32 dev {name}")));
    let has_ipv6 = ip(&format!("address add 2001:db8::77/128 dev {name} nodad"));
    write_file(&cluster, name);
    let (hostile, _stop) = driver(&cluster).await;
    *hostile.0.lock() = |uid| prepare_response(uid, vec!["test.example.com/device=a".into()]);
    // The first container restarts once.
    let first = format!("{SHOW}; [ -e /v/again ] && sleep 1000; touch /v/again");
    let second = format!("{SHOW}; sleep 1000");
    let containers = json!([container("first", &first), container("second", &second)]);
    pod(&cluster, "p", containers, json!({})).await;
    for (container, attempt) in [("first", 0), ("second", 0), ("first", 1)] {
        until_true("the container has told its interfaces", || {
            cluster.log("p", container, attempt).ends_with("done\n")
        })
        .await;
        let log = cluster.log("p", container, attempt);
        let has = |text: &str| log.lines().any(|line| line.trim() == text);
        assert!(has("net1") && has("lo"), "{log}");
        assert!(log.contains("192.0.2.77") && !log.contains(name), "{log}");
        // The kernel shows those of interfaces that are up.
        let ipv6 = "20010db8000000000000000000000077";
        assert_eq!(log.contains(ipv6), has_ipv6, "{log}");
    }
    assert!(!exists_on_host(name) && exists_on_host(&pair.peer));
    // A container logs before the agent has written which one runs.
    let is_running = |pod: &Value, container, restarts| {
        let own = status(pod, container);
        own["restartCount"] == restarts && own["state"]["running"].is_object()
    };
    let running = cluster
        .wait_until(&pod_path("p"), "running", |pod| {
            is_running(pod, "first", 1) && is_running(pod, "second", 0)
        })
        .await;
    // The next agent takes the pod over, with the interface in it.
    cluster.stop_agent().await;
    cluster.start_agent().await;
    // Another pod does not get it meanwhile.
    let script = container("c", "sleep 1000");
    pod(&cluster, "other", json!([script]), json!({})).await;
    let missing = format!("there is no network interface \"{name}\" on this node");
    wait_for_event_message(&cluster, "other", &missing).await;
    let adopted = cluster.get(&pod_path("p")).await;
    for container in ["first", "second"] {
        assert_eq!(
            status(&adopted, container)["containerID"],
            status(&running, container)["containerID"]
        );
    }
    // The kernel removes it with the network of the pod, and its peer.
    let path = format!("{}?gracePeriodSeconds=0", pod_path("p"));
    cluster.delete(&path).await;
    until_true("the pair is gone", || !exists_on_host(&pair.peer)).await;
    assert!(!exists_on_host(name) && !exists_on_host("net1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_in_the_network_of_the_node_gets_no_interface() {
    let cluster = Cluster::start().await;
    if !can_create_pod_networks(&cluster).await {
        return;
    }
    let Some(pair) = VethPair::create('b') else {
        return;
    };
    write_file(&cluster, &pair.name);
    let (hostile, _stop) = driver(&cluster).await;
    *hostile.0.lock() = |uid| prepare_response(uid, vec!["test.example.com/device=a".into()]);
    let containers = json!([container("c", "sleep 1000")]);
    pod(&cluster, "p", containers, json!({"hostNetwork": true})).await;
    let told =
        "network interfaces cannot be moved into the pod, because it has the network of the node";
    wait_for_event_message(&cluster, "p", told).await;
    assert!(exists_on_host(&pair.name));
}
