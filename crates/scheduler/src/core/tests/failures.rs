//! A selector or request that fails on one node fails the attempt on all of them, as in upstream: the claim is invalid,
//! and if the pod were placed on another node, the error would not be reported to the user.

use super::*;

/// Two nodes with these devices.
fn fixture(devices: [Value; 2]) -> Fixture {
    let mut fixture = Fixture::new("");
    for (node, devices) in ["n0", "n1"].into_iter().zip(devices) {
        fixture.slice(node, devices);
    }
    fixture
}

impl Fixture {
    fn asking(&mut self, request: Value) {
        let claim = self.object(json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"},
            "spec": {"devices": {"requests": [request]}},
        }));
        self.handle(Input::Claim(Observed::Applied(claim)));
        self.pod("p", &["a"]);
    }
}

fn with(value: Value) -> Value {
    json!([{"name": "d0", "attributes": {"k": value}}])
}

fn picky() -> Value {
    let selectors = json!([{"cel": {"expression": "device.attributes['d'].k == 1"}}]);
    json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1, "selectors": selectors})
}

const FAILURE: &str = "claim ns/a: selector #0: CEL runtime error: no such key: k";

#[test]
fn a_selector_that_fails_on_one_node_ends_the_attempt() {
    // Whichever node is preferred.
    for at in 0..2 {
        let mut devices = [with(json!({"int": 1})), with(json!({"int": 1}))];
        devices[at] = json!([{"name": "d0"}]);
        let mut fixture = fixture(devices);
        fixture.asking(json!({"name": "r", "exactly": picky()}));
        let outcome = fixture.run();
        assert_eq!(outcome.node(), None);
        assert!(outcome.message().contains(FAILURE), "{}", outcome.message());
    }
}

#[test]
fn nodes_that_other_filters_rule_out_do_not_fail() {
    let mut fixture = fixture([with(json!({"int": 1})), json!([{"name": "d0"}])]);
    fixture.node("n1", json!({"unschedulable": true}));
    fixture.asking(json!({"name": "r", "exactly": picky()}));
    assert_eq!(fixture.run().node(), Some("n0"));
}

#[test]
fn a_device_that_is_not_looked_at_does_not_fail() {
    // The first device of each node fits.
    let two = json!([{"name": "d0", "attributes": {"k": {"int": 1}}}, {"name": "d1"}]);
    let mut fixture = fixture([two.clone(), two]);
    fixture.asking(json!({"name": "r", "exactly": picky()}));
    assert!(fixture.run().node().is_some());
}

#[test]
fn alternatives_fail_as_requests_do() {
    let mut fixture = fixture([with(json!({"int": 1})), json!([{"name": "d0"}])]);
    let mut first = picky();
    first["name"] = json!("one");
    let second =
        json!({"name": "two", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1});
    fixture.asking(json!({"name": "r", "firstAvailable": [first, second]}));
    let outcome = fixture.run();
    assert_eq!(outcome.node(), None);
    assert!(outcome.message().contains(FAILURE), "{}", outcome.message());
}

