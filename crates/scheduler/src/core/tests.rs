//! Attempts with claims, without an API: observations in, decisions out.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

mod declared;
mod double_allocations;
mod explain;
mod failures;
mod gangs;
mod leftovers;
mod nominations;
mod outcome;
mod pre_bind;
mod profiles;
mod quota;
mod tolerations;
mod volumes;

use outcome::Outcome;

/// Two nodes `n0` and `n1` with devices `d0` and `d1` each, a class `c` of all devices.
struct Fixture {
    core: Core,
    now: u64,
    version: u64,
}

impl Fixture {
    fn new(gates: &str) -> Self {
        let mut config = Config::default();
        config.features.set(gates).expect("gates");
        let mut fixture = Self {
            core: Core::new(config, Metrics::new()),
            now: 0,
            version: 100,
        };
        let class = json!({"metadata": {"name": "c"}, "spec": {}});
        let class = fixture.object(class);
        fixture.handle(Input::Class(Observed::Applied(class)));
        for node in ["n0", "n1"] {
            fixture.node(node, json!({}));
            fixture.slice(node, json!([{"name": "d0"}, {"name": "d1"}]));
        }
        fixture
    }

    fn slice(&mut self, node: &str, devices: Value) {
        let slice = self.object(json!({
            "metadata": {"name": node},
            "spec": {
                "driver": "d", "nodeName": node, "devices": devices,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            },
        }));
        self.handle(Input::Slice(Observed::Applied(slice)));
    }

