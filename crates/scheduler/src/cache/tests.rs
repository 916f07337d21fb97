use super::*;
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::{Value, json};

fn node(name: &str) -> Arc<Node> {
    let value =
        json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "8", "pods": "10"}}});
    Arc::new(serde_json::from_value(value).expect("fixture"))
}

fn pod(uid: &str, node: Option<&str>, phase: &str) -> Arc<PodInfo> {
    let value = json!({
        "metadata": {"name": uid, "namespace": "ns", "uid": uid},
        "spec": {"nodeName": node.map_or(Value::Null, Value::from), "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": phase},
    });
    let pod: Pod = serde_json::from_value(value).expect("fixture");
    Arc::new(PodInfo::new(Arc::new(pod)))
}

/// CPU in use per node, and what the pods there add up to.
fn check(cache: &Cache, expected: &[(&str, i64)]) {
    for (name, cpus) in expected {
        let node = cache.node(name).expect("exists");
        assert_eq!(node.requested.milli_cpu, cpus * 1000, "{name}");
        assert_eq!(
            node.pods.iter().map(|p| p.requests.milli_cpu).sum::<i64>(),
            cpus * 1000,
            "{name}"
        );
    }
}

#[test]
fn assumed_pods_count_until_they_fail() {
    let mut c = Cache::default();
    c.set_node(node("a"));
    c.assume(pod("p", None, "Pending"), &"a".into());
    check(&c, &[("a", 1)]);
    c.forget("p");
    check(&c, &[("a", 0)]);
}

#[test]
fn seen_pods_are_not_forgotten() {
    let mut c = Cache::default();
    c.set_node(node("a"));
    c.assume(pod("p", None, "Pending"), &"a".into());
    c.set_pod(pod("p", Some("a"), "Pending"));
    c.forget("p");
    check(&c, &[("a", 1)]);
    c.set_pod(pod("p", Some("a"), "Succeeded"));
    check(&c, &[("a", 0)]);
}

#[test]
fn bound_elsewhere_than_assumed() {
    let mut c = Cache::default();
    c.set_node(node("a"));
    c.set_node(node("b"));
    c.assume(pod("p", None, "Pending"), &"a".into());
    c.set_pod(pod("p", Some("b"), "Pending"));
    check(&c, &[("a", 0), ("b", 1)]);
}

#[test]
fn pods_may_come_before_their_node_and_outlive_it() {
    let mut c = Cache::default();
    c.set_pod(pod("p", Some("a"), "Running"));
    c.set_node(node("a"));
    check(&c, &[("a", 1)]);
    c.remove_node("a");
    assert!(c.node("a").is_none() && c.snapshot().nodes.is_empty());
    c.set_node(node("a"));
    check(&c, &[("a", 1)]);
    c.remove_pod("p");
    check(&c, &[("a", 0)]);
}

#[test]
fn a_snapshot_stays_what_it_was() {
    let mut c = Cache::default();
    c.set_node(node("a"));
    let before = c.snapshot().clone();
    c.assume(pod("p", None, "Pending"), &"a".into());
    assert!(before.nodes[0].pods.is_empty());
    check(&c, &[("a", 1)]);
}

proptest! {
    /// Any sequence of events leaves each pod on at most one node, and nodes with the sum of their pods.
    #[test]
    fn sums_are_right(events in proptest::collection::vec((0u8..6, 0u8..3, 0u8..4), 0..60)) {
        let mut c = Cache::default();
        for (what, n, p) in events {
            let (n, p) = (["a", "b", "c"][n as usize], ["p", "q", "r", "s"][p as usize]);
            match what {
                0 => c.set_node(node(n)),
                1 => c.remove_node(n),
                2 => c.assume(pod(p, None, "Pending"), &n.into()),
                3 => c.forget(p),
                4 => c.set_pod(pod(p, Some(n), "Running")),
                _ => c.remove_pod(p),
            }
            let mut seen = std::collections::BTreeSet::new();
            for node in &c.snapshot().nodes {
                prop_assert_eq!(node.requested.milli_cpu, 1000 * node.pods.len() as i64);
                for pod in &node.pods {
                    prop_assert!(seen.insert(pod.uid.clone()), "{} is on two nodes", pod.uid);
                    prop_assert_eq!(c.node_of(&pod.uid), Some(&node.name));
                }
                prop_assert_eq!(c.position(&node.name), c.snapshot().position(&node.name));
            }
        }
    }
}
