//! A model that was kept by deltas is the model of what exists now, whatever happened before.

use std::collections::BTreeMap;

use allot_allocator::{
    Allocator, ClaimShapes, Claims, Cluster, Features, Holder, KnownFit, Limits, Node, Outcome,
    SelectorCache, TaintRule,
};
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceSlice};
use serde_json::{Value, json};

use crate::generate::Random;
use crate::make;

const DRIVER: &str = "gpu.example.com";
const NODES: usize = 3;

/// A slice of one of two pools: `big` gets so many slices that it is only described on use.
fn random_slice(r: &mut Random, key: usize, per_node: bool) -> ResourceSlice {
    let pool = if r.chance(75) { "big" } else { "small" };
    let generation = if r.chance(95) { 1 } else { 2 };
    let count = *r.pick(&[1, 3, 8, 9, 10, 11, 12, 13, 14]);
    let own = json!({"nodeName": format!("n{}", r.below(NODES))});
    let place = match r.below(10) {
        0 => json!({"allNodes": true}),
        1 => json!({"perDeviceNodeSelection": true}),
        2 => json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["a"]}]}]}}),
        _ if per_node => own,
        _ => json!({"allNodes": true}),
    };
    let each = place.get("perDeviceNodeSelection").is_some();
    let mut spec = json!({
        "driver": DRIVER,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
    });
    for (name, value) in place.as_object().unwrap() {
        spec[name] = value.clone();
    }
    if r.chance(5) {
        spec["sharedCounters"] = json!([{"name": "set", "counters": {"slots": {"value": "3"}}}]);
        if each {
            spec["perDeviceNodeSelection"] = Value::Null;
            spec["allNodes"] = json!(true);
        }
    } else {
        let devices = (0..r.below(3)).map(|index| {
            // Now and then the name of a device in another slice.
            let owner = if r.chance(2) { r.below(6) } else { key };
            let mut device = json!({
                "name": format!("d{owner}-{index}"),
                "attributes": {"numa": {"int": r.below(3)}},
            });
            if r.chance(10) {
                device["taints"] = json!([{"key": "k", "effect": "NoSchedule"}]);
            }
            if r.chance(5) {
                device["consumesCounters"] =
                    json!([{"counterSet": "set", "counters": {"slots": {"value": "2"}}}]);
            }
            if each {
                device["nodeName"] = json!(format!("n{}", r.below(NODES)));
            }
            device
        });
        spec["devices"] = Value::Array(devices.collect());
    }
    make::read(json!({"metadata": {"name": format!("s{}", key % 7 * 100 + key)}, "spec": spec}))
}

/// What there is, in the order in which it came.
#[derive(Default)]
struct Known {
    slices: Vec<(String, ResourceSlice)>,
    claims: BTreeMap<String, AllocationResult>,
    rules: Vec<TaintRule>,
}

fn holder(uid: &str) -> Holder {
    Holder {
        uid: uid.into(),
        name: uid.into(),
        ..Holder::default()
    }
}

impl Known {
    fn cluster(&self, features: Features) -> Cluster {
        let mut cluster = Cluster::new(features);
        // Claims first: they may have devices that no slice shows.
        for (uid, allocation) in &self.claims {
            cluster.claim_allocated(&holder(uid), allocation);
        }
        for (key, slice) in &self.slices {
            cluster.apply_as(key, slice);
        }
        cluster.set_taint_rules(self.rules.clone());
        cluster
    }
}

/// A caller that allocates repeatedly with caches.
struct Asking {
    allocator: Allocator,
    shapes: ClaimShapes,
    nodes: Vec<Node>,
    /// What it found last, by claim and node. Two of the claims share a place.
    known: [Vec<Option<KnownFit>>; 2],
    selectors: SelectorCache,
}

impl Asking {
    fn new() -> Self {
        let node = |at: usize| {
            let zone = if at.is_multiple_of(2) { "a" } else { "b" };
            Node::new(&format!("n{at}"), [("zone", zone)])
        };
        Self {
            allocator: Allocator::new(),
            shapes: ClaimShapes::default(),
            nodes: (0..=NODES).map(node).collect(),
            known: [vec![None; NODES + 1], vec![None; NODES + 1]],
            selectors: SelectorCache::new(),
        }
    }

