//! Attempts with classic claims, without an API: observations in, decisions out.

use std::sync::Arc;
use std::time::Duration;

use allot_model::classic::objects::*;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use allot_classic::message::ClaimTasks;
use allot_classic::{Action, ClaimTask, Classic, Input, Served};
use allot_reflector::Observed;
use allot_scheduler::actions::{Action as CoreAction, BindJob};
use allot_scheduler::core::{BindError, Core, Input as CoreInput, Time};
use allot_scheduler::pod::{Key, PodInfo};
use allot_scheduler::{Config, Metrics};

mod classic_attempts {
    use super::*;

    mod claims;
    mod deferrals;
    mod structured;
}

const SERVED: Served = Served {
    version: "v1alpha2",
    structured: true,
    deterministic_names: false,
    alone: true,
};

struct Fixture {
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

impl Fixture {
    fn new(served: Served) -> Self {
        Self {
            core: Core::new(Config::default(), Metrics::new())
                .with_claim_plugin(Some(Box::new(Classic::new(served)))),
            now: 0,
            version: 100,
        }
    }

    /// Two nodes, a class `k` that everything can be allocated for.
    fn usual() -> Self {
        let mut fixture = Self::new(SERVED);
        fixture.node("n0");
        fixture.node("n1");
        fixture.class(json!({"metadata": {"name": "k"}, "driverName": "d"}));
        fixture
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
        self.handle(CoreInput::ClaimPlugin(Box::new(input)));
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
        let info = Arc::new(PodInfo::observed(pod));
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

/// The write of the plugin that an action is.
fn write(action: &CoreAction) -> Option<&Action> {
    match action {
        CoreAction::ClaimPlugin(write) => write.get(),
        _ => None,
    }
}

/// The classic claims to write before a binding.
fn tasks(job: &BindJob) -> &[ClaimTask] {
    let tasks = job.plugin_claims.as_ref().and_then(|writes| writes.get());
    tasks.map_or(&[], |ClaimTasks(tasks)| tasks)
}

impl Outcome {
    fn writes(&self) -> impl Iterator<Item = &Action> {
        self.0.iter().filter_map(write)
    }

    fn published(&self) -> Option<SchedulingSpec> {
        self.writes().find_map(|write| match write {
            Action::Publish { spec, .. } => Some(spec.clone()),
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
        self.writes().find_map(|write| match write {
            Action::Deallocate { claim, publish, .. } => {
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
    let mut fixture = Fixture::usual();
    fixture.claim("c", json!({}));
    fixture.pod("p", &["c"]);
    let first = fixture.run();
    let wanted = first.published().expect("a negotiation");
    assert_eq!(wanted.potential_nodes, ["n0", "n1"]);
    assert!(!wanted.selected_node.is_empty());
    assert_eq!(
        first.message(),
        "0/1 nodes are available: 1 waiting for resource driver."
    );
    // The driver has heard, which changes nothing yet.
    fixture.scheduling("p", &wanted, json!([{"name": "c"}]));
    assert!(fixture.run().0.is_empty());
    let node = wanted.selected_node.clone();
    fixture.claim("c", allocated_on(&node, json!({})));
    let last = fixture.run();
    let job = last.bound().expect("a binding");
    assert_eq!(*job.node, *node);
    assert_eq!(tasks(job).len(), 1, "not reserved by the driver");
}

#[test]
fn a_claim_that_the_driver_reserved_is_not_written_again() {
    let mut fixture = Fixture::usual();
    let reserved = json!({"reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}]});
    fixture.claim("c", allocated_on("n1", reserved));
    fixture.pod("p", &["c"]);
    let outcome = fixture.run();
    let job = outcome.bound().expect("a binding");
    assert_eq!((&*job.node, tasks(job).len()), ("n1", 0));
}

#[test]
fn two_claims_wait_for_both_drivers() {
    let mut fixture = Fixture::usual();
    fixture.claim("a", json!({}));
    fixture.claim("b", json!({}));
    fixture.pod("p", &["a", "b"]);
    assert_eq!(fixture.run().published(), Some(spec("", &["n0", "n1"])));
    fixture.scheduling("p", &spec("", &["n0", "n1"]), json!([{"name": "a"}]));
    assert!(fixture.run().0.is_empty());
    let answers = json!([{"name": "a"}, {"name": "b", "unsuitableNodes": ["n0"]}]);
    fixture.scheduling("p", &spec("", &["n0", "n1"]), answers);
    assert_eq!(fixture.run().published(), Some(spec("n1", &["n0", "n1"])));
}

#[test]
fn a_refused_node_stays_in_the_negotiation() {
    let mut fixture = Fixture::usual();
    fixture.claim("c", json!({}));
    fixture.scheduling(
        "p",
        &spec("n0", &["n0"]),
        json!([{"name": "c", "unsuitableNodes": ["n0"]}]),
    );
    fixture.pod("p", &["c"]);
    assert_eq!(fixture.run().published(), Some(spec("n1", &["n0", "n1"])));
}

#[test]
fn another_node_is_selected_when_the_driver_refuses() {
    let mut fixture = Fixture::usual();
    fixture.claim("c", json!({}));
    fixture.pod("p", &["c"]);
    let wanted = fixture.run().published().expect("a negotiation");
    let refused = wanted.selected_node.clone();
    fixture.scheduling(
        "p",
        &wanted,
        json!([{"name": "c", "unsuitableNodes": [refused]}]),
    );
    let next = fixture.run().published().expect("another node");
    assert_ne!(next.selected_node, refused);
    fixture.scheduling(
        "p",
        &next,
        json!([{"name": "c", "unsuitableNodes": ["n0", "n1"]}]),
    );
    let last = fixture.run();
    assert_eq!(last.published(), None);
    assert!(
        last.message().starts_with(
            "0/2 nodes are available: 2 resourceclaim cannot be allocated for the node (unsuitable)."
        ),
        "{}",
        last.message()
    );
    // A node that becomes free again is tried.
    fixture.scheduling(
        "p",
        &next,
        json!([{"name": "c", "unsuitableNodes": [next.selected_node]}]),
    );
    assert_eq!(
        fixture.run().published().map(|s| s.selected_node),
        Some(refused)
    );
}

#[test]
fn a_node_that_one_driver_refuses_is_not_selected_for_the_others() {
    let mut fixture = Fixture::usual();
    fixture.claim("a", json!({}));
    fixture.claim("b", json!({}));
    let told = spec("n1", &["n0", "n1"]);
    // `a` could be allocated; `b` lost its place on the selected node and has none elsewhere.
    fixture.scheduling(
        "p",
        &told,
        json!([{"name": "a"}, {"name": "b", "unsuitableNodes": ["n0", "n1"]}]),
    );
    fixture.pod("p", &["a", "b"]);
    assert_eq!(fixture.run().published(), Some(spec("", &["n0", "n1"])));
    // Nothing more to say until a driver thinks otherwise.
    let answers = json!([{"name": "a"}, {"name": "b", "unsuitableNodes": ["n0"]}]);
    fixture.scheduling("p", &spec("", &["n0", "n1"]), answers);
    assert_eq!(fixture.run().published(), Some(told));
}

/// However the claims are ordered.
#[test]
fn nothing_is_deallocated_for_a_node_that_does_not_fit_anyway() {
    for claims in [["a", "b"], ["b", "a"]] {
        let mut fixture = Fixture::usual();
        fixture.claim("a", allocated_on("n1", json!({})));
        fixture.claim("b", json!({}));
        let answers = json!([{"name": "b", "unsuitableNodes": ["n0", "n1"]}]);
        fixture.scheduling("p", &spec("", &["n0", "n1"]), answers);
        fixture.pod("p", &claims);
        let outcome = fixture.run();
        assert_eq!(outcome.deallocated(), None, "{}", outcome.message());
        assert!(
            outcome.message().contains("2 resourceclaim cannot be"),
            "{}",
            outcome.message()
        );
    }
}

#[test]
fn of_many_nodes_a_choice_is_negotiated_about() {
    let mut fixture = Fixture::new(SERVED);
    (0..200).for_each(|n| fixture.node(&format!("n{n:03}")));
    fixture.class(json!({"metadata": {"name": "k"}, "driverName": "d"}));
    fixture.claim("c", json!({}));
    fixture.pod("p", &["c"]);
    let wanted = fixture.run().published().expect("a negotiation");
    // Filtering ends at 100 nodes unless fewer are found.
    assert!(wanted.potential_nodes.len() >= 100 && wanted.potential_nodes.len() <= 128);
    assert!(wanted.potential_nodes.contains(&wanted.selected_node));
    assert!(wanted.potential_nodes.is_sorted());
}

#[test]
fn a_negotiation_of_another_pod_is_left_alone() {
    let mut fixture = Fixture::usual();
    fixture.claim("c", json!({}));
    fixture.scheduling("p", &spec("n0", &["n0"]), json!([]));
    let pod: Box<Pod> = fixture.object(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-new"},
        "spec": {"containers": [], "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]},
    }));
    fixture.arrives(*pod);
    let outcome = fixture.run();
    assert_eq!(outcome.published(), None);
    assert!(
        outcome.message().contains("is not owned by Pod ns/p"),
        "{}",
        outcome.message()
    );
}

#[test]
fn a_lost_negotiation_begins_anew() {
    let mut fixture = Fixture::usual();
    fixture.claim("c", json!({}));
    fixture.pod("p", &["c"]);
    let wanted = fixture.run().published().expect("a negotiation");
    fixture.scheduling("p", &wanted, json!([]));
    let gone = fixture.object::<PodScheduling>(
        json!({"metadata": {"name": "p", "namespace": "ns", "uid": "uid-s"}}),
    );
    fixture.classic(Input::Scheduling(Observed::Deleted(gone)));
    let again = fixture.run().published().expect("another negotiation");
    assert_eq!(again.potential_nodes, wanted.potential_nodes);
}

#[test]
fn the_negotiation_of_a_finished_pod_is_deleted() {
    let mut fixture = Fixture::usual();
    fixture.scheduling("p", &spec("n0", &["n0"]), json!([]));
    let pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-p"},
        "spec": {"containers": [], "nodeName": "n0"},
    });
    let running = fixture.object::<Pod>(pod.clone());
    fixture.arrives(*running);
    let forgotten = |fixture: &mut Fixture| {
        let actions = fixture.core.take_actions();
        let forgets =
            |a: &CoreAction| matches!(write(a), Some(Action::Forget(p)) if &*p.uid == "uid-p");
        actions.iter().any(forgets)
    };
    assert!(!forgotten(&mut fixture));
    let mut finished = pod;
    finished["status"]["phase"] = json!("Succeeded");
    let finished = fixture.object::<Pod>(finished);
    fixture.arrives(*finished);
    assert!(forgotten(&mut fixture));
}

/// A scheduler ended after it had bound a pod, and the next one began when the pod had finished: it never saw the pod.
/// Its negotiation stayed, and drivers allocated claims for it as often as these were deallocated for others.
#[test]
fn regression_the_negotiation_of_a_pod_that_finished_without_a_scheduler_is_collected() {
    let mut fixture = Fixture::usual();
    let collected = |fixture: &mut Fixture| -> Vec<String> {
        let actions = fixture.core.take_actions();
        let collects = |write: &Action| match write {
            Action::Collect { pod, uid } => Some(format!("{pod} {uid}")),
            _ => None,
        };
        actions
            .iter()
            .filter_map(write)
            .filter_map(collects)
            .collect()
    };
    fixture.scheduling("p", &spec("n0", &["n0"]), json!([]));
    fixture.scheduling("q", &spec("n0", &["n0"]), json!([]));
    // No pod is known yet.
    assert!(collected(&mut fixture).is_empty());
    let q: Box<Pod> = fixture.object(json!({
        "metadata": {"name": "q", "namespace": "ns", "uid": "uid-q"},
        "spec": {"containers": []},
    }));
    fixture.handle(CoreInput::Pod(Observed::Listed {
        items: vec![Arc::new(PodInfo::observed(*q))],
        version: "1000".to_owned(),
    }));
    assert_eq!(collected(&mut fixture), ["ns/p uid-p"]);
    // A driver answers before the deletion is seen.
    fixture.scheduling("p", &spec("n0", &["n0"]), json!([{"name": "c"}]));
    fixture.scheduling("q", &spec("n0", &["n0"]), json!([{"name": "c"}]));
    assert_eq!(collected(&mut fixture), ["ns/p uid-p"]);
}
