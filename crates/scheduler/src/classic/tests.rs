//! Attempts with classic claims, without an API: observations in, decisions out.

use std::time::Duration;

use allot_model::classic::objects::*;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::actions::{Action as CoreAction, BindJob};
use crate::core::{BindError, Core, Input as CoreInput, Time};
use crate::{Config, Metrics};

const SERVED: Served = Served {
    version: "v1alpha2",
    structured: true,
    deterministic_names: false,
    alone: true,
};

struct World {
    core: Core,
    now: u64,
    version: u64,
}

fn merge(target: &mut Value, patch: &Value) {
    match patch {
        Value::Object(map) => map
            .iter()
            .for_each(|(key, value)| merge(&mut target[key], value)),
        other => *target = other.clone(),
    }
}

impl World {
    fn new(served: Served) -> Self {
        Self {
            core: Core::new(Config::default(), Metrics::new()).with_classic(Some(served)),
            now: 0,
            version: 100,
        }
    }

    /// Two nodes, a class `k` that everything can be allocated for.
    fn usual() -> Self {
        let mut world = Self::new(SERVED);
        world.node("n0");
        world.node("n1");
        world.class(json!({"metadata": {"name": "k"}, "driverName": "d"}));
        world
    }

    fn time(&mut self) -> Time {
        self.now += 1;
        Time {
            now: Duration::from_secs(self.now * 60),
            wall: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    fn handle(&mut self, input: CoreInput) {
        let time = self.time();
        self.core.handle(input, time);
    }

    fn classic(&mut self, input: Input) {
        self.handle(CoreInput::Classic(Box::new(input)));
    }

    /// Reads an object that the server would show now.
    fn object<T: DeserializeOwned>(&mut self, mut value: Value) -> Box<T> {
        self.version += 1;
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        Box::new(serde_json::from_value(value).expect("an object"))
    }

    fn node(&mut self, name: &str) {
        let amounts = json!({"cpu": "4", "memory": "4Gi", "pods": "10"});
        let node: Box<Node> = self.object(json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": amounts},
        }));
        self.handle(CoreInput::Node(Observed::Applied(node)));
    }

    fn class(&mut self, class: Value) {
        let class = self.object::<ResourceClass>(class);
        self.classic(Input::Class(Observed::Applied(class)));
    }

    /// A claim of class `k` unless said otherwise.
    fn claim(&mut self, name: &str, more: Value) {
        let mut claim = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
            "spec": {"resourceClassName": "k"},
        });
        merge(&mut claim, &more);
        let claim = self.object::<ResourceClaim>(claim);
        self.classic(Input::Claim(Observed::Applied(claim)));
    }

    /// A pod that uses claims, each under its own name.
    fn pod(&mut self, name: &str, claims: &[&str]) {
        let entries: Vec<Value> = claims
            .iter()
            .map(|c| json!({"name": c, "resourceClaimName": c}))
            .collect();
        self.any_pod(name, json!({"resourceClaims": entries}));
    }

    fn any_pod(&mut self, name: &str, more: Value) {
        let mut spec = json!({"containers": [{"name": "c"}]});
        merge(&mut spec, &more);
        let pod: Box<Pod> = self.object(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")}, "spec": spec,
        }));
        self.arrives(*pod);
    }

    fn arrives(&mut self, pod: Pod) {
        let info = std::sync::Arc::new(crate::pod::PodInfo::observed(pod));
        self.handle(CoreInput::Pod(Observed::Applied(Box::new(info))));
    }

    /// What the server shows of the negotiation of a pod.
    fn scheduling(&mut self, pod: &str, spec: &SchedulingSpec, answers: Value) {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": format!("uid-{pod}"), "controller": true});
        let scheduling = self.object::<PodScheduling>(json!({
            "metadata": {"name": pod, "namespace": "ns", "uid": "uid-s", "ownerReferences": [owner]},
            "spec": spec,
            "status": {"resourceClaims": answers},
        }));
        self.classic(Input::Scheduling(Observed::Applied(scheduling)));
    }

    /// Tries all pods that are ready.
    fn run(&mut self) -> Outcome {
        let time = self.time();
        let mut actions = self.core.take_actions();
        // A pod that is not in backoff when it fails is tried again at once when nothing else is ready.
        let pods = self.core.queue_counts().active.max(1);
        for _ in 0..pods {
            if !self.core.schedule_one(time) {
                break;
            }
            actions.extend(self.core.take_actions());
        }
        Outcome(actions)
    }
}

