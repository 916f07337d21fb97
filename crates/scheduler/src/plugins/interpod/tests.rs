use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::cache::Cache;

/// A pod of one of two applications that wants something of the other one, or nothing.
fn pod(name: &str, app: u8, wish: u8) -> Arc<PodInfo> {
    let term = |key: &str| json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": (1 - app).to_string()}}});
    let required = |key| json!({"requiredDuringSchedulingIgnoredDuringExecution": [term(key)]});
    let preferred = |key| json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "podAffinityTerm": term(key)}]});
    let affinity = match wish {
        0 => json!({"podAffinity": required("zone")}),
        1 => json!({"podAntiAffinity": required("host")}),
        2 => json!({"podAffinity": preferred("host")}),
        3 => json!({"podAntiAffinity": preferred("zone")}),
        _ => Value::Null,
    };
    let pod = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": app.to_string()}},
        "spec": {"containers": [], "affinity": affinity},
    });
    Arc::new(PodInfo::new(Arc::new(
        serde_json::from_value(pod).expect("fixture"),
    )))
}

proptest! {
    /// Looking only at pods with wishes gives what looking at all pods gives.
    #[test]
    fn pods_without_wishes_do_not_matter(
        pods in proptest::collection::vec((0u8..2, 0u8..8, 0usize..4), 0..20),
        own in 0u8..8,
        hard_weight in 0i64..3,
        ignore in any::<bool>(),
    ) {
        let mut cache = Cache::default();
        let names = ["a", "b", "c", "d"];
        for (i, name) in names.iter().enumerate() {
            let labels = json!({"host": name, "zone": (i % 2).to_string()});
            let node = json!({"metadata": {"name": name, "labels": labels}});
            cache.set_node(Arc::new(serde_json::from_value(node).expect("fixture")));
        }
        for (i, (app, wish, node)) in pods.into_iter().enumerate() {
            cache.assume(pod(&format!("p{i}"), app, wish), &names[node].into());
        }
        let snapshot = cache.snapshot();
        let mut all = snapshot.clone();
        for node in &mut all.nodes {
            let node = Arc::make_mut(node);
            node.with_affinity = node.pods.clone();
            node.with_required_anti_affinity = node.pods.clone();
        }
        let pod = pod("p", 0, own);
        let filter = |snapshot: &Snapshot| {
            let found = InterPodAffinity::new(&pod, snapshot);
            let judge = |node: &Arc<NodeInfo>| {
                found.as_ref().is_none_or(|i| i.filter(&pod, node, snapshot).is_ok())
            };
            snapshot.nodes.iter().map(judge).collect::<Vec<_>>()
        };
        prop_assert_eq!(filter(snapshot), filter(&all));
        let score = |snapshot: &Snapshot| scores(&pod, snapshot, &[0, 1, 2, 3], hard_weight, ignore);
        prop_assert_eq!(score(snapshot), score(&all));
    }
}