    /// The results of all nodes for a small and for a greedy claim. Cached answers from other times and clusters make
    /// no difference.
    #[track_caller]
    fn answers(&mut self, cluster: &Cluster) -> Vec<String> {
        let classes = vec![make::read(json!({"metadata": {"name": "gpu"}, "spec": {}}))];
        let mut found = Vec::new();
        let all = [(1, "ExactCount"), (5, "ExactCount"), (0, "All")];
        for (at, (count, mode)) in all.into_iter().enumerate() {
            let mut exactly = json!({"deviceClassName": "gpu", "allocationMode": mode});
            if count > 0 {
                exactly["count"] = json!(count);
            }
            let claim = make::read(json!({"metadata": {"name": "c", "uid": "asking"}, "spec": {
                "devices": {"requests": [{"name": "r", "exactly": exactly}]}}}));
            let (features, selectors) = (cluster.features(), &self.selectors);
            let mut claims = Claims::prepare(features, selectors, &classes, [&claim]);
            self.shapes.recognize(&mut claims);
            let limits = Limits::default();
            let known = self.known[at % 2].iter_mut();
            for (node, known) in self.nodes.iter().zip(known) {
                let told = |outcome: Outcome| match outcome {
                    Outcome::Allocated(found) => {
                        let results = found.results(&claims, &mut || "share".into());
                        serde_json::to_string(&results.unwrap()).unwrap()
                    }
                    other => format!("{other:?}"),
                };
                let answer = told(Allocator::new().allocate(cluster, node, &claims, &limits));
                let (allocator, limits) = (&mut self.allocator, &limits);
                for fits in [
                    allocator.probe_known(cluster, node, &claims, limits, known),
                    allocator.probe(cluster, node, &claims, limits),
                ] {
                    let same = match fits {
                        Outcome::Allocated(()) => answer.starts_with('['),
                        other => answer == format!("{other:?}"),
                    };
                    assert!(same, "whether {claim:?} fits on {node:?}: {answer}");
                }
                let again = told(allocator.allocate(cluster, node, &claims, limits));
                assert_eq!(again, answer, "the same allocator");
                found.push(answer);
            }
        }
        found
    }
}

/// A rule that taints the devices of one of the pools, or none.
fn random_rules(r: &mut Random) -> Vec<TaintRule> {
    let rule = TaintRule {
        driver: Some(DRIVER.into()),
        pool: Some((*r.pick(&["big", "small"])).into()),
        device: None,
        taint: make::read(json!({"key": "k", "effect": "NoSchedule"})),
    };
    Vec::from_iter(r.chance(50).then_some(rule))
}

#[test]
fn any_sequence_of_changes_leads_to_the_model_of_what_there_is() {
    let (mut lookups, mut asking) = (0, Asking::new());
    for seed in 0..300 {
        let mut r = Random::new(seed);
        let features = Features {
            partitionable_devices: true,
            ..Features::default()
        };
        let per_node = r.chance(50);
        let mut known = Known::default();
        let mut cluster = Cluster::new(features);
        let mut kept: Option<(Cluster, Vec<String>)> = None;
        for step in 0..60 {
            match r.below(20) {
                0 => {
                    known.rules = random_rules(&mut r);
                    cluster.set_taint_rules(known.rules.clone());
                }
                1..12 => {
                    let number = r.below(14);
                    let (key, slice) =
                        (format!("k{number}"), random_slice(&mut r, number, per_node));
                    cluster.apply_as(&key, &slice);
                    match known.slices.iter_mut().find(|(k, _)| *k == key) {
                        Some((_, old)) => *old = slice,
                        None => known.slices.push((key, slice)),
                    }
                }
                12 | 13 => {
                    let key = format!("k{}", r.below(14));
                    cluster.remove(&key);
                    known.slices.retain(|(k, _)| *k != key);
                }
                14..18 => {
                    let uid = format!("u{}", r.below(4));
                    let result = make::read(json!({"devices": {"results": [{
                        "request": "r", "driver": DRIVER,
                        "pool": r.pick(&["big", "small"]),
                        "device": format!("d{}-{}", r.below(14), r.below(2)),
                    }]}}));
                    cluster.claim_allocated(&holder(&uid), &result);
                    known.claims.insert(uid, result);
                }
                _ => {
                    let uid = format!("u{}", r.below(4));
                    cluster.claim_released(&uid);
                    known.claims.remove(&uid);
                }
            }
            if r.chance(25) {
                let expected = Asking::new().answers(&known.cluster(features));
                assert_eq!(
                    asking.answers(&cluster),
                    expected,
                    "seed {seed}, step {step}"
                );
                lookups += 1;
                if r.chance(30) {
                    kept = Some((cluster.clone(), expected));
                }
            } else if r.chance(5) {
                // A snapshot that was not used yet.
                kept = Some((
                    cluster.clone(),
                    Asking::new().answers(&known.cluster(features)),
                ));
            }
        }
        assert_eq!(
            asking.answers(&cluster),
            Asking::new().answers(&known.cluster(features)),
            "seed {seed}"
        );
        if let Some((snapshot, expected)) = kept {
            assert_eq!(asking.answers(&snapshot), expected, "seed {seed}, snapshot");
        }
    }
    assert!(lookups > 1000, "{lookups}");
}
