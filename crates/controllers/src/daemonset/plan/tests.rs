use super::*;

fn spec(strategy: Value) -> DaemonSetSpec {
    serde_json::from_value(json!({"selector": {}, "template": {"spec": {"containers": []}}, "updateStrategy": strategy})).unwrap()
}

fn pod(name: &str, current: bool, available: bool) -> DaemonPod {
    DaemonPod {
        name: name.to_owned(),
        created: None,
        bound: true,
        current,
        deleting: false,
        failed: false,
        ready: available,
        available,
        wait: None,
    }
}

fn node(fit: Fit, pods: &[DaemonPod]) -> NodeState {
    NodeState {
        fit,
        pods: pods.to_vec(),
    }
}

fn check(strategy: Value, nodes: &[(&str, NodeState)], create: &[&str], delete: &[&str]) {
    let states = nodes
        .iter()
        .map(|(n, s)| ((*n).to_owned(), s.clone()))
        .collect();
    let actions = actions(&spec(strategy), &states);
    assert_eq!(actions.create, create, "created");
    assert_eq!(actions.delete, delete, "deleted");
}

#[test]
fn each_node_that_fits_gets_one_pod() {
    let failed = DaemonPod {
        failed: true,
        ..pod("f", true, false)
    };
    let ending = DaemonPod {
        deleting: true,
        ..pod("e", true, false)
    };
    check(
        json!({}),
        &[
            ("a", node(Fit::Run, &[])),
            ("b", node(Fit::Run, &[pod("b1", true, true)])),
            ("c", node(Fit::Stay, &[])),
            ("d", node(Fit::No, &[pod("d1", true, true)])),
            ("e", node(Fit::Run, &[ending])),
            ("f", node(Fit::Run, &[failed])),
            (
                "g",
                node(Fit::Run, &[pod("g1", true, true), pod("g2", true, true)]),
            ),
        ],
        &["a"],
        &["d1", "f", "g2"],
    );
}

#[test]
fn a_deleted_pod_that_has_ended_does_not_hold_up_its_successor() {
    let going = |failed: bool| DaemonPod {
        deleting: true,
        failed,
        ..pod("g", true, false)
    };
    check(
        json!({}),
        &[
            ("a", node(Fit::Run, &[going(true)])),
            ("b", node(Fit::Run, &[going(false)])),
            ("c", node(Fit::Run, &[going(true), going(false)])),
        ],
        &["a"],
        &[],
    );
}

#[test]
fn a_rolling_update_takes_down_one_at_a_time() {
    let old = |n: &str| node(Fit::Run, &[pod(n, false, true)]);
    check(
        json!({}),
        &[("a", old("a1")), ("b", old("b1"))],
        &[],
        &["a1"],
    );
    // While one node is without a working pod the others wait.
    let starting = node(Fit::Run, &[pod("a2", true, false)]);
    check(
        json!({}),
        &[("a", starting.clone()), ("b", old("b1"))],
        &[],
        &[],
    );
    let two = json!({"rollingUpdate": {"maxUnavailable": 2}});
    check(
        two,
        &[("a", starting), ("b", old("b1")), ("c", old("c1"))],
        &[],
        &["b1"],
    );
    // What does not work anyway is replaced at once.
    let broken = node(Fit::Run, &[pod("x", false, false)]);
    check(json!({}), &[("a", broken), ("b", old("b1"))], &[], &["x"]);
    check(json!({"type": "OnDelete"}), &[("a", old("a1"))], &[], &[]);
}

#[test]
fn with_surge_the_new_pod_comes_first() {
    let surge = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    let old = |n: &str| node(Fit::Run, &[pod(n, false, true)]);
    check(
        surge.clone(),
        &[("a", old("a1")), ("b", old("b1"))],
        &["a"],
        &[],
    );
    let both = |works: bool| node(Fit::Run, &[pod("a1", false, true), pod("a2", true, works)]);
    check(
        surge.clone(),
        &[("a", both(false)), ("b", old("b1"))],
        &[],
        &[],
    );
    check(
        surge,
        &[("a", both(true)), ("b", old("b1"))],
        &["b"],
        &["a1"],
    );
}

