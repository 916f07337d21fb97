use proptest::prelude::*;

use super::*;

fn limits(replicas: i32, surge: i32, unavailable: i32) -> Limits {
    Limits {
        replicas,
        surge,
        unavailable,
    }
}

/// A set that is as available as it is large.
fn works(spec: i32) -> Size {
    Size {
        spec,
        status: spec,
        available: spec,
        ..Size::default()
    }
}

fn broken(spec: i32, available: i32) -> Size {
    Size {
        spec,
        status: spec,
        available,
        ..Size::default()
    }
}

#[test]
fn percentages_round_up_for_surge_and_down_for_unavailable() {
    let spec: DeploymentSpec = serde_json::from_value(serde_json::json!({
        "replicas": 10, "selector": {}, "template": {},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
    }))
    .unwrap();
    assert_eq!(Limits::of(&spec), limits(10, 3, 2));
    let spec: DeploymentSpec = serde_json::from_value(serde_json::json!({
        "replicas": 1, "selector": {}, "template": {},
        "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "25%"}},
    }))
    .unwrap();
    assert_eq!(
        Limits::of(&spec),
        limits(1, 0, 1),
        "both zero would stand still"
    );
}

#[test]
fn the_new_set_grows_into_the_surge() {
    assert_eq!(grow_new(limits(10, 3, 2), &works(0), &[works(10)]), 3);
    assert_eq!(grow_new(limits(10, 3, 2), &works(3), &[works(8)]), 5);
    assert_eq!(grow_new(limits(10, 3, 2), &works(9), &[works(0)]), 10);
    assert_eq!(
        grow_new(limits(5, 1, 0), &works(8), &[]),
        5,
        "it also shrinks"
    );
}

#[test]
fn old_sets_shrink_by_what_availability_permits() {
    assert_eq!(
        shrink_old(limits(10, 3, 2), &broken(3, 0), &[works(10)]),
        [8]
    );
    // Unavailable replicas are removed first.
    assert_eq!(
        shrink_old(limits(10, 0, 2), &works(0), &[broken(5, 0), works(5)]),
        [3, 5]
    );
    assert_eq!(
        shrink_old(limits(10, 3, 2), &works(10), &[works(1), works(2)]),
        [0, 0]
    );
}

#[test]
fn scaling_in_the_middle_of_a_rollout_is_shared() {
    let set = |spec: i32| Size {
        max: Some(11),
        desired: Some(10),
        ..works(spec)
    };
    assert!(was_scaled(20, &[set(5), set(6)]));
    assert!(!was_scaled(10, &[set(5), set(6)]));
    let sizes = scale(limits(20, 2, 0), &[set(5), set(6)], Some(1), true);
    assert_eq!(sizes.iter().sum::<i32>(), 22);
    assert_eq!(sizes, [10, 12]);
    // One set alone gets everything.
    assert_eq!(
        scale(limits(7, 1, 0), &[set(0), set(10)], Some(1), true),
        [0, 7]
    );
    assert_eq!(
        scale(limits(0, 1, 0), &[set(5), set(6)], Some(1), true),
        [0, 0]
    );
}

proptest! {
    /// Each step of a rollout keeps its promises, and the steps come to an end.
    #[test]
    fn a_rollout_never_breaks_its_limits(
        replicas in 0..40i32,
        surge in 0..10i32,
        unavailable in 0..10i32,
        old in proptest::collection::vec(0..20i32, 1..4),
    ) {
        let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable }.min(replicas);
        let limits = limits(replicas, surge, unavailable);
        let mut old: Vec<Size> = old.into_iter().map(works).collect();
        let mut new = works(0);
        for _ in 0..400 {
            let available_before = new.available + old.iter().map(|s| s.available).sum::<i32>();
            let grown = grow_new(limits, &new, &old);
            let total = grown + old.iter().map(|s| s.spec).sum::<i32>();
            prop_assert!(grown <= new.spec || total <= replicas + surge, "{total} pods");
            new = works(grown);
            let sizes = shrink_old(limits, &new, &old);
            for (size, set) in sizes.iter().zip(&mut old) {
                prop_assert!((0..=set.spec).contains(size));
                *set = works(*size);
            }
            let available = new.available + old.iter().map(|s| s.available).sum::<i32>();
            prop_assert!(available >= (replicas - unavailable).min(available_before));
            if new.spec == replicas && old.iter().all(|s| s.spec == 0) {
                return Ok(());
            }
        }
        prop_assert!(false, "it does not come to an end: {new:?} {old:?}");
    }

    #[test]
    fn scaling_gives_out_exactly_what_is_allowed(
        replicas in 0..60i32,
        surge in 0..10i32,
        sets in proptest::collection::vec(1..30i32, 2..5),
    ) {
        let before: i32 = sets.iter().sum();
        let sets: Vec<Size> = sets.into_iter().map(|n| Size { max: Some(before), desired: Some(before), ..works(n) }).collect();
        let sizes = scale(limits(replicas, surge, 0), &sets, None, true);
        prop_assert!(sizes.iter().all(|s| *s >= 0));
        let allowed = if replicas > 0 { replicas + surge } else { 0 };
        prop_assert_eq!(sizes.iter().sum::<i32>(), allowed);
    }
}

/// The attack: a deployment with the largest numbers that are valid, for which every pass of the controller panicked.
#[test]
fn regression_the_largest_numbers_do_not_overflow() {
    let most = i32::MAX;
    let spec: DeploymentSpec = serde_json::from_value(serde_json::json!({
        "replicas": 10, "selector": {}, "template": {},
        "strategy": {"rollingUpdate": {"maxSurge": format!("{}%", i64::MAX), "maxUnavailable": "99%"}},
    }))
    .unwrap();
    assert_eq!(Limits::of(&spec), limits(10, most, 9));
    let all = limits(most, most, 0);
    assert_eq!(grow_new(all, &works(0), &[]), most);
    assert_eq!(grow_new(all, &works(1), &[works(most), works(most)]), 1);
    let sizes = shrink_old(all, &works(most), &[works(most), works(most)]);
    assert_eq!(sizes, [0, most]);
    let sizes = scale(all, &[works(most), works(most)], Some(1), true);
    let sum: i64 = sizes.into_iter().map(i64::from).sum();
    assert_eq!(sum, i64::from(most));
}
