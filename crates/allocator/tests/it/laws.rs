//! Laws that hold for every problem, on many random ones.

use allot_allocator::problem::Problem;
use allot_allocator::{Allocator, Cluster, Holder, Limits, Outcome, Policy, SelectorCache};
use k8s_openapi::api::resource::v1::AllocationResult;

use crate::{checker, generate, make, reference};

const PROBLEMS: u64 = 10_000;

/// Where to start, so that more problems can be tried: `ALLOT_FIRST_SEED=1000000 cargo test -p allot-allocator laws`.
fn first_seed() -> u64 {
    let given = std::env::var("ALLOT_FIRST_SEED").ok();
    given.map_or(0, |text| text.parse().expect("a number"))
}

#[test]
fn results_are_those_of_the_plain_search_and_obey_the_rules() {
    let (mut solved, mut nothing, mut errors, mut long) = (0, 0, 0, 0);
    for seed in first_seed()..first_seed() + PROBLEMS {
        let problem = generate::small(seed);
        let (mut text, results) = make::solve(&problem, &Limits::default());
        if text.starts_with("error: ") || text.starts_with("node error: ") {
            text = "error".into();
        }
        match text.as_str() {
            "nothing" => nothing += 1,
            "error" => errors += 1,
            _ => {
                solved += 1;
                if let Err(wrong) = checker::verify(&problem, &results) {
                    panic!(
                        "{wrong}\n{text}\n{}",
                        serde_json::to_string(&problem).unwrap()
                    );
                }
            }
        }
        match reference::solve(&problem, 20_000) {
            Some(expected) => assert_eq!(
                text,
                expected,
                "{}",
                serde_json::to_string(&problem).unwrap()
            ),
            None => long += 1,
        }
    }
    println!(
        "{solved} solved, {nothing} without solution, {errors} with errors, {long} too long for the plain search"
    );
    // The generator has to keep making problems of all kinds.
    assert!(
        solved > PROBLEMS / 5
            && nothing > PROBLEMS / 10
            && errors > PROBLEMS / 100
            && long < PROBLEMS / 50
    );
}

/// With limits on the devices of two classes the result is still that of the plain search.
#[test]
fn limits_on_classes_only_leave_out_what_exceeds_them() {
    let (mut limited, mut prevented) = (0, 0);
    for seed in first_seed()..first_seed() + PROBLEMS / 4 {
        let mut random = generate::Random::new(seed ^ 0xb0d6e7);
        let mut problem = generate::small(seed);
        let (free, _) = make::solve(&problem, &Limits::default());
        let mut second = problem.device_classes[0].clone();
        second.metadata.name = Some("second".into());
        problem.device_classes.push(second);
        let devices = problem.claims.iter_mut().flat_map(|c| &mut c.spec.devices);
        for request in devices.flat_map(|d| d.requests.iter_mut().flatten()) {
            let exactly = request.exactly.iter_mut();
            let lists = request.first_available.iter_mut().flatten();
            let classes = exactly
                .map(|e| &mut e.device_class_name)
                .chain(lists.map(|a| &mut a.device_class_name));
            classes
                .filter(|_| random.chance(50))
                .for_each(|class| *class = "second".into());
        }
        for class in ["any", "second"] {
            if random.chance(70) {
                let limit = random.below(5) as i64;
                problem.device_limits.insert(class.into(), limit);
            }
        }
        limited += usize::from(!problem.device_limits.is_empty());
        let shown = || serde_json::to_string(&problem).unwrap();
        let (mut text, results) = make::solve(&problem, &Limits::default());
        if text.starts_with("error: ") || text.starts_with("node error: ") {
            text = "error".into();
        }
        prevented += usize::from(text == "nothing" && free != "nothing");
        if !results.is_empty()
            && let Err(wrong) = checker::verify(&problem, &results)
        {
            panic!("{wrong}\n{text}\n{}", shown());
        }
        // What exceeds a limit is known before selectors are evaluated that the plain search finds to fail.
        let known = |expected: &String| !(expected == "error" && text == "nothing");
        if let Some(expected) = reference::solve(&problem, 20_000).filter(known) {
            assert_eq!(text, expected, "{}", shown());
        }
    }
    println!("{limited} with limits, {prevented} without solution because of them");
    assert!(prevented > limited / 20, "{prevented} of {limited}");
}

