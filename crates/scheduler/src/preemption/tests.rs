use super::*;
use serde_json::{Value, json};

mod trials;

fn pod(name: &str, priority: i32, labels: Value) -> Arc<PodInfo> {
    let value = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": labels},
        "spec": {"containers": [], "priority": priority},
    });
    Arc::new(PodInfo::new(Arc::new(
        serde_json::from_value(value).expect("fixture"),
    )))
}

fn victims(node: usize, priorities: &[i32], violations: usize) -> Victims {
    let pods = priorities
        .iter()
        .enumerate()
        .map(|(i, p)| pod(&format!("{node}-{i}"), *p, json!({})))
        .collect();
    Victims {
        node,
        pods,
        violations,
    }
}

fn check_best(candidates: Vec<Victims>, expected: usize) {
    assert_eq!(
        candidates
            .into_iter()
            .min_by(compare_victims)
            .expect("some")
            .node,
        expected
    );
}

#[test]
fn the_order_of_harm() {
    check_best(vec![victims(0, &[1], 1), victims(1, &[9, 9], 0)], 1);
    check_best(vec![victims(0, &[5], 0), victims(1, &[3, 3, 3], 0)], 1);
    check_best(vec![victims(0, &[5, 4], 0), victims(1, &[5, 1], 0)], 1);
    check_best(vec![victims(0, &[-5, -5], 0), victims(1, &[-5], 0)], 1);
}

#[test]
fn budgets_are_used_up_one_by_one() {
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "b", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2},
    }))
    .expect("fixture");
    let pods = vec![
        pod("a", 0, json!({"app": "x"})),
        pod("b", 0, json!({"app": "x"})),
        pod("c", 0, json!({"app": "y"})),
    ];
    let (violating, harmless) = split_by_pdb_violation(pods, &[&Budget::new(&budget)]);
    let names = |pods: &[Arc<PodInfo>]| {
        pods.iter()
            .map(|p| p.key.name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&violating), ["b"]);
    assert_eq!(names(&harmless), ["a", "c"]);
}

#[test]
fn enough_nodes_to_choose_from() {
    let check = |percentage, absolute, nodes, expected| {
        let profile = Profile {
            min_candidate_nodes_percentage: percentage,
            min_candidate_nodes_absolute: absolute,
            ..Profile::default()
        };
        assert_eq!(num_candidates(&profile, nodes), expected);
    };
    check(10, 100, 50, 50);
    check(10, 100, 500, 100);
    check(10, 100, 5000, 500);
    check(0, 3, 5000, 3);
}
