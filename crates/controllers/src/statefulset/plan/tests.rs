use serde_json::Value;

use super::*;

fn rules(spec: Value, current: &str, update: &str) -> Rules {
    let mut full = json!({"selector": {}, "template": {}, "serviceName": "s"});
    for (key, value) in spec.as_object().unwrap() {
        full[key.as_str()] = value.clone();
    }
    Rules::new(&serde_json::from_value(full).unwrap(), current, update)
}

/// A pod in short: ordinal, revision, and "ok", "starting", "ending" or "finished".
fn member(ordinal: i32, revision: &str, state: &str) -> Member {
    let ok = state == "ok";
    Member {
        ordinal,
        revision: revision.to_owned(),
        deleting: state == "ending",
        finished: state == "finished",
        running: ok,
        ready: ok,
        available: ok,
        wait: None,
        pod: Arc::default(),
    }
}

fn check(rules: &Rules, members: &[(i32, &str, &str)], wanted: &[Action]) {
    let members: Vec<Member> = members.iter().map(|(o, r, s)| member(*o, r, s)).collect();
    assert_eq!(actions(rules, &members), wanted);
}

fn create(ordinal: i32) -> Action {
    Action::Create {
        ordinal,
        updated: true,
    }
}

#[test]
fn ordered_sets_start_one_after_the_other() {
    let rules = rules(json!({"replicas": 3}), "a", "a");
    check(&rules, &[], &[create(0)]);
    check(&rules, &[(0, "a", "starting")], &[]);
    check(&rules, &[(0, "a", "ok")], &[create(1)]);
    check(
        &rules,
        &[(0, "a", "ok"), (1, "a", "finished")],
        &[Action::Delete(1)],
    );
    check(
        &rules,
        &[(0, "a", "ok"), (1, "a", "ok"), (2, "a", "ok")],
        &[],
    );
}

#[test]
fn parallel_sets_start_all_at_once() {
    let rules = rules(
        json!({"replicas": 3, "podManagementPolicy": "Parallel"}),
        "a",
        "a",
    );
    check(&rules, &[(1, "a", "starting")], &[create(0), create(2)]);
}

#[test]
fn ordinals_may_start_higher() {
    let rules = rules(json!({"replicas": 2, "ordinals": {"start": 5}}), "a", "a");
    check(&rules, &[], &[create(5)]);
    check(
        &rules,
        &[(0, "a", "ok"), (5, "a", "ok"), (6, "a", "ok")],
        &[Action::Delete(0)],
    );
}

#[test]
fn scaling_down_goes_from_the_end() {
    let rules = rules(json!({"replicas": 1}), "a", "a");
    check(
        &rules,
        &[(0, "a", "ok"), (1, "a", "ok"), (2, "a", "ok")],
        &[Action::Delete(2)],
    );
    check(
        &rules,
        &[(0, "a", "ok"), (1, "a", "ok"), (2, "a", "ending")],
        &[],
    );
    // While a pod that stays is broken, healthy ones are not taken away.
    check(&rules, &[(0, "a", "starting"), (1, "a", "ok")], &[]);
}

#[test]
fn of_several_broken_surplus_pods_only_the_first_may_go() {
    let rules = rules(json!({"replicas": 1}), "a", "a");
    let set = |one: &'static str, two: &'static str| [(0, "a", "ok"), (1, "a", one), (2, "a", two)];
    check(&rules, &set("starting", "starting"), &[]);
    check(&rules, &set("starting", "ok"), &[Action::Delete(2)]);
    check(&rules, &set("ok", "starting"), &[Action::Delete(2)]);
    check(
        &rules,
        &[(0, "a", "ok"), (1, "a", "starting")],
        &[Action::Delete(1)],
    );
}

#[test]
fn updates_go_from_the_end_and_wait_for_each_pod() {
    let rolling = rules(json!({"replicas": 3}), "a", "b");
    check(
        &rolling,
        &[(0, "a", "ok"), (1, "a", "ok"), (2, "a", "ok")],
        &[Action::Delete(2)],
    );
    check(&rolling, &[(0, "a", "ok"), (1, "a", "ok")], &[create(2)]);
    check(
        &rolling,
        &[(0, "a", "ok"), (1, "a", "ok"), (2, "b", "starting")],
        &[],
    );
    check(
        &rolling,
        &[(0, "a", "ok"), (1, "a", "ok"), (2, "b", "ok")],
        &[Action::Delete(1)],
    );
    let partition = rules(
        json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}}),
        "a",
        "b",
    );
    check(
        &partition,
        &[(0, "a", "ok"), (1, "a", "ok"), (2, "b", "ok")],
        &[],
    );
    // A pod below the partition comes back as it was.
    check(
        &partition,
        &[(0, "a", "ok"), (2, "b", "ok")],
        &[Action::Create {
            ordinal: 1,
            updated: false,
        }],
    );
    let on_delete = rules(
        json!({"replicas": 1, "updateStrategy": {"type": "OnDelete"}}),
        "a",
        "b",
    );
    check(&on_delete, &[(0, "a", "ok")], &[]);
    check(&on_delete, &[], &[create(0)]);
}

#[test]
fn an_update_is_complete_when_every_pod_works() {
    let rules = rules(json!({"replicas": 2}), "a", "b");
    let complete = |states: [(&str, &str); 2]| {
        let members: Vec<Member> = (0..2)
            .map(|i| member(i, states[i as usize].0, states[i as usize].1))
            .collect();
        is_complete(&rules, &members)
    };
    assert!(complete([("b", "ok"), ("b", "ok")]));
    assert!(!complete([("b", "ok"), ("b", "starting")]));
    assert!(!complete([("a", "ok"), ("b", "ok")]));
}

#[test]
fn parallel_sets_are_updated_one_pod_at_a_time() {
    let rules = rules(
        json!({
            "replicas": 3, "podManagementPolicy": "Parallel",
            "updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}},
        }),
        "a",
        "b",
    );
    let last = [Action::Delete(2)];
    // Pods that do not work are neither a reason to wait nor to take more than one.
    check(
        &rules,
        &[(0, "a", "starting"), (1, "a", "ok"), (2, "a", "ok")],
        &last,
    );
    check(
        &rules,
        &[
            (0, "a", "starting"),
            (1, "a", "starting"),
            (2, "a", "starting"),
        ],
        &last,
    );
    // An updated pod must be available before the next one is deleted.
    for state in ["starting", "ending"] {
        check(
            &rules,
            &[(0, "a", "starting"), (1, "a", "ok"), (2, "b", state)],
            &[],
        );
    }
    check(
        &rules,
        &[(0, "a", "ok"), (1, "a", "ok"), (2, "a", "ending")],
        &[],
    );
    check(
        &rules,
        &[(0, "a", "starting"), (1, "a", "ok"), (2, "b", "ok")],
        &[Action::Delete(1)],
    );
}

#[test]
fn a_pod_that_has_ended_counts_until_it_is_gone() {
    let rules = rules(json!({"replicas": 2}), "a", "a");
    let mut going = member(1, "a", "finished");
    going.deleting = true;
    assert_eq!(
        status(&rules, &[member(0, "a", "finished"), going]),
        json!({
            "replicas": 2, "readyReplicas": 0, "availableReplicas": 0, "currentReplicas": 1,
            "updatedReplicas": 1,
        })
    );
}