    fn group(&mut self, name: &str, claims: &[&str]) {
        let claims: Vec<Value> = claims
            .iter()
            .map(|c| json!({"name": c, "resourceClaimName": c}))
            .collect();
        let group: Box<DynamicObject> = self.object(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
            "spec": {"resourceClaims": claims},
        }));
        let group = PodGroup::read(&group).expect("a group");
        self.handle(Input::PodGroup(Observed::Applied(Box::new(group))));
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
        self.any_claim(name, request, status);
    }

    fn any_claim(&mut self, name: &str, request: Value, status: Value) {
        let claim = self.object(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
            "spec": {"devices": {"requests": [request]}},
            "status": status,
        }));
        self.handle(Input::Claim(Observed::Applied(claim)));
    }

    /// Gives the devices the name of a resource. With what makes a pod ask for one of them.
    fn extended_resource(&mut self) -> Value {
        let class =
            json!({"metadata": {"name": "x"}, "spec": {"extendedResourceName": "example.com/gpu"}});
        let class = self.object(class);
        self.handle(Input::Class(Observed::Applied(class)));
        let requests = json!({"cpu": "1", "example.com/gpu": "1"});
        json!({"containers": [{"name": "c", "resources": {"requests": requests}}]})
    }

    /// A pod that uses claims.
    fn pod(&mut self, name: &str, claims: &[&str]) {
        self.any_pod(name, claims, json!({}));
    }

    fn any_pod(&mut self, name: &str, claims: &[&str], more: Value) {
        let entries: Vec<Value> = claims
            .iter()
            .map(|c| json!({"name": c, "resourceClaimName": c}))
            .collect();
        let used: Vec<Value> = claims.iter().map(|c| json!({"name": c})).collect();
        let resources = json!({"claims": used, "requests": {"cpu": "1"}});
        let mut spec = json!({
            "containers": [{"name": "c", "resources": resources}],
            "resourceClaims": entries,
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        let pod: Box<Pod> = self.object(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
            "spec": spec,
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

/// As before, of a device that reported a failure.
fn broken(pods: &[&str]) -> Value {
    let mut status = allocated("n0", pods);
    let result = &mut status["allocation"]["devices"]["results"][0];
    result["bindingConditions"] = json!(["ready"]);
    result["bindingFailureConditions"] = json!(["broken"]);
    status["devices"] = json!([{"driver": "d", "pool": "n0", "device": "d0", "conditions": [
        {"type": "broken", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]}]);
    status
}

#[test]
fn a_pod_gets_a_device() {
    let mut fixture = Fixture::new("");
    fixture.claim("a", json!({}));
    fixture.pod("p", &["a"]);
    let outcome = fixture.run();
    assert_eq!(outcome.bound().expect("bound").claims.len(), 1);
}

#[test]
fn no_pod_relies_on_a_claim_that_is_being_deallocated() {
    let mut fixture = Fixture::new("");
    // Reserved by an attempt that ended before the binding, on a node that is closed since.
    fixture.claim("a", allocated("n0", &["p"]));
    fixture.node("n0", json!({"unschedulable": true}));
    fixture.pod("p", &["a"]);
    let outcome = fixture.run();
    assert!(outcome.deallocated().is_some(), "{}", outcome.message());
    // The node opens again before the write is carried out.
    fixture.node("n0", json!({}));
    let waits = fixture.run();
    assert_eq!(waits.node(), None);
    assert!(waits.message().contains(crate::status::MUST_BE_REALLOCATED));
    // It was not carried out: the claim is as it was.
    fixture.handle(Input::Released {
        pod: None,
        key: Key::new("ns", "a"),
        uid: "uid-a".into(),
        claim: None,
    });
    assert_eq!(fixture.run().node(), Some("n0"));
}

#[test]
fn a_deallocated_claim_is_allocated_again() {
    let mut fixture = Fixture::new("");
    fixture.claim("a", allocated("n0", &[]));
    fixture.node("n0", json!({"unschedulable": true}));
    fixture.pod("p", &["a"]);
    let claim = fixture
        .run()
        .deallocated()
        .cloned()
        .expect("a deallocation");
    let mut written = claim.clone();
    fixture.version += 1;
    written.metadata.resource_version = Some(fixture.version.to_string());
    written.status = None;
    fixture.handle(Input::Released {
        pod: None,
        key: Key::new("ns", "a"),
        uid: "uid-a".into(),
        claim: Some(Arc::new(written)),
    });
    assert_eq!(fixture.run().node(), Some("n1"));
}

#[test]
fn no_claim_is_deallocated_if_that_does_not_help() {
    let mut fixture = Fixture::new("");
    fixture.slice("n0", json!([{"name": "d0"}]));
    fixture.slice("n1", json!([]));
    fixture.claim("a", allocated("n0", &[]));
    fixture.claim("b", json!({}));
    fixture.pod("p", &["a", "b"]);
    let outcome = fixture.run();
    assert!(outcome.deallocated().is_none(), "{}", outcome.message());
    let text = "0/2 nodes are available: 2 cannot allocate all claims";
    assert!(outcome.message().starts_with(text), "{}", outcome.message());
    // Elsewhere there is room for both.
    fixture.slice("n1", json!([{"name": "d0"}, {"name": "d1"}]));
    let outcome = fixture.run();
    let taken = outcome.deallocated().and_then(|c| c.metadata.name.clone());
    assert_eq!(taken.as_deref(), Some("a"), "{}", outcome.message());
}

#[test]
fn failed_devices_are_deallocated_before_claims_on_other_nodes() {
    let mut fixture = Fixture::new("");
    fixture.claim("a", allocated("n0", &[]));
    fixture.claim("b", broken(&[]));
    fixture.pod("p", &["a", "b"]);
    let outcome = fixture.run();
    let taken = outcome.deallocated().and_then(|c| c.metadata.name.clone());
    assert_eq!(taken.as_deref(), Some("b"), "{}", outcome.message());
}

#[test]
fn a_claim_that_failed_is_left_by_every_pod_that_reserved_it() {
    // Both reserved it; then the scheduler was restarted, and the device reported a failure.
    let mut fixture = Fixture::new("");
    fixture.claim("a", broken(&["p", "q"]));
    fixture.pod("p", &["a"]);
    let outcome = fixture.run();
    assert!(outcome.node().is_none() && outcome.deallocated().is_none());
    let left = outcome.0.iter().find_map(|action| match action {
        Action::Unreserve { pod, claim } => Some((&**pod, crate::dra::claims::uid_of(claim))),
        _ => None,
    });
    assert_eq!(left, Some(("uid-p", "uid-a")));
    // The last one may take the allocation away.
    fixture.claim("a", broken(&["q"]));
    fixture.pod("q", &["a"]);
    assert!(fixture.run().deallocated().is_some());
}

#[test]
fn a_nomination_ends_with_an_attempt_that_finds_no_node() {
    let mut fixture = Fixture::new("");
    let class = fixture.object(json!({"metadata": {"name": "c"}, "spec": {}}));
    fixture.handle(Input::Class(Observed::Deleted(class)));
    fixture.claim("a", json!({}));
    let pod: Box<Pod> = fixture.object(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-p"},
        "spec": {"containers": [], "resourceClaims": [{"name": "a", "resourceClaimName": "a"}]},
        "status": {"nominatedNodeName": "n0"},
    }));
    let info = Arc::new(PodInfo::observed(*pod));
    fixture.handle(Input::Pod(Observed::Applied(Box::new(info))));
    let outcome = fixture.run();
    let nominated = outcome.0.iter().find_map(|action| match action {
        Action::Reject(rejected) => Some(rejected.nominate.clone()),
        _ => None,
    });
    assert_eq!(
        nominated,
        Some(crate::actions::Nominate::Clear),
        "{}",
        outcome.message()
    );
}

const GROUPS: &str = "GenericWorkload=true,DRAWorkloadResourceClaims=true";
const NODE_ALLOCATABLE: &str = "DRANodeAllocatableResources=true";

#[test]
fn a_claim_of_a_group_is_reserved_for_the_group() {
    let mut fixture = Fixture::new(GROUPS);
    fixture.claim("shared", json!({}));
    fixture.claim("own", json!({}));
    fixture.any_pod(
        "p",
        &["shared", "own"],
        json!({"schedulingGroup": {"podGroupName": "g"}}),
    );
    // The group is not known yet.
    assert_eq!(fixture.run().node(), None);
    fixture.group("g", &["shared"]);
    let outcome = fixture.run();
    let claims = &outcome.bound().expect("bound").claims;
    let groups: Vec<(&str, bool)> = claims
        .iter()
        .map(|c| (&*c.key.name, c.consumer.is_group()))
        .collect();
    assert_eq!(groups, [("shared", true), ("own", false)]);
    let reference = claims[0].consumer.reference();
    assert_eq!(reference.api_group.as_deref(), Some("scheduling.k8s.io"));
    assert_eq!(
        (&*reference.resource, &*reference.uid),
        ("podgroups", "uid-g")
    );
}

#[test]
fn a_claim_that_is_reserved_for_the_group_needs_no_write() {
    let mut fixture = Fixture::new(GROUPS);
    let mut status = allocated("n1", &[]);
    status["reservedFor"] = json!([
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-g"},
    ]);
    fixture.claim("shared", status);
    fixture.group("g", &["shared"]);
    let in_group = json!({"schedulingGroup": {"podGroupName": "g"}});
    fixture.any_pod("p", &["shared"], in_group.clone());
    let outcome = fixture.run();
    assert_eq!(outcome.node(), Some("n1"));
    assert!(outcome.bound().expect("bound").claims.is_empty());
    // As long as a pod of the group is there, its claim is not taken away.
    fixture.node("n1", json!({"unschedulable": true}));
    fixture.any_pod("q", &["shared"], in_group);
    let outcome = fixture.run();
    assert!(outcome.node().is_none() && outcome.deallocated().is_none());
}

#[test]
fn without_the_gate_groups_do_not_count() {
    let mut fixture = Fixture::new("");
    fixture.claim("shared", json!({}));
    fixture.group("g", &["shared"]);
    fixture.any_pod(
        "p",
        &["shared"],
        json!({"schedulingGroup": {"podGroupName": "g"}}),
    );
    let outcome = fixture.run();
    assert!(
        !outcome.bound().expect("bound").claims[0]
            .consumer
            .is_group()
    );
}

/// Two devices of each node that bring three of its four CPUs each.
fn node_allocatable_fixture(gates: &str) -> Fixture {
    let mut fixture = Fixture::new(gates);
    let device = |name| json!({"name": name, "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "3"}}});
    for node in ["n0", "n1"] {
        fixture.slice(node, json!([device("d0"), device("d1")]));
    }
    fixture
}

#[test]
fn what_comes_with_devices_has_to_fit_on_the_node() {
    let mut fixture = node_allocatable_fixture(NODE_ALLOCATABLE);
    for name in ["a", "b", "c"] {
        fixture.claim(name, json!({}));
    }
    fixture.pod("p", &["a"]);
    let outcome = fixture.run();
    let job = outcome.bound().expect("bound");
    let node_allocatable = serde_json::to_value(&job.node_allocatable.0).expect("JSON");
    let expected =
        json!([{"resourceClaimName": "a", "containers": ["c"], "resources": {"cpu": "3"}}]);
    assert_eq!(node_allocatable, expected);
    // The first pod and its device fill a node with one CPU and three; the next one goes to the other node.
    let first = job.node.to_string();
    fixture.pod("q", &["b"]);
    let second = fixture.run().node().map(str::to_owned).expect("bound");
    assert_ne!(first, second);
    fixture.pod("r", &["c"]);
    let outcome = fixture.run();
    assert_eq!(outcome.node(), None);
    assert!(outcome.message().contains("Insufficient cpu"));
}

#[test]
fn without_the_gate_what_comes_with_devices_does_not_count() {
    let mut fixture = node_allocatable_fixture("");
    fixture.claim("a", json!({}));
    fixture.pod("p", &["a"]);
    let outcome = fixture.run();
    assert!(
        outcome
            .bound()
            .expect("bound")
            .node_allocatable
            .0
            .is_empty()
    );
}

#[test]
fn a_claim_with_resources_of_the_node_serves_one_pod() {
    let mut fixture = node_allocatable_fixture(NODE_ALLOCATABLE);
    fixture.claim("a", allocated("n0", &["other"]));
    fixture.pod("p", &["a"]);
    let outcome = fixture.run();
    assert_eq!(outcome.node(), None);
    let text = "node allocatable resource claim a is already used by another pod";
    assert!(outcome.message().contains(text), "{}", outcome.message());
}

#[test]
fn what_comes_with_extended_resources_counts_until_the_binding_failed() {
    let mut fixture = node_allocatable_fixture(NODE_ALLOCATABLE);
    let pod = fixture.extended_resource();
    fixture.any_pod("p", &[], pod.clone());
    let outcome = fixture.run();
    let job = outcome.bound().expect("bound");
    let node_allocatable = job
        .node_allocatable
        .clone()
        .named(Some("p-extended-resources-x7"));
    let expected = json!([
        {"resourceClaimName": "p-extended-resources-x7", "containers": ["c"], "resources": {"cpu": "3"}},
    ]);
    assert_eq!(
        serde_json::to_value(&node_allocatable.0).expect("JSON"),
        expected
    );
    fixture.any_pod("q", &[], pod.clone());
    assert!(fixture.run().bound().is_some());
    fixture.any_pod("r", &[], pod);
    let refused = fixture.run();
    assert!(refused.message().contains("Insufficient cpu"));
    fixture.handle(Input::Bound {
        pod: job.pod.uid.clone(),
        outcome: Err(BindError::new("lost".to_owned())),
    });
    let actions = fixture.core.take_actions();
    let cleared =
        |a: &Action| matches!(a, Action::ClearNodeAllocatable(pod) if pod.uid == job.pod.uid);
    assert!(actions.iter().any(cleared));
    assert!(fixture.run().bound().is_some());
}