#[test]
fn policies_find_something_exactly_when_first_fit_does() {
    for seed in first_seed()..first_seed() + PROBLEMS / 4 {
        let problem = generate::small(seed);
        let (first, _) = make::solve(&problem, &Limits::default());
        for (name, policy) in Policy::NAMED {
            let (found, results) = make::solve_with(&problem, policy, &Limits::default());
            let shown = || format!("{name}: {}", serde_json::to_string(&problem).unwrap());
            if first.contains("error") || found.contains("error") {
                // Which device fails first depends on the order.
                continue;
            }
            assert_eq!(first == "nothing", found == "nothing", "{}", shown());
            if found != "nothing"
                && let Err(wrong) = checker::verify(&problem, &results)
            {
                panic!("{wrong}\n{found}\n{}", shown());
            }
        }
    }
}

/// Whatever a policy prefers: it takes no more decisions than it may, and what it prefers is known where it fits.
#[test]
fn policies_keep_within_the_limits() {
    let mut liked = 0;
    for seed in first_seed()..first_seed() + PROBLEMS / 10 {
        let problem = generate::small(seed);
        let (cluster, claims) = (problem.cluster(), problem.claims(&SelectorCache::new()));
        for (name, policy) in Policy::NAMED {
            let mut allocator = Allocator::with_policy(policy);
            for steps in [1, 7, 50] {
                let limits = Limits {
                    steps,
                    ..Limits::default()
                };
                for node in &problem.nodes() {
                    let preference = allocator.preference(&cluster, node, &claims, &limits);
                    let shown = || format!("{name}: {}", serde_json::to_string(&problem).unwrap());
                    // The step that is one too many is counted.
                    assert!(allocator.steps() <= steps + 1, "{}", shown());
                    let fits = allocator.probe(&cluster, node, &claims, &limits);
                    match (preference, fits) {
                        (Outcome::Allocated(_), Outcome::Allocated(())) => liked += 1,
                        (preference, fits) => {
                            let kind =
                                |text: String| text.split(['(', ' ']).next().unwrap().to_owned();
                            let (one, other) = (format!("{preference:?}"), format!("{fits:?}"));
                            assert_eq!(kind(one), kind(other), "{}", shown());
                        }
                    }
                }
            }
        }
    }
    assert!(liked > PROBLEMS / 10, "{liked}");
}

#[test]
fn a_cluster_kept_by_deltas_is_the_same_as_a_new_one() {
    for seed in first_seed()..first_seed() + PROBLEMS / 5 {
        let mut random = generate::Random::new(seed);
        let (before, after) = (generate::small(seed), generate::small(seed + PROBLEMS));
        if before.features != after.features {
            continue;
        }
        // Start with one problem, end with the other, with detours.
        let mut cluster = before.cluster();
        let snapshot = cluster.clone();
        for (index, slice) in before.resource_slices.iter().enumerate() {
            if random.chance(30) {
                cluster.apply_as(&format!("extra{index}"), slice);
                cluster.remove(&format!("extra{index}"));
            }
            if index >= after.resource_slices.len() || random.chance(50) {
                cluster.remove(&format!("#{index}"));
            }
        }
        let holders: Vec<_> = cluster
            .holders()
            .map(|(holder, _)| holder.uid.clone())
            .collect();
        holders.iter().for_each(|uid| cluster.claim_released(uid));
        let mut order: Vec<_> = after.resource_slices.iter().enumerate().collect();
        if random.chance(50) {
            order.reverse();
        }
        for (index, slice) in order {
            cluster.apply_as(&format!("#{index}"), slice);
        }
        let fresh = after.cluster();
        for (holder, held) in fresh.holders() {
            cluster.hold(holder, held.to_vec());
        }
        let shown = || serde_json::to_string(&(&before, &after)).unwrap();
        let outcome = |cluster: &Cluster, problem: &Problem| {
            make::solve_in(cluster, problem, Policy::FirstFit, &Limits::default()).0
        };
        assert_eq!(
            outcome(&cluster, &after),
            outcome(&fresh, &after),
            "{}",
            shown()
        );
        // The snapshot has not seen any of it.
        assert_eq!(
            outcome(&snapshot, &before),
            outcome(&before.cluster(), &before),
            "{}",
            shown()
        );
    }
}

