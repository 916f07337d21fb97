use proptest::prelude::*;
use serde_json::json;

use super::constraint::Counted;
use super::score::raw_scores;
use super::*;
use crate::cache::Cache;
use crate::selectors::Labels;

fn replica(name: &str, namespace: u8, set: u8, terminating: bool) -> Arc<PodInfo> {
    let pod = json!({
        "metadata": {
            "name": name,
            "namespace": format!("ns{namespace}"),
            "uid": name,
            "labels": {"set": set.to_string()},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": format!("r{set}"), "controller": true}],
            "deletionTimestamp": terminating.then_some("2024-01-01T00:00:00Z"),
        },
        // Of interest for the pod that is placed only.
        "spec": {"containers": [], "nodeSelector": {"kind": "good"}},
    });
    Arc::new(PodInfo::new(Arc::new(
        serde_json::from_value(pod).expect("fixture"),
    )))
}

proptest! {
    /// Pods of the same controller are counted as if all pods were looked at.
    #[test]
    fn replicas_are_counted(
        pods in proptest::collection::vec((0u8..2, 0u8..2, any::<bool>(), 0usize..3), 0..30),
    ) {
        let mut cache = Cache::default();
        let names = ["a", "b", "c"];
        for name in names {
            let node = json!({"metadata": {"name": name}});
            cache.set_node(Arc::new(serde_json::from_value(node).expect("fixture")));
        }
        for (i, (namespace, set, terminating, node)) in pods.into_iter().enumerate() {
            let pod = replica(&format!("p{i}"), namespace, set, terminating);
            cache.assume(pod, &names[node].into());
        }
        let pod = replica("p", 0, 0, false);
        for constraint in constraints(&pod, WhenUnsatisfiable::ScheduleAnyway, &Defaults::system()) {
            for node in &cache.snapshot().nodes {
                let all = node.pods.iter();
                let expected = all.filter(|p| constraint.counts(&pod, p)).count() as i64;
                prop_assert_eq!(constraint.count_on(&pod, node), expected);
            }
        }
    }

    /// Nodes are scored as if each of them was looked at, which is what happens where labels choose the pods.
    #[test]
    fn nodes_without_replicas_need_not_be_counted(
        nodes in proptest::collection::vec((any::<bool>(), 0u8..4, any::<bool>()), 1..6),
        pods in proptest::collection::vec((0u8..2, 0u8..2, any::<bool>(), any::<proptest::sample::Index>()), 0..20),
        scored in proptest::collection::vec(any::<bool>(), 6),
        lenient in any::<bool>(),
    ) {
        let mut cache = Cache::default();
        for (i, (host, zone, good)) in nodes.iter().enumerate() {
            let mut labels = json!({"kind": if *good { "good" } else { "bad" }});
            if *host {
                labels["kubernetes.io/hostname"] = json!(i.to_string());
            }
            if *zone > 0 {
                labels["topology.kubernetes.io/zone"] = json!(zone.to_string());
            }
            let node = json!({"metadata": {"name": i.to_string(), "labels": labels}});
            cache.set_node(Arc::new(serde_json::from_value(node).expect("fixture")));
        }
        for (i, (namespace, set, terminating, node)) in pods.into_iter().enumerate() {
            let pod = replica(&format!("p{i}"), namespace, set, terminating);
            cache.assume(pod, &node.index(nodes.len()).to_string().into());
        }
        let pod = replica("p", 0, 0, false);
        let by_controller = constraints(&pod, WhenUnsatisfiable::ScheduleAnyway, &Defaults::system());
        let mut by_labels = by_controller.clone();
        let selector = serde_json::from_value(json!({"matchLabels": {"set": "0"}})).expect("fixture");
        for constraint in &mut by_labels {
            constraint.selector = Counted::Labels(Labels::new(Some(&selector)));
        }
        let scored: Vec<usize> = (0..nodes.len()).filter(|i| scored[*i]).collect();
        let affinity = NodeAffinity::new(&pod);
        let raw = |constraints: &[Constraint]| {
            raw_scores(&pod, &affinity, cache.snapshot(), &scored, constraints, lenient)
        };
        prop_assert_eq!(raw(&by_controller), raw(&by_labels));
    }

    /// The emptiest domain is known without looking at all of them.
    #[test]
    fn the_emptiest_domain_is_known(
        start in proptest::collection::vec(0i64..4, 0..5),
        changes in proptest::collection::vec((0usize..6, -2i64..3), 0..30),
    ) {
        let start = start.into_iter().enumerate().map(|(i, n)| (i.to_string(), n));
        let mut domains = Domains::new(start.collect());
        for (at, delta) in changes {
            domains.change(&at.to_string(), delta);
            let expected = domains.pods.values().copied().min().unwrap_or(0);
            prop_assert_eq!(domains.min_match(), expected);
        }
    }
}