struct Outcome(Vec<CoreAction>);

impl Outcome {
    fn published(&self) -> Option<SchedulingSpec> {
        self.0.iter().find_map(|a| match a {
            CoreAction::Classic(Action::Publish { spec, .. }) => Some(spec.clone()),
            _ => None,
        })
    }

    fn bound(&self) -> Option<&BindJob> {
        self.0.iter().find_map(|a| match a {
            CoreAction::Bind(job) => Some(&**job),
            _ => None,
        })
    }

    fn message(&self) -> &str {
        let found = self.0.iter().find_map(|a| match a {
            CoreAction::Reject(rejected) => Some(rejected.message.as_str()),
            _ => None,
        });
        found.unwrap_or_default()
    }

    fn deallocated(&self) -> Option<(String, Option<SchedulingSpec>)> {
        self.0.iter().find_map(|a| match a {
            CoreAction::Classic(Action::Deallocate { claim, publish, .. }) => {
                Some((claim.metadata.name.clone()?, publish.clone()))
            }
            _ => None,
        })
    }
}

fn spec(selected: &str, potential: &[&str]) -> SchedulingSpec {
    SchedulingSpec {
        selected_node: selected.to_owned(),
        potential_nodes: potential.iter().map(|n| (*n).to_owned()).collect(),
    }
}

fn allocated_on(node: &str, more: Value) -> Value {
    let term =
        json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    let mut status = json!({
        "driverName": "d",
        "allocation": {"availableOnNodes": {"nodeSelectorTerms": [term]}},
    });
    merge(&mut status, &more);
    json!({"status": status})
}

#[test]
fn one_claim_is_negotiated_in_one_round() {
    let mut world = World::usual();
    world.claim("c", json!({}));
    world.pod("p", &["c"]);
    let first = world.run();
    let wanted = first.published().expect("a negotiation");
    assert_eq!(wanted.potential_nodes, ["n0", "n1"]);
    assert!(!wanted.selected_node.is_empty());
    assert_eq!(
        first.message(),
        "0/1 nodes are available: 1 waiting for resource driver."
    );
    // The driver has heard, which changes nothing yet.
    world.scheduling("p", &wanted, json!([{"name": "c"}]));
    assert!(world.run().0.is_empty());
    let node = wanted.selected_node.clone();
    world.claim("c", allocated_on(&node, json!({})));
    let last = world.run();
    let job = last.bound().expect("a binding");
    assert_eq!(*job.node, *node);
    assert_eq!(job.classic.len(), 1, "not reserved by the driver");
}

