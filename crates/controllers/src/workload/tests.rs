use super::*;

fn pod(value: Value) -> Arc<Pod> {
    Arc::new(serde_json::from_value(value).unwrap())
}

#[test]
fn hashes_are_stable_and_without_vowels() {
    let template = json!({"spec": {"b": 1, "a": 2}});
    let same = json!({"spec": {"a": 2, "b": 1}});
    let hash_a = hash(&[&template], None);
    assert_eq!(hash_a, hash(&[&same], None));
    assert_ne!(hash_a, hash(&[&template], Some(1)));
    assert_ne!(hash_a, hash(&[&json!({"spec": {}})], None));
    assert!(
        hash_a
            .chars()
            .all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)),
        "{hash_a}"
    );
}

fn named(name: &str, node: &str, phase: &str, ready: &str, more: Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [], "nodeName": node},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        pod["metadata"][key.as_str()] = value.clone();
    }
    self::pod(pod)
}

#[test]
fn nodes_are_crowded_by_the_pods_of_all_sets_of_an_owner() {
    let running = |name: &str, node: &str| named(name, node, "Running", "True", json!({}));
    let mut pods = vec![running("a", "n1"), running("b", "n2")];
    let mut related = pods.clone();
    rank::replicas(&mut pods, &related);
    assert_eq!(meta::name(&*pods[0]), "a");
    related.push(running("of-another-set", "n2"));
    rank::replicas(&mut pods, &related);
    assert_eq!(meta::name(&*pods[0]), "b");
}

#[test]
fn surplus_pods_go_in_order_of_their_worth() {
    let mut pods = vec![
        named("old", "n1", "Running", "True", json!({})),
        named(
            "young",
            "n1",
            "Running",
            "True",
            json!({"creationTimestamp": "2026-01-02T00:00:00Z"}),
        ),
        named(
            "dear",
            "n1",
            "Running",
            "True",
            json!({"annotations": {"controller.kubernetes.io/pod-deletion-cost": "5"}}),
        ),
        named("alone", "n2", "Running", "True", json!({})),
        named("unready", "n1", "Running", "False", json!({})),
        named("pending", "n1", "Pending", "False", json!({})),
        named("unbound", "", "Pending", "False", json!({})),
    ];
    let related = pods.clone();
    rank::replicas(&mut pods, &related);
    let order: Vec<&str> = pods.iter().map(|p| meta::name(&**p)).collect();
    assert_eq!(
        order,
        [
            "unbound", "pending", "unready", "young", "old", "alone", "dear"
        ]
    );
}

#[test]
fn conditions_keep_their_transition_time() {
    let mut list = Vec::new();
    set_condition(&mut list, "A", "True", "r", "m", "1");
    set_condition(&mut list, "A", "True", "r", "other", "2");
    assert_eq!(
        list,
        [
            json!({"type": "A", "status": "True", "reason": "r", "message": "other", "lastTransitionTime": "1"})
        ]
    );
    set_condition(&mut list, "A", "False", "r", "other", "3");
    assert_eq!(list[0]["lastTransitionTime"], "3");
    assert_eq!(condition_status(&list, "A"), "False");
    remove_condition(&mut list, "A");
    assert!(list.is_empty());
}

#[test]
fn selectors_and_percentages() {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    let selector: LabelSelector = serde_json::from_value(json!({
        "matchLabels": {"a": "1"},
        "matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["x"]}, {"key": "c", "operator": "DoesNotExist"}],
    }))
    .unwrap();
    let labels = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    };
    assert!(meta::selects(&selector, Some(&labels(&[("a", "1")]))));
    assert!(!meta::selects(
        &selector,
        Some(&labels(&[("a", "1"), ("b", "x")]))
    ));
    assert!(!meta::selects(
        &selector,
        Some(&labels(&[("a", "1"), ("c", "")]))
    ));
    assert!(!meta::selects(&selector, None));
    let percent = IntOrString::String("30%".to_owned());
    assert_eq!(meta::scaled(Some(&percent), 5, true, 0), 2);
    assert_eq!(meta::scaled(Some(&percent), 5, false, 0), 1);
    assert_eq!(meta::scaled(None, 5, false, 7), 7);
}
