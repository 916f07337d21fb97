use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A pod of one of two controllers, or of none, in one of two namespaces, with one of a few kinds of affinity.
fn pod(uid: usize, controller: u8, namespace: u8, affinity: u8, terminating: bool) -> Arc<PodInfo> {
    let owners = match controller {
        0 => json!([]),
        n => {
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": format!("r{n}"), "controller": true}])
        }
    };
    let term = json!({"topologyKey": "zone", "labelSelector": {}});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    let preferred = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]});
    let affinity = match affinity {
        0 => Value::Null,
        1 => json!({"podAffinity": required}),
        2 => json!({"podAntiAffinity": required}),
        _ => json!({"podAntiAffinity": preferred}),
    };
    let pod = json!({
        "metadata": {
            "name": format!("p{uid}"),
            "namespace": format!("ns{namespace}"),
            "uid": format!("p{uid}"),
            "ownerReferences": owners,
            "deletionTimestamp": terminating.then_some("2024-01-01T00:00:00Z"),
        },
        "spec": {"containers": [], "affinity": affinity},
    });
    Arc::new(PodInfo::new(Arc::new(
        serde_json::from_value(pod).expect("fixture"),
    )))
}

fn uids<'a>(pods: impl IntoIterator<Item = &'a Arc<PodInfo>>) -> Vec<&'a str> {
    let mut uids: Vec<&str> = pods.into_iter().map(|p| &*p.uid).collect();
    uids.sort_unstable();
    uids
}

proptest! {
    /// What is kept beside the pods is what looking at all of them gives.
    #[test]
    fn what_is_known_of_pods_is_right(
        changes in proptest::collection::vec((0usize..8, 0u8..3, 0u8..2, 0u8..4, any::<bool>()), 0..40),
    ) {
        let mut node = NodeInfo::new("n".into());
        for (uid, controller, namespace, affinity, terminating) in changes {
            if node.remove_pod(&format!("p{uid}")).is_none() {
                node.add_pod(pod(uid, controller, namespace, affinity, terminating));
            }
            let mut replicas = FxHashMap::default();
            for pod in node.pods.iter().filter(|p| !p.is_terminating()) {
                if let Some(controller) = &pod.controller {
                    let owner = (pod.key.namespace.clone(), controller.clone());
                    *replicas.entry(owner).or_insert(0) += 1;
                }
            }
            prop_assert_eq!(&node.replicas, &replicas);
            let with = node.pods.iter().filter(|p| p.has_affinity());
            prop_assert_eq!(uids(&node.with_affinity), uids(with));
            let against = node.pods.iter().filter(|p| !p.required_anti_affinity.is_empty());
            prop_assert_eq!(uids(&node.with_required_anti_affinity), uids(against));
        }
    }
}