/// The problem on several nodes that have nearly the same: other names, and now and then another value or device in use.
fn on_many_nodes(seed: u64) -> Problem {
    const NODES: usize = 6;
    let mut random = generate::Random::new(seed);
    let mut problem = generate::small(seed);
    let single = problem.resource_slices.clone();
    let used = problem.allocated_devices.clone();
    for number in 2..=NODES {
        let node = format!("n{number}");
        for slice in single
            .iter()
            .filter(|s| s.spec.node_name.as_deref() == Some("n1"))
        {
            let mut copy = slice.clone();
            copy.metadata.name = copy.metadata.name.map(|name| format!("{name}-{node}"));
            copy.spec.node_name = Some(node.clone());
            copy.spec.pool.name += &node;
            for device in copy.spec.devices.iter_mut().flatten() {
                device.attributes.get_or_insert_default().insert(
                    "serial".into(),
                    make::read(serde_json::json!({
                        "string": format!("{node}/{}", device.name),
                    })),
                );
                if !random.chance(6) {
                    continue;
                }
                match random.below(4) {
                    0 => device.attributes = None,
                    1 => device.capacity = None,
                    2 => device.consumes_counters = None,
                    _ => device.attributes.get_or_insert_default().extend([(
                        "numa".to_owned(),
                        make::read(serde_json::json!({"int": random.below(3)})),
                    )]),
                }
            }
            problem.resource_slices.push(copy);
        }
        for device in &used {
            if !random.chance(10) {
                let mut device = device.clone();
                device.pool += &node;
                problem.allocated_devices.push(device);
            }
        }
    }
    problem.nodes = (1..=NODES)
        .map(|n| make::read(serde_json::json!({"metadata": {"name": format!("n{n}"), "labels": {"zone": if n % 3 == 0 { "b" } else { "a" }}}})))
        .collect();
    problem
}

#[test]
fn remembered_answers_are_those_of_a_search() {
    let mut known = 0;
    for seed in first_seed()..first_seed() + PROBLEMS / 4 {
        let problem = on_many_nodes(seed);
        let (cluster, claims) = (problem.cluster(), problem.claims(&SelectorCache::new()));
        let mut remembering = Allocator::new();
        let mut plain = Allocator::new().without_memory();
        for node in &problem.nodes() {
            let answer = |allocator: &mut Allocator| {
                let outcome = allocator.allocate(&cluster, node, &claims, &Limits::default());
                let found = match outcome {
                    Outcome::Allocated(found) => {
                        let results = found.results(&claims, &mut || "share".to_owned());
                        serde_json::to_string(&results.unwrap()).unwrap()
                    }
                    other => format!("{other:?}"),
                };
                (found, allocator.steps())
            };
            let expected = answer(&mut plain);
            let shown = || serde_json::to_string(&problem).unwrap();
            assert_eq!(
                answer(&mut remembering),
                expected,
                "{} {}",
                node.name(),
                shown()
            );
            assert_eq!(
                answer(&mut remembering),
                expected,
                "{} {}",
                node.name(),
                shown()
            );
        }
        known += remembering.remembered();
    }
    // Half of the questions are repetitions; errors and shared devices are not remembered.
    assert!(known > PROBLEMS, "{known}");
}

#[test]
fn what_was_allocated_is_not_allocated_again() {
    for seed in first_seed()..first_seed() + PROBLEMS / 10 {
        let problem = generate::small(seed);
        let mut cluster = problem.cluster();
        let (first, results) =
            make::solve_in(&cluster, &problem, Policy::FirstFit, &Limits::default());
        if results.is_empty() {
            continue;
        }
        let empty = cluster.clone();
        for (index, result) in results.iter().enumerate() {
            let holder = Holder {
                uid: format!("own{index}").into(),
                ..Holder::default()
            };
            cluster.claim_allocated(&holder, result);
        }
        let (_, again) = make::solve_in(&cluster, &problem, Policy::FirstFit, &Limits::default());
        let devices = |results: &[AllocationResult]| -> Vec<_> {
            let all = results
                .iter()
                .flat_map(|r| r.devices.iter().flat_map(|d| d.results.iter().flatten()));
            let own = all.filter(|r| r.share_id.is_none() && r.admin_access != Some(true));
            own.map(|r| (r.pool.clone(), r.device.clone())).collect()
        };
        let shown = || serde_json::to_string(&problem).unwrap();
        assert!(
            devices(&again)
                .iter()
                .all(|d| !devices(&results).contains(d)),
            "{}",
            shown()
        );
        for index in 0..results.len() {
            cluster.claim_released(&format!("own{index}"));
        }
        let (released, _) =
            make::solve_in(&cluster, &problem, Policy::FirstFit, &Limits::default());
        assert_eq!(released, first, "{}", shown());
        let (overlay, _) = make::solve_in(&empty, &problem, Policy::FirstFit, &Limits::default());
        assert_eq!(overlay, first, "{}", shown());
    }
}