#[test]
fn a_claim_that_the_driver_reserved_is_not_written_again() {
    let mut world = World::usual();
    let reserved = json!({"reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}]});
    world.claim("c", allocated_on("n1", reserved));
    world.pod("p", &["c"]);
    let outcome = world.run();
    let job = outcome.bound().expect("a binding");
    assert_eq!((&*job.node, job.classic.len()), ("n1", 0));
}

#[test]
fn two_claims_wait_for_both_drivers() {
    let mut world = World::usual();
    world.claim("a", json!({}));
    world.claim("b", json!({}));
    world.pod("p", &["a", "b"]);
    assert_eq!(world.run().published(), Some(spec("", &["n0", "n1"])));
    world.scheduling("p", &spec("", &["n0", "n1"]), json!([{"name": "a"}]));
    assert!(world.run().0.is_empty());
    let answers = json!([{"name": "a"}, {"name": "b", "unsuitableNodes": ["n0"]}]);
    world.scheduling("p", &spec("", &["n0", "n1"]), answers);
    assert_eq!(world.run().published(), Some(spec("n1", &["n0", "n1"])));
}

#[test]
fn a_refused_node_stays_in_the_negotiation() {
    let mut world = World::usual();
    world.claim("c", json!({}));
    world.scheduling(
        "p",
        &spec("n0", &["n0"]),
        json!([{"name": "c", "unsuitableNodes": ["n0"]}]),
    );
    world.pod("p", &["c"]);
    assert_eq!(world.run().published(), Some(spec("n1", &["n0", "n1"])));
}

#[test]
fn another_node_is_selected_when_the_driver_refuses() {
    let mut world = World::usual();
    world.claim("c", json!({}));
    world.pod("p", &["c"]);
    let wanted = world.run().published().expect("a negotiation");
    let refused = wanted.selected_node.clone();
    world.scheduling(
        "p",
        &wanted,
        json!([{"name": "c", "unsuitableNodes": [refused]}]),
    );
    let next = world.run().published().expect("another node");
    assert_ne!(next.selected_node, refused);
    world.scheduling(
        "p",
        &next,
        json!([{"name": "c", "unsuitableNodes": ["n0", "n1"]}]),
    );
    let last = world.run();
    assert_eq!(last.published(), None);
    assert!(
        last.message().starts_with(
            "0/2 nodes are available: 2 resourceclaim cannot be allocated for the node (unsuitable)."
        ),
        "{}",
        last.message()
    );
    // A node that becomes free again is tried.
    world.scheduling(
        "p",
        &next,
        json!([{"name": "c", "unsuitableNodes": [next.selected_node]}]),
    );
    assert_eq!(
        world.run().published().map(|s| s.selected_node),
        Some(refused)
    );
}

#[test]
fn a_node_that_one_driver_refuses_is_not_selected_for_the_others() {
    let mut world = World::usual();
    world.claim("a", json!({}));
    world.claim("b", json!({}));
    let told = spec("n1", &["n0", "n1"]);
    // `a` could be allocated; `b` lost its place on the selected node and has none elsewhere.
    world.scheduling(
        "p",
        &told,
        json!([{"name": "a"}, {"name": "b", "unsuitableNodes": ["n0", "n1"]}]),
    );
    world.pod("p", &["a", "b"]);
    assert_eq!(world.run().published(), Some(spec("", &["n0", "n1"])));
    // Nothing more to say until a driver thinks otherwise.
    let answers = json!([{"name": "a"}, {"name": "b", "unsuitableNodes": ["n0"]}]);
    world.scheduling("p", &spec("", &["n0", "n1"]), answers);
    assert_eq!(world.run().published(), Some(told));
}

/// However the claims are ordered.
#[test]
fn nothing_is_deallocated_for_a_node_that_does_not_fit_anyway() {
    for claims in [["a", "b"], ["b", "a"]] {
        let mut world = World::usual();
        world.claim("a", allocated_on("n1", json!({})));
        world.claim("b", json!({}));
        let answers = json!([{"name": "b", "unsuitableNodes": ["n0", "n1"]}]);
        world.scheduling("p", &spec("", &["n0", "n1"]), answers);
        world.pod("p", &claims);
        let outcome = world.run();
        assert_eq!(outcome.deallocated(), None, "{}", outcome.message());
        assert!(
            outcome.message().contains("2 resourceclaim cannot be"),
            "{}",
            outcome.message()
        );
    }
}

/// A pod with one claim is rejected with this reason.
fn check_rejection(reason: &str, claim: Value, class: Value) {
    let mut world = World::usual();
    if !class.is_null() {
        world.class(class);
    }
    world.claim("c", claim);
    world.pod("p", &["c"]);
    let outcome = world.run();
    assert!(
        outcome.message().contains(reason),
        "{reason}: {}",
        outcome.message()
    );
    assert!(outcome.bound().is_none() && outcome.published().is_none());
}

#[test]
fn pods_are_rejected_for_a_reason() {
    let other = json!([{"resource": "pods", "name": "o", "uid": "uid-o"}]);
    check_rejection(
        "resourceclaim must be reallocated",
        allocated_on("n0", json!({"deallocationRequested": true})),
        Value::Null,
    );
    check_rejection(
        "resourceclaim in use",
        allocated_on("n0", json!({"reservedFor": other})),
        Value::Null,
    );
    check_rejection(
        "resource class missing does not exist",
        json!({"spec": {"resourceClassName": "missing"}}),
        Value::Null,
    );
    check_rejection(
        "unallocated immediate resourceclaim",
        json!({"spec": {"allocationMode": "Immediate"}}),
        Value::Null,
    );
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n7"]}]});
    check_rejection(
        "2 excluded by resource class node filter",
        json!({}),
        json!({"metadata": {"name": "k"}, "driverName": "d", "suitableNodes": {"nodeSelectorTerms": [term]}}),
    );
}

#[test]
fn a_pod_is_held_back_until_its_claim_exists_and_is_its_own() {
    let mut world = World::usual();
    let entry = json!([{"name": "r", "resourceClaimTemplateName": "t"}]);
    world.any_pod("p", json!({"resourceClaims": entry}));
    assert!(world.run().0.is_empty());
    let mut early = World::new(Served {
        deterministic_names: true,
        ..SERVED
    });
    early.node("n0");
    early.class(json!({"metadata": {"name": "k"}, "driverName": "d"}));
    early.any_pod("p", json!({"resourceClaims": entry}));
    early.claim("p-r", json!({}));
    assert!(early.run().0.is_empty(), "the claim is somebody else's");
    let owner =
        json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": true});
    early.claim("p-r", json!({"metadata": {"ownerReferences": [owner]}}));
    assert_eq!(early.run().published(), Some(spec("n0", &["n0"])));
}

#[test]
fn an_exclusive_claim_is_promised_once() {
    let mut world = World::usual();
    world.claim("c", allocated_on("n0", json!({})));
    world.pod("p", &["c"]);
    world.pod("q", &["c"]);
    let outcome = world.run();
    let bindings = outcome
        .0
        .iter()
        .filter(|a| matches!(a, CoreAction::Bind(_)));
    assert_eq!(bindings.count(), 1);
    assert!(outcome.message().contains("resourceclaim in use"));
    // When the first binding fails, the other one gets it.
    let error = BindError {
        message: "no".to_owned(),
    };
    world.handle(CoreInput::Bound {
        pod: "uid-p".into(),
        outcome: Err(error),
    });
    let next = world.run();
    let bound = next.bound().expect("a binding");
    assert!(*bound.pod.uid == *"uid-q" || *bound.pod.uid == *"uid-p");
}

#[test]
fn a_shareable_claim_has_as_many_users_as_the_api_allows() {
    let mut world = World::usual();
    let shareable = json!({"allocation": {"shareable": true}});
    let users = |n: usize| -> Vec<Value> {
        (0..n)
            .map(|i| json!({"resource": "pods", "name": "o", "uid": format!("uid-o{i}")}))
            .collect()
    };
    let mut status = shareable.clone();
    status["reservedFor"] = json!(users(31));
    world.claim("c", allocated_on("n0", status.clone()));
    world.pod("p", &["c"]);
    world.pod("q", &["c"]);
    let outcome = world.run();
    assert!(outcome.bound().is_some());
    assert!(outcome.message().contains("resourceclaim in use"));
}

#[test]
fn a_claim_in_the_way_is_deallocated_after_the_node_was_given_up() {
    let mut world = World::usual();
    world.claim("a", allocated_on("n0", json!({})));
    world.claim("b", allocated_on("n1", json!({})));
    world.scheduling("p", &spec("n1", &["n0", "n1"]), json!([]));
    world.pod("p", &["a", "b"]);
    let outcome = world.run();
    assert!(
        outcome
            .message()
            .contains("deallocation of ResourceClaim completed")
    );
    let (claim, publish) = outcome.deallocated().expect("a deallocation");
    assert!(claim == "a" || claim == "b");
    assert_eq!(publish, Some(spec("", &["n0", "n1"])));
}

#[test]
fn nothing_counts_on_a_claim_that_is_being_deallocated() {
    let mut world = World::usual();
    world.claim("a", allocated_on("n0", json!({})));
    world.claim("b", allocated_on("n1", json!({})));
    world.pod("p", &["a", "b"]);
    let (claim, _) = world.run().deallocated().expect("a deallocation");
    // The other claim moves to the same node before the write is done.
    let (node, other) = if claim == "a" {
        ("n0", "b")
    } else {
        ("n1", "a")
    };
    world.claim(other, allocated_on(node, json!({})));
    let waits = world.run();
    assert!(waits.bound().is_none());
    assert!(
        waits
            .message()
            .contains("resourceclaim must be reallocated")
    );
    // It was not written: the claim is as it was.
    world.classic(Input::Released {
        key: Key::new("ns", &claim),
        uid: format!("uid-{claim}").into(),
        pod: None,
        claim: None,
    });
    assert_eq!(world.run().bound().map(|b| &*b.node), Some(node));
}

#[test]
fn claims_of_others_and_immediate_ones_stay() {
    for status in [
        json!({"status": {"reservedFor": [{"resource": "pods", "name": "o", "uid": "uid-o"}], "allocation": {"shareable": true}}}),
        json!({"spec": {"allocationMode": "Immediate"}}),
    ] {
        let mut world = World::usual();
        for (name, node) in [("a", "n0"), ("b", "n1")] {
            let mut claim = allocated_on(node, json!({}));
            merge(&mut claim, &status);
            world.claim(name, claim);
        }
        world.pod("p", &["a", "b"]);
        let outcome = world.run();
        assert!(outcome.deallocated().is_none());
        assert!(outcome.message().contains("still not schedulable"));
    }
}

#[test]
fn nothing_counts_on_a_reservation_that_is_being_taken_back() {
    let mut world = World::usual();
    world.claim("a", allocated_on("n0", json!({})));
    world.pod("p", &["a"]);
    assert!(world.run().bound().is_some());
    // The reservation was written, the binding not.
    let reserved = json!([{"resource": "pods", "name": "p", "uid": "uid-p"}]);
    world.claim("a", allocated_on("n0", json!({"reservedFor": reserved})));
    world.handle(CoreInput::Bound {
        pod: "uid-p".into(),
        outcome: Err(BindError {
            message: "lost".to_owned(),
        }),
    });
    assert!(world.core.take_actions().iter().any(|action| matches!(
        action,
        CoreAction::Classic(Action::Unreserve { claim, .. }) if claim.metadata.name.as_deref() == Some("a")
    )));
    let waits = world.run();
    assert!(waits.bound().is_none());
    assert!(
        waits
            .message()
            .contains("resourceclaim must be reallocated"),
        "{}",
        waits.message()
    );
    world.classic(Input::Released {
        key: Key::new("ns", "a"),
        uid: "uid-a".into(),
        pod: Some("uid-p".into()),
        claim: None,
    });
    assert!(world.run().bound().is_some());
}

#[test]
fn of_many_nodes_a_choice_is_negotiated_about() {
    let mut world = World::new(SERVED);
    (0..200).for_each(|n| world.node(&format!("n{n:03}")));
    world.class(json!({"metadata": {"name": "k"}, "driverName": "d"}));
    world.claim("c", json!({}));
    world.pod("p", &["c"]);
    let wanted = world.run().published().expect("a negotiation");
    // Filtering ends at 100 nodes unless fewer are found.
    assert!(wanted.potential_nodes.len() >= 100 && wanted.potential_nodes.len() <= 128);
    assert!(wanted.potential_nodes.contains(&wanted.selected_node));
    assert!(wanted.potential_nodes.is_sorted());
}

#[test]
fn a_negotiation_of_another_pod_is_left_alone() {
    let mut world = World::usual();
    world.claim("c", json!({}));
    world.scheduling("p", &spec("n0", &["n0"]), json!([]));
    let pod: Box<Pod> = world.object(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-new"},
        "spec": {"containers": [], "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]},
    }));
    world.arrives(*pod);
    let outcome = world.run();
    assert_eq!(outcome.published(), None);
    assert!(
        outcome.message().contains("is not owned by Pod ns/p"),
        "{}",
        outcome.message()
    );
}

#[test]
fn a_lost_negotiation_begins_anew() {
    let mut world = World::usual();
    world.claim("c", json!({}));
    world.pod("p", &["c"]);
    let wanted = world.run().published().expect("a negotiation");
    world.scheduling("p", &wanted, json!([]));
    let gone = world.object::<PodScheduling>(
        json!({"metadata": {"name": "p", "namespace": "ns", "uid": "uid-s"}}),
    );
    world.classic(Input::Scheduling(Observed::Deleted(gone)));
    let again = world.run().published().expect("another negotiation");
    assert_eq!(again.potential_nodes, wanted.potential_nodes);
}

/// Structured: a slice of one instance per node and a class of structured parameters.
fn structured() -> World {
    let mut world = World::usual();
    world
        .class(json!({"metadata": {"name": "k"}, "driverName": "d", "structuredParameters": true}));
    for node in ["n0", "n1"] {
        let attributes = json!([{"name": "node", "string": node}]);
        let slice = world.object::<ResourceSlice>(json!({
            "metadata": {"name": format!("slice-{node}")}, "nodeName": node, "driverName": "d",
            "namedResources": {"instances": [{"name": "i", "attributes": attributes}]},
        }));
        world.classic(Input::Slice(Observed::Applied(slice)));
    }
    world
}

#[test]
fn structured_claims_are_allocated_at_once_and_never_twice() {
    let mut world = structured();
    for name in ["a", "b", "c"] {
        world.claim(name, json!({}));
        world.pod(&format!("p{name}"), &[name]);
    }
    let outcome = world.run();
    let mut nodes: Vec<&str> = Vec::new();
    for action in &outcome.0 {
        let CoreAction::Bind(job) = action else {
            continue;
        };
        let (driver, allocation) = job.classic[0].allocation.as_ref().expect("an allocation");
        let data = allocation.resource_handles[0]
            .structured_data
            .as_ref()
            .expect("data");
        assert_eq!((driver.as_str(), &*data.node_name), ("d", &*job.node));
        assert_eq!(
            data.results[0]
                .named_resources
                .as_ref()
                .expect("a name")
                .name,
            "i"
        );
        assert!(allocation.shareable);
        nodes.push(&job.node);
    }
    nodes.sort_unstable();
    assert_eq!(nodes, ["n0", "n1"]);
    assert!(
        outcome
            .message()
            .contains("2 resourceclaim cannot be allocated for the node (unsuitable)")
    );
}

/// A structured claim with parameters is allocated on that node, or rejected with that reason.
fn check_parameters(reference: Value, parameters: Value, expected: Result<&str, &str>) {
    let mut world = structured();
    if !parameters.is_null() {
        let parameters = world.object::<ClaimParameters>(parameters);
        world.classic(Input::ClaimParameters(Observed::Applied(parameters)));
    }
    world.claim("c", json!({"spec": {"parametersRef": reference}}));
    world.pod("p", &["c"]);
    let outcome = world.run();
    match expected {
        Ok(node) => assert_eq!(
            outcome.bound().map(|b| &*b.node),
            Some(node),
            "{}",
            outcome.message()
        ),
        Err(reason) => assert!(outcome.message().contains(reason), "{}", outcome.message()),
    }
}

#[test]
fn parameters_are_looked_up() {
    let direct =
        json!({"apiGroup": "resource.k8s.io", "kind": "ResourceClaimParameters", "name": "x"});
    let vendor = json!({"apiGroup": "cats.example.com", "kind": "Cat", "name": "tom"});
    let wants = |selector: &str, from: Value| {
        json!({
            "metadata": {"name": "x", "namespace": "ns"}, "generatedFrom": from,
            "driverRequests": [{"driverName": "d", "requests": [{"namedResources": {"selector": selector}}]}],
        })
    };
    let n1 = r#"attributes.string["node"] == "n1""#;
    check_parameters(direct.clone(), wants(n1, Value::Null), Ok("n1"));
    check_parameters(
        direct.clone(),
        Value::Null,
        Err("claim parameters ns/x not found"),
    );
    check_parameters(vendor.clone(), wants(n1, vendor.clone()), Ok("n1"));
    let other = json!({"apiGroup": "cats.example.com", "kind": "Cat", "name": "jerry"});
    check_parameters(
        vendor,
        wants(n1, other),
        Err("generated claim parameters for Cat.cats.example.com ns/tom not found"),
    );
    check_parameters(
        direct,
        wants(r#"attributes.string["none"] == "x""#, Value::Null),
        Err("checking structured parameters failed: no such key: none"),
    );
}

#[test]
fn filters_of_the_class_count_too() {
    let mut world = structured();
    let reference = json!({"apiGroup": "resource.k8s.io", "kind": "ResourceClassParameters", "name": "x", "namespace": "ns"});
    world.class(json!({"metadata": {"name": "k"}, "driverName": "d", "structuredParameters": true, "parametersRef": reference}));
    world.claim("c", json!({}));
    world.pod("p", &["c"]);
    assert!(
        world
            .run()
            .message()
            .contains("class parameters ns/x not found")
    );
    let parameters = world.object::<ClassParameters>(json!({
        "metadata": {"name": "x", "namespace": "ns"},
        "vendorParameters": [{"driverName": "d", "parameters": {"a": 1}}],
        "filters": [{"driverName": "d", "namedResources": {"selector": r#"attributes.string["node"] == "n1""#}}],
    }));
    world.classic(Input::ClassParameters(Observed::Applied(parameters)));
    let outcome = world.run();
    let job = outcome.bound().expect("a binding");
    let allocation = &job.classic[0].allocation.as_ref().expect("an allocation").1;
    let data = allocation.resource_handles[0]
        .structured_data
        .as_ref()
        .expect("data");
    assert_eq!(
        (&*job.node, &data.vendor_class_parameters),
        ("n1", &json!({"a": 1}))
    );
}

#[test]
fn an_instance_is_free_again_when_its_claim_is_deallocated() {
    let mut world = structured();
    world.claim("a", json!({}));
    world.claim("b", json!({}));
    world.claim("c", json!({}));
    world.pod("p", &["a"]);
    world.pod("q", &["b"]);
    let outcome = world.run();
    let jobs: Vec<&BindJob> = outcome
        .0
        .iter()
        .filter_map(|a| match a {
            CoreAction::Bind(job) => Some(&**job),
            _ => None,
        })
        .collect();
    let task = &jobs[0].classic[0];
    let name = task.key.name.to_string();
    let status =
        json!({"driverName": "d", "allocation": *task.allocation.as_ref().expect("one").1});
    world.claim(
        &name,
        json!({"status": status, "metadata": {"finalizers": ["dra.k8s.io/delete-protection"]}}),
    );
    world.handle(CoreInput::Bound {
        pod: jobs[0].pod.uid.clone(),
        outcome: Ok(()),
    });
    world.pod("r", &["c"]);
    assert!(world.run().bound().is_none());
    world.claim(
        &name,
        json!({"metadata": {"finalizers": ["dra.k8s.io/delete-protection"]}}),
    );
    assert_eq!(
        world.run().bound().map(|b| b.pod.key.name.to_string()),
        Some("r".to_owned())
    );
}
