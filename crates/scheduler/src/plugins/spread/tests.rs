use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::cache::Cache;

fn replica(name: &str, namespace: u8, set: u8, terminating: bool) -> Arc<PodInfo> {
    let pod = json!({
        "metadata": {
            "name": name,
            "namespace": format!("ns{namespace}"),
            "uid": name,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": format!("r{set}"), "controller": true}],
            "deletionTimestamp": terminating.then_some("2024-01-01T00:00:00Z"),
        },
        "spec": {"containers": []},
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
        for constraint in constraints(&pod, false, &Defaults::system()) {
            for node in &cache.snapshot().nodes {
                let all = node.pods.iter();
                let expected = all.filter(|p| constraint.counts(&pod, p)).count() as i64;
                prop_assert_eq!(constraint.count_on(&pod, node), expected);
            }
        }
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
            prop_assert_eq!(domains.fewest(), expected);
        }
    }
}