#[test]
fn all_devices_of_a_node_whose_pool_is_incomplete_fail_only_there() {
    let mut fixture = fixture([json!([{"name": "d0"}]), json!([{"name": "d0"}])]);
    let slice = fixture.object(json!({
        "metadata": {"name": "n1-more"},
        "spec": {
            "driver": "d", "nodeName": "n1", "devices": [{"name": "e0"}],
            "pool": {"name": "n1-more", "generation": 1, "resourceSliceCount": 2},
        },
    }));
    fixture.handle(Input::Slice(Observed::Applied(slice)));
    fixture
        .asking(json!({"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "All"}}));
    fixture.node("n0", json!({"unschedulable": true}));
    let outcome = fixture.run();
    assert_eq!(outcome.node(), None);
    let text = "asks for all devices, but resource pool d/n1-more is currently being updated";
    assert!(outcome.message().contains(text), "{}", outcome.message());
    fixture.node("n0", json!({}));
    assert_eq!(fixture.run().node(), Some("n0"));
}

/// The binding of a pod names the version that was decided about where its claims are others now, so that it is refused.
#[test]
fn a_pod_whose_claims_changed_on_its_way_is_not_bound_as_if_nothing_had() {
    let bound_as = |status: Value| {
        let mut fixture = Fixture::new("");
        fixture.claim("a", json!({}));
        fixture.pod("p", &["a"]);
        let outcome = fixture.run();
        let job = outcome.bound().expect("bound");
        let (pod, decided) = (job.pod.uid.clone(), job.pod.pod.metadata.clone());
        let mut later: Box<Pod> = fixture.object(json!({"metadata": {}, "status": status}));
        let version = later.metadata.resource_version.take();
        later.spec = job.pod.pod.spec.clone();
        later.metadata = decided.clone();
        later.metadata.resource_version = version;
        let later = Arc::new(PodInfo::observed(*later));
        fixture.handle(Input::Pod(Observed::Applied(Box::new(later))));
        let claim: Box<ResourceClaim> = fixture.object(json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"},
            "spec": {},
            "status": allocated(&job.node, &["p"]),
        }));
        fixture.handle(Input::ClaimWritten {
            pod: pod.clone(),
            in_flight: "uid-a".into(),
            claim: Arc::new((*claim).clone()),
        });
        fixture.handle(Input::ClaimsReady(pod));
        fixture.handle(Input::Claim(Observed::Applied(claim)));
        let actions = fixture.core.take_actions();
        let bound = actions.iter().find_map(|a| match a {
            Action::BindPod { pod, .. } => Some(pod.pod.metadata.resource_version.clone()),
            _ => None,
        });
        bound.expect("it is bound") == decided.resource_version
    };
    assert!(!bound_as(json!({"phase": "Pending"})));
    let others = json!([{"name": "x", "resourceClaimName": "y"}]);
    assert!(bound_as(json!({"resourceClaimStatuses": others})));
}

/// Before any node is looked at: what has not run is missed, what failed has nothing to undo.
#[test]
fn what_follows_a_rejection_of_the_pod_as_such() {
    let check = |affinity: Value, class: &str, expected: &str| {
        let mut fixture = Fixture::new("");
        let request = json!({"name": "r", "exactly": {"deviceClassName": class, "allocationMode": "ExactCount", "count": 1}});
        let claim = fixture.object(json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"},
            "spec": {"devices": {"requests": [request]}},
        }));
        fixture.handle(Input::Claim(Observed::Applied(claim)));
        fixture.any_pod("p", &["a"], json!({"affinity": affinity}));
        assert_eq!(fixture.run().message(), expected);
    };
    check(
        Value::Null,
        "none",
        "0/2 nodes are available: request r: device class none does not exist. no new claims to deallocate, \
         preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
    );
    let named = |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
    let term = json!({"matchFields": [named("n0"), named("n1")]});
    check(
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}),
        "c",
        "0/2 nodes are available: pod affinity terms conflict. not found",
    );
}

/// As in upstream only nodes with devices are compared with each other: one without that is preferred by far would make
/// the wishes for the others look alike.
#[test]
fn a_node_without_devices_does_not_count_among_those_to_choose_from() {
    let device = || json!([{"name": "d0"}]);
    let mut fixture = fixture([device(), device()]);
    fixture.node("n2", json!({}));
    fixture.any_pod("on", &[], json!({"nodeName": "n0"}));
    fixture.claim("a", json!({}));
    let wish = |weight, node: &str| {
        let field = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        json!({"weight": weight, "preference": {"matchExpressions": [field]}})
    };
    let wishes = json!([wish(100, "n2"), wish(2, "n0"), wish(1, "n1")]);
    let affinity =
        json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}});
    fixture.any_pod("p", &["a"], json!({"affinity": affinity}));
    assert_eq!(fixture.run().node(), Some("n0"));
}

/// A device whose node selector has more terms than documented is not allocated. Other nodes are still tried.
#[test]
fn regression_a_device_with_a_malformed_node_selector_fails_on_its_own_node_only() {
    let term = |zone: &str| json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [zone]}]});
    let mut fixture = Fixture::new("");
    let slice = fixture.object(json!({
        "metadata": {"name": "n1"},
        "spec": {
            "driver": "d", "perDeviceNodeSelection": true,
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d0", "nodeSelector": {"nodeSelectorTerms": [term("n1"), term("x")]}}],
        },
    }));
    fixture.handle(Input::Slice(Observed::Applied(slice)));
    fixture.claim("a", json!({}));
    fixture.pod("p", &["a"]);
    assert_eq!(fixture.run().node(), Some("n0"));
}
