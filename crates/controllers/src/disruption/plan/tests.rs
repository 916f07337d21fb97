use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn pods(healthy: usize, broken: usize) -> Vec<Arc<Pod>> {
    let pod = |i: usize, ready: &str| -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": format!("p{i}")},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap(),
        )
    };
    let good = (0..healthy).map(|i| pod(i, "True"));
    good.chain((healthy..healthy + broken).map(|i| pod(i, "False")))
        .collect()
}

fn check(spec: Value, status_before: Value, pods: &[Arc<Pod>], wanted: (i64, i64, i64)) {
    let budget: PodDisruptionBudget = serde_json::from_value(
        json!({"metadata": {"name": "b"}, "spec": spec, "status": status_before}),
    )
    .unwrap();
    let expected = i32::try_from(pods.len()).unwrap();
    let (status, _) = status(
        &budget,
        budget.spec.as_ref().unwrap(),
        pods,
        expected,
        at(0),
    );
    let number = |f: &str| status[f].as_i64().unwrap();
    assert_eq!(
        (
            number("currentHealthy"),
            number("desiredHealthy"),
            number("disruptionsAllowed")
        ),
        wanted
    );
    let condition = if wanted.2 > 0 {
        "SufficientPods"
    } else {
        "InsufficientPods"
    };
    assert_eq!(status["conditions"][0]["reason"], condition);
}

fn before() -> Value {
    json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})
}

#[test]
fn healthy_desired_and_allowed_pods_follow_from_the_budget() {
    check(json!({"minAvailable": 2}), before(), &pods(3, 0), (3, 2, 1));
    check(
        json!({"minAvailable": "50%"}),
        before(),
        &pods(3, 0),
        (3, 2, 1),
    );
    check(
        json!({"maxUnavailable": 1}),
        before(),
        &pods(3, 1),
        (3, 3, 0),
    );
    check(
        json!({"maxUnavailable": "50%"}),
        before(),
        &pods(4, 0),
        (4, 2, 2),
    );
    check(json!({"minAvailable": 1}), before(), &[], (0, 1, 0));
}

#[test]
fn an_eviction_in_progress_counts_as_done() {
    let mut status = before();
    status["disruptedPods"] =
        json!({"p0": rfc3339(at(-10)), "p1": rfc3339(at(-300)), "gone": rfc3339(at(0))});
    check(json!({"minAvailable": 2}), status, &pods(3, 0), (2, 2, 0));
}
