//! Tolerations that compare the values of taints as numbers.

use super::*;

const GATE: &str = "TaintTolerationComparisonOperators=true";

/// A cluster in which only `n0` is open; it has the taint `sla` with a value.
fn tainted(gates: &str, value: &str, effect: &str) -> Fixture {
    let mut fixture = Fixture::new(gates);
    fixture.node("n1", json!({"unschedulable": true}));
    let taint = json!({"key": "sla", "value": value, "effect": effect});
    fixture.node("n0", json!({"taints": [taint]}));
    fixture
}

fn tolerating(operator: &str, value: &str) -> Value {
    json!({"tolerations": [{"key": "sla", "operator": operator, "value": value}]})
}

#[test]
fn comparison_operators_tolerate_taints_with_their_feature() {
    let check = |gates: &str, operator: &str, value: &str, fits: bool| {
        let mut fixture = tainted(gates, "950", "NoSchedule");
        fixture.any_pod("p", &[], tolerating(operator, value));
        let outcome = fixture.run();
        let case = format!("{gates} {operator} {value}");
        assert_eq!(outcome.node().is_some(), fits, "{case}");
        let text = "1 node(s) had untolerated taint(s)";
        assert_eq!(outcome.message().contains(text), !fits, "{case}");
    };
    check(GATE, "Gt", "900", true);
    check(GATE, "Lt", "900", false);
    check(GATE, "Lt", "1000", true);
    check(GATE, "Gt", "1000", false);
    check(GATE, "Gt", "950", false);
    check("", "Gt", "900", false);
    check("", "Lt", "1000", false);
    check("", "Equal", "950", true);
}

#[test]
fn a_pod_is_tried_again_when_the_value_of_a_taint_becomes_tolerable() {
    let mut fixture = tainted(GATE, "900", "NoSchedule");
    fixture.any_pod("p", &[], tolerating("Gt", "950"));
    assert_eq!(fixture.run().node(), None);
    let set = |fixture: &mut Fixture, value: &str| {
        let taint = json!({"key": "sla", "value": value, "effect": "NoSchedule"});
        fixture.node("n0", json!({"taints": [taint]}));
    };
    set(&mut fixture, "949");
    assert_eq!(fixture.run().node(), None);
    set(&mut fixture, "951");
    assert_eq!(fixture.run().node(), Some("n0"));
}

#[test]
fn comparison_operators_count_in_the_score() {
    let check = |gates: &str, expected: &str| {
        let mut fixture = tainted(gates, "950", "PreferNoSchedule");
        let taint = json!({"key": "other", "effect": "PreferNoSchedule"});
        let other = json!({"key": "another", "effect": "PreferNoSchedule"});
        let all = json!([taint, other]);
        let open = match expected {
            // The taint of n0 is tolerated, those of n1 are not.
            "n0" => json!({"taints": all}),
            // Without the feature n1, which has no taint, is better.
            _ => json!({}),
        };
        fixture.node("n1", open);
        fixture.any_pod("p", &[], tolerating("Gt", "900"));
        assert_eq!(fixture.run().node(), Some(expected), "{gates}");
    };
    check(GATE, "n0");
    check("", "n1");
}
