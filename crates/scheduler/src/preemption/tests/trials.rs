//! Victims of random clusters, compared with those that are found by copying the node for every question.

use std::time::Duration;

use allot_allocator::{Cluster, Features};
use proptest::prelude::*;
use rustc_hash::FxHashMap;

use super::*;
use crate::cache::Cache;
use crate::config::Profile;
use crate::device_allocator::DeviceAllocator;
use crate::device_allocator::classes::Classes;
use crate::dra::DraContext;
use crate::dra::claims::Claims;
use crate::sources::Sources;
use crate::status::Rejection;

const NODES: [&str; 3] = ["a", "b", "c"];

fn sized(name: &str, app: u8, priority: i32, cpus: u8, more: Value) -> Arc<PodInfo> {
    let requests = json!({"cpu": cpus.to_string()});
    let mut spec = json!({
        "containers": [{"name": "c", "resources": {"requests": requests}}],
        "priority": priority,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let value = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": app.to_string()}},
        "spec": spec,
    });
    Arc::new(PodInfo::new(Arc::new(
        serde_json::from_value(value).expect("fixture"),
    )))
}

/// What a pod wants of pods of the first application.
fn wish(kind: u8) -> Value {
    let selector = json!({"matchLabels": {"app": "0"}});
    let term = |key| json!([{"topologyKey": key, "labelSelector": selector}]);
    let required = |key| json!({"requiredDuringSchedulingIgnoredDuringExecution": term(key)});
    let spread = |key| {
        json!({"topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }]})
    };
    match kind {
        0 => spread("host"),
        1 => spread("zone"),
        2 => json!({"affinity": {"podAntiAffinity": required("host")}}),
        3 => json!({"affinity": {"podAntiAffinity": required("zone")}}),
        4 => json!({"affinity": {"podAffinity": required("zone")}}),
        _ => json!({}),
    }
}

fn budget(allowed: i32) -> Budget {
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "b", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"app": "0"}}},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2},
    }))
    .expect("fixture");
    Budget::new(&budget)
}

/// The victims on a node, found without anything that is kept from one question to the next.
fn straightforward(
    attempt: &Attempt<'_>,
    at: usize,
    rules: &Rules<'_>,
) -> Result<(Vec<String>, usize), Vec<Reason>> {
    let node = &attempt.snapshot.nodes[at];
    let nominated = (rules.nominated)(&node.name);
    let fits_without = |removed: &[Arc<PodInfo>]| -> Result<(), Rejection> {
        let mut trial = Trial::new(attempt, node, &nominated);
        removed.iter().for_each(|pod| trial.remove(pod));
        trial.filter()
    };
    let pods = node.pods.iter();
    let mut lower: Vec<_> = pods
        .filter(|p| p.priority() < attempt.pod.priority())
        .cloned()
        .collect();
    if lower.is_empty() {
        return Err(vec![NO_VICTIMS.into()]);
    }
    fits_without(&lower).map_err(|r| r.reasons)?;
    lower.sort_by(|a, b| compare_importance(a, b));
    let (violating, harmless) = split_by_pdb_violation(lower.clone(), rules.budgets);
    let breaks = |pod: &Arc<PodInfo>| violating.iter().any(|v| v.uid == pod.uid);
    let mut removed = lower.clone();
    for pod in violating.iter().chain(&harmless) {
        let without: Vec<_> = removed
            .iter()
            .filter(|p| p.uid != pod.uid)
            .cloned()
            .collect();
        if fits_without(&without).is_ok() {
            removed = without;
        }
    }
    removed.sort_by(|a, b| compare_importance(a, b));
    let violations = removed.iter().filter(|p| breaks(p)).count();
    Ok((names(&removed), violations))
}

fn names(pods: &[Arc<PodInfo>]) -> Vec<String> {
    let mut names: Vec<_> = pods.iter().map(|p| p.uid.to_string()).collect();
    names.sort_unstable();
    names
}

proptest! {
    #[test]
    fn victims_are_those_of_single_questions(
        pods in proptest::collection::vec((0usize..3, 0u8..2, 0i32..8, 1u8..3, 0u8..12), 0..16),
        own in (0u8..2, 1u8..5, 0u8..8),
        expected in proptest::collection::vec((0usize..3, 0u8..2, 1u8..3), 0..3),
        allowed in proptest::option::of(0i32..2),
        start in 0usize..3,
    ) {
        let mut cache = Cache::default();
        for (at, name) in NODES.into_iter().enumerate() {
            let node = json!({
                "metadata": {"name": name, "labels": {"host": name, "zone": (at / 2).to_string()}},
                "status": {"allocatable": {"cpu": "6", "pods": "10"}},
            });
            cache.set_node(Arc::new(serde_json::from_value(node).expect("fixture")));
        }
        for (i, (node, app, priority, cpus, kind)) in pods.into_iter().enumerate() {
            let pod = sized(&format!("p{i}"), app, priority, cpus, wish(kind));
            cache.assume(pod, &NODES[node].into());
        }
        let (claims, classes) = (Claims::new(Cluster::new(Features::ALL)), Classes::default());
        let (allocator, none) = (DeviceAllocator::new(Features::ALL, Sources::replayable()), FxHashMap::default());
        let profile = Profile::default();
        let dra = DraContext {
            claims: &claims,
            pods: &none,
            classes: &classes,
            allocator: &allocator,
            binding_timeout: Duration::ZERO,
            binding_conditions: false,
            extended_resources: false,
            node_allocatable: None,
            prioritized_list: false,
            claim_plugin: None,
            skip_alternatives: 0,
            now: Timestamp::UNIX_EPOCH,
        };
        let (app, cpus, kind) = own;
        let pod = sized("own", app, 5, cpus, wish(kind));
        let attempt = Attempt::prepare(&pod, cache.snapshot(), &profile, dra, None, &Sources::System).expect("prepared");
        let nominated = |node: &str| {
            let all = expected.iter().enumerate().filter(|(_, (at, ..))| NODES[*at] == node);
            all.map(|(i, (_, app, cpus))| sized(&format!("n{i}"), *app, 9, *cpus, json!({})))
                .collect::<Vec<_>>()
        };
        let budget = allowed.map(budget);
        let budgets: Vec<&Budget> = budget.iter().collect();
        let rules = Rules {
            budgets: &budgets,
            nominated: &nominated,
            spares: &|_| false,
        };
        for at in 0..NODES.len() {
            let found = Candidate::new(&attempt, at, &rules).select_victims(&attempt, &budgets);
            let found = found.map(|v| (names(&v.pods), v.violations));
            prop_assert_eq!(found, straightforward(&attempt, at, &rules));
        }
        // All nodes at once are judged as one after the other.
        let Err(unplaced) = attempt.place(start, &nominated) else {
            return Ok(());
        };
        let unresolvable = |at: &usize| {
            unplaced.nodes[*at].as_ref().is_none_or(|r| r.code != Code::Unschedulable)
        };
        let order = (0..3).map(|i| (start + i) % 3).filter(|at| !unresolvable(at));
        let found = order.map(|at| Candidate::new(&attempt, at, &rules).select_victims(&attempt, &budgets));
        let best = found.flatten().min_by(compare_victims).map(|v| (v.node, names(&v.pods)));
        let outcome = match preempt(&attempt, &unplaced, start, &rules) {
            Outcome::Preempt(victims) => Some((victims.node, names(&victims.pods))),
            _ => None,
        };
        prop_assert_eq!(outcome, best);
    }
}
