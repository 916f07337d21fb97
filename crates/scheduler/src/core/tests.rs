//! Attempts with claims, without an API: observations in, decisions out.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::actions::BindJob;

/// Two nodes `n0` and `n1` with devices `d0` and `d1` each, a class `c` of all devices.
struct World {
    core: Core,
    now: u64,
    version: u64,
}

impl World {
    fn new(gates: &str) -> Self {
        let mut config = Config::default();
        config.features.set(gates).expect("gates");
        let mut world = Self {
            core: Core::new(config, Metrics::new()),
            now: 0,
            version: 100,
        };
        let class = json!({"metadata": {"name": "c"}, "spec": {}});
        let class = world.object(class);
        world.handle(Input::Class(Observed::Applied(class)));
        for node in ["n0", "n1"] {
            world.node(node, json!({}));
            let slice = world.object(json!({
                "metadata": {"name": node},
                "spec": {
                    "driver": "d", "nodeName": node, "devices": [{"name": "d0"}, {"name": "d1"}],
                    "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                },
            }));
            world.handle(Input::Slice(Observed::Applied(slice)));
        }
        world
    }

    fn time(&mut self) -> Time {
        self.now += 1;
        Time {
            now: Duration::from_secs(self.now * 60),
            wall: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    fn handle(&mut self, input: Input) {
        let time = self.time();
        self.core.handle(input, time);
    }

    /// Reads an object that the server would show now.
    fn object<T: DeserializeOwned>(&mut self, mut value: Value) -> Box<T> {
        self.version += 1;
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        Box::new(serde_json::from_value(value).expect("an object"))
    }

    fn node(&mut self, name: &str, spec: Value) {
        let amounts = json!({"cpu": "4", "memory": "4Gi", "pods": "10"});
        let node: Box<Node> = self.object(json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": spec,
            "status": {"allocatable": amounts},
        }));
        self.handle(Input::Node(Observed::Applied(node)));
    }

    fn claim(&mut self, name: &str, status: Value) {
        let request = json!({"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}});
        let claim = self.object(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
            "spec": {"devices": {"requests": [request]}},
            "status": status,
        }));
        self.handle(Input::Claim(Observed::Applied(claim)));
    }

    /// A pod that uses claims.
    fn pod(&mut self, name: &str, claims: &[&str]) {
        let entries: Vec<Value> = claims
            .iter()
            .map(|c| json!({"name": c, "resourceClaimName": c}))
            .collect();
        let pod: Box<Pod> = self.object(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
            "spec": {"containers": [{"name": "c"}], "resourceClaims": entries},
        }));
        let info = Arc::new(PodInfo::observed(*pod));
        self.handle(Input::Pod(Observed::Applied(Box::new(info))));
    }

    /// Tries all pods that are ready.
    fn run(&mut self) -> Outcome {
        let time = self.time();
        let mut actions = self.core.take_actions();
        // A pod that is not in backoff when it fails is tried again at once when nothing else is ready.
        for _ in 0..self.core.queue_counts().active {
            if !self.core.schedule_one(time) {
                break;
            }
            actions.extend(self.core.take_actions());
        }
        Outcome(actions)
    }
}

struct Outcome(Vec<Action>);

impl Outcome {
    fn bound(&self) -> Option<&BindJob> {
        self.0.iter().find_map(|a| match a {
            Action::Bind(job) => Some(&**job),
            _ => None,
        })
    }

    fn node(&self) -> Option<&str> {
        self.bound().map(|job| &*job.node)
    }

    fn message(&self) -> &str {
        let found = self.0.iter().find_map(|a| match a {
            Action::Reject(rejected) => Some(rejected.message.as_str()),
            _ => None,
        });
        found.unwrap_or_default()
    }

    fn deallocated(&self) -> Option<&ResourceClaim> {
        self.0.iter().find_map(|a| match a {
            Action::Deallocate(claim) => Some(&**claim),
            _ => None,
        })
    }
}

/// The status of a claim that has a device of a node and is reserved for pods.
fn allocated(node: &str, pods: &[&str]) -> Value {
    let result = json!({"request": "r", "driver": "d", "pool": node, "device": "d0"});
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let selector = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
    let users: Vec<Value> = pods
        .iter()
        .map(|p| json!({"resource": "pods", "name": p, "uid": format!("uid-{p}")}))
        .collect();
    json!({"allocation": {"devices": {"results": [result]}, "nodeSelector": selector}, "reservedFor": users})
}

#[test]
fn a_pod_gets_a_device() {
    let mut world = World::new("");
    world.claim("a", json!({}));
    world.pod("p", &["a"]);
    let outcome = world.run();
    assert_eq!(outcome.bound().expect("bound").claims.len(), 1);
}

#[test]
fn a_claim_is_not_counted_on_while_its_allocation_is_taken_back() {
    let mut world = World::new("");
    // Reserved by an attempt that ended before the binding, on a node that is closed since.
    world.claim("a", allocated("n0", &["p"]));
    world.node("n0", json!({"unschedulable": true}));
    world.pod("p", &["a"]);
    let outcome = world.run();
    assert!(outcome.deallocated().is_some(), "{}", outcome.message());
    // The node opens again before the write is carried out.
    world.node("n0", json!({}));
    let waits = world.run();
    assert_eq!(waits.node(), None);
    assert!(waits.message().contains(crate::dra::MUST_BE_REALLOCATED));
    // It was not carried out: the claim is as it was.
    world.handle(Input::Deallocated {
        key: Key::new("ns", "a"),
        uid: "uid-a".into(),
        claim: None,
    });
    assert_eq!(world.run().node(), Some("n0"));
}

#[test]
fn a_claim_is_allocated_anew_when_its_allocation_is_taken_back() {
    let mut world = World::new("");
    world.claim("a", allocated("n0", &[]));
    world.node("n0", json!({"unschedulable": true}));
    world.pod("p", &["a"]);
    let claim = world.run().deallocated().cloned().expect("a deallocation");
    let mut written = claim.clone();
    world.version += 1;
    written.metadata.resource_version = Some(world.version.to_string());
    written.status = None;
    world.handle(Input::Deallocated {
        key: Key::new("ns", "a"),
        uid: "uid-a".into(),
        claim: Some(Arc::new(written)),
    });
    assert_eq!(world.run().node(), Some("n1"));
}
