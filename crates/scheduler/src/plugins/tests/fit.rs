//! What fits on a node, and how that is scored.

use super::*;
use crate::plugins::fit::{self, FitArgs, Strategy};

#[test]
fn nodes_without_enough_resources_are_rejected() {
    let s = cluster(
        &[("a", json!({}))],
        &[(pod("x", json!({}), requests(json!({"cpu": "3"}))), "a")],
    );
    let fits = |r: Value| {
        fit::filter(
            &pod("p", json!({}), requests(r)),
            &s.nodes[0],
            &FitArgs::default(),
            |_| false,
        )
    };
    check(fits(json!({"cpu": "1"})), None);
    check(
        fits(json!({"cpu": "1500m"})),
        Some((Code::Unschedulable, &["Insufficient cpu"])),
    );
    check(
        fits(json!({"cpu": "5", "memory": "5Gi"})),
        Some((
            Code::Unresolvable,
            &["Insufficient cpu", "Insufficient memory"],
        )),
    );
    check(fits(json!({"x.example/gpu": "2"})), None);
    check(
        fits(json!({"x.example/tpu": "1"})),
        Some((Code::Unresolvable, &["Insufficient x.example/tpu"])),
    );
    let delegated = pod("p", json!({}), requests(json!({"x.example/tpu": "1"})));
    check(
        fit::filter(&delegated, &s.nodes[0], &FitArgs::default(), |name| {
            name == "x.example/tpu"
        }),
        None,
    );
}

#[test]
fn number_of_pods() {
    let pods: Vec<_> = (0..10)
        .map(|i| (pod(&format!("x{i}"), json!({}), json!({})), "a"))
        .collect();
    let s = cluster(&[("a", json!({}))], &pods);
    check(
        fit::filter(
            &pod("p", json!({}), json!({})),
            &s.nodes[0],
            &FitArgs::default(),
            |_| false,
        ),
        Some((Code::Unschedulable, &["Too many pods"])),
    );
}

/// A node with four CPUs and 4Gi, of which pods take some, and a pod.
fn with_pod(taken: Value, wanted: Value) -> (Snapshot, Arc<PodInfo>) {
    let on = [(pod("x", json!({}), requests(taken)), "a")];
    let s = cluster(&[("a", json!({}))], &on);
    (s, pod("p", json!({}), requests(wanted)))
}

fn check_score(strategy: Strategy, wanted: Value, expected: i64) {
    let (s, p) = with_pod(json!({"cpu": "1", "memory": "1Gi"}), wanted);
    let args = FitArgs {
        strategy,
        ..FitArgs::default()
    };
    assert_eq!(
        fit::score(&p, &s.nodes[0], &args, &|_, _| None),
        expected,
        "{args:?}"
    );
}

#[test]
fn fit_scores() {
    let wanted = || json!({"cpu": "1", "memory": "1Gi"});
    check_score(Strategy::LeastAllocated, wanted(), 50);
    check_score(Strategy::MostAllocated, wanted(), 50);
    let shape = vec![(0, 0), (100, 10)];
    check_score(Strategy::RequestedToCapacityRatio(shape), wanted(), 50);
}

#[test]
fn ratios_are_scaled_before_they_are_interpolated() {
    let check = |shape: Vec<(i64, i64)>, wanted: Value, expected: i64| {
        check_score(Strategy::RequestedToCapacityRatio(shape), wanted, expected);
    };
    // CPU and memory at 37 percent.
    let wanted = || json!({"cpu": "500m", "memory": "512Mi"});
    check(vec![(0, 0), (100, 10)], wanted(), 37);
    check(vec![(0, 10), (100, 0)], wanted(), 63);
    // CPU at 75 percent, memory at 37: 56 is the mean.
    check(
        vec![(0, 0), (100, 10)],
        json!({"cpu": "2", "memory": "512Mi"}),
        56,
    );
    check(
        vec![(0, 0), (100, 10)],
        json!({"cpu": "2", "memory": "552Mi"}),
        57,
    );
}

#[test]
fn resources_without_score_do_not_count_in_ratios() {
    let shape = vec![(50, 0), (100, 10)];
    // CPU at 75 percent, memory below 50.
    let wanted = json!({"cpu": "2", "memory": "512Mi"});
    check_score(Strategy::RequestedToCapacityRatio(shape), wanted, 50);
}

#[test]
fn only_extended_resources_can_be_ignored() {
    let s = cluster(&[("a", json!({}))], &[]);
    let args = FitArgs {
        ignored_resources: vec!["hugepages-2Mi".to_owned(), "x.example/tpu".to_owned()],
        ignored_groups: vec!["y.example".to_owned()],
        ..FitArgs::default()
    };
    let fits = |r: Value| {
        fit::filter(
            &pod("p", json!({}), requests(r)),
            &s.nodes[0],
            &args,
            |_| false,
        )
    };
    check(
        fits(json!({"x.example/tpu": "9", "y.example/any": "9"})),
        None,
    );
    check(
        fits(json!({"hugepages-2Mi": "2Mi"})),
        Some((Code::Unresolvable, &["Insufficient hugepages-2Mi"])),
    );
}

fn check_balance(taken: Value, wanted: Value, expected: i64) {
    let (s, p) = with_pod(taken, wanted);
    let resources = FitArgs::default().resources;
    assert_eq!(
        fit::balanced(&p, &s.nodes[0], &resources, &|_, _| None),
        expected
    );
}

#[test]
fn balance_is_what_the_pod_changes_about_it() {
    let even = || json!({"cpu": "1", "memory": "1Gi"});
    let odd = || json!({"cpu": "2", "memory": "0"});
    check_balance(even(), even(), 75);
    check_balance(odd(), even(), 75);
    // 100 before, 62 after.
    check_balance(even(), json!({"cpu": "3", "memory": "0"}), 56);
    // 75 before, 100 after.
    check_balance(odd(), json!({"cpu": "0", "memory": "2Gi"}), 87);
    check_balance(json!({}), json!({"cpu": "4"}), 50);
    check_balance(json!({"cpu": "4"}), json!({"memory": "4Gi"}), 100);
}

#[test]
fn nodes_without_resources_have_no_balance_to_change() {
    let node = NodeInfo::new("n".into());
    let p = pod("p", json!({}), requests(json!({"cpu": "1"})));
    let resources = FitArgs::default().resources;
    assert_eq!(fit::balanced(&p, &node, &resources, &|_, _| None), 75);
}

#[test]
fn balance_does_not_matter_to_pods_that_ask_for_none_of_its_resources() {
    let resources = FitArgs::default().resources;
    let check = |wanted: Value, expected: bool| {
        let p = pod("p", json!({}), requests(wanted));
        assert_eq!(fit::is_best_effort(&p, &resources), expected);
    };
    check(json!({}), true);
    check(json!({"cpu": "0", "memory": "0"}), true);
    check(
        json!({"ephemeral-storage": "1Gi", "x.example/gpu": "1"}),
        true,
    );
    check(json!({"memory": "1"}), false);
}