#[test]
fn events_report_pods_that_have_ended() {
    let told = |phase: &str| {
        let pod = json!({
            "metadata": {"namespace": "ns", "name": "p"},
            "spec": {"containers": [], "nodeName": "n"},
            "status": {"phase": phase},
        });
        let found = ended(&serde_json::from_value(pod).unwrap());
        found.map(|(_, reason, message)| format!("{reason}: {message}"))
    };
    let failed = "FailedDaemonPod: Found failed daemon pod ns/p on node n, will try to kill it";
    let succeeded =
        "SucceededDaemonPod: Found succeeded daemon pod ns/p on node n, will try to delete it";
    assert_eq!(told("Failed").as_deref(), Some(failed));
    assert_eq!(told("Succeeded").as_deref(), Some(succeeded));
    assert_eq!(told("Running"), None);
}

#[test]
fn the_status_counts_nodes() {
    let states: BTreeMap<String, NodeState> = [
        ("a", node(Fit::Run, &[pod("a1", true, true)])),
        ("b", node(Fit::Run, &[pod("b1", false, false)])),
        ("c", node(Fit::Run, &[])),
        ("d", node(Fit::No, &[pod("d1", true, true)])),
    ]
    .into_iter()
    .map(|(n, s)| (n.to_owned(), s))
    .collect();
    let (status, _) = status(&states);
    assert_eq!(
        status,
        json!({
            "desiredNumberScheduled": 3, "currentNumberScheduled": 2, "numberMisscheduled": 1,
            "numberReady": 1, "updatedNumberScheduled": 1, "numberAvailable": 1, "numberUnavailable": 2,
        })
    );
}

#[test]
fn a_pod_counts_until_it_is_deleted() {
    let ending = DaemonPod {
        deleting: true,
        ..pod("a1", false, true)
    };
    let at = |second: i64| Some(Timestamp::from_second(second).unwrap());
    let first = DaemonPod {
        created: at(1),
        ..pod("b2", false, true)
    };
    let surge = DaemonPod {
        created: at(2),
        ..pod("b1", true, false)
    };
    let states = [
        ("a", node(Fit::Run, &[ending])),
        ("b", node(Fit::Run, &[surge, first])),
    ];
    let states = states.map(|(n, s)| (n.to_owned(), s)).into();
    let (status, _) = status(&states);
    assert_eq!(
        status,
        json!({
            "desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberMisscheduled": 0,
            "numberReady": 2, "updatedNumberScheduled": 0, "numberAvailable": 2, "numberUnavailable": 0,
        })
    );
}

#[test]
fn trouble_of_a_node_is_tolerated_but_not_other_taints() {
    let (spec, features) = (spec(json!({})), Features::default());
    let tainted = |key: &str, effect: &str| -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": key, "effect": effect}]}})).unwrap()
    };
    assert_eq!(
        fit(
            &spec,
            &tainted("node.kubernetes.io/unreachable", "NoExecute"),
            &features
        ),
        Fit::Run
    );
    assert_eq!(
        fit(&spec, &tainted("example.com/x", "NoSchedule"), &features),
        Fit::Stay
    );
    assert_eq!(
        fit(&spec, &tainted("example.com/x", "NoExecute"), &features),
        Fit::No
    );
}

#[test]
fn comparison_operators_need_their_feature() {
    let mut spec = spec(json!({}));
    let toleration = json!([{"key": "sla", "operator": "Gt", "value": "900"}]);
    let tolerations = serde_json::from_value(toleration).unwrap();
    spec.template.spec.as_mut().unwrap().tolerations = tolerations;
    let check = |on: bool, value: &str, expected: Fit| {
        let taint = json!({"key": "sla", "value": value, "effect": "NoSchedule"});
        let node = json!({"metadata": {"name": "n"}, "spec": {"taints": [taint]}});
        let node: Node = serde_json::from_value(node).unwrap();
        let features = Features::default().with(Feature::TaintTolerationComparisonOperators, on);
        assert_eq!(fit(&spec, &node, &features), expected, "{on} {value}");
    };
    check(true, "950", Fit::Run);
    check(true, "900", Fit::Stay);
    check(false, "950", Fit::Stay);
}
