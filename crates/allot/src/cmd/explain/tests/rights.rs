//! What is said when not everything may be listed.

use serde_json::json;

use super::super::Outcome;
use super::super::pending::Pending;
use super::*;
use crate::cmd::snapshot::Hidden;

/// A cluster with two pods that wait for one claim each, where something is not shown.
fn hiding(hidden: Hidden, more: Vec<Value>) -> LoadedScheduler {
    let mut objects = vec![
        node("a"),
        class("true"),
        slice("a", json!([{"name": "x"}, {"name": "y"}])),
        claim("one", request(json!({}))),
        claim("two", request(json!({}))),
        pod("p-1", json!({"resourceClaimName": "one"})),
        pod("p-2", json!({"resourceClaimName": "two"})),
    ];
    objects.extend(more);
    let mut snapshot = Snapshot {
        objects,
        namespace: "default".to_owned(),
        ..Snapshot::default()
    };
    snapshot.about.hidden.push(hidden);
    let cluster = ClusterObjects::new(snapshot, "default".to_owned());
    cluster.load(Config::default()).expect("it can be read")
}

fn told(loaded: &mut LoadedScheduler) -> (String, Outcome) {
    let pending = Pending::new(loaded, Some("default"));
    let mut out = Vec::new();
    pending.print(&mut out, false).expect("written");
    (String::from_utf8(out).expect("UTF-8"), pending.outcome())
}

/// What the scheduler says of a pod.
fn event(pod: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": "FailedScheduling",
        "metadata": {"name": pod, "namespace": "default"}, "message": "0/9 nodes are available: 9 are full.",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": pod}})
}

fn nodes() -> Hidden {
    Hidden::new("nodes", "Node", None)
}

/// It was an error for each pod, and the status was that of pods that do not fit.
#[test]
fn regression_pods_of_which_nothing_can_be_said_are_one_line_and_an_error() {
    let (text, outcome) = told(&mut hiding(nodes(), Vec::new()));
    let expected =
        "2 pods: why cannot be said without the right to list nodes\n  default/p-1, default/p-2\n";
    assert_eq!(text, expected);
    assert_eq!(outcome, Outcome::Failed);
}

/// A user of one namespace got nothing but an error, although the scheduler had told the reason.
#[test]
fn regression_without_rights_the_scheduler_s_own_words_are_the_answer() {
    let mut loaded = hiding(nodes(), vec![event("p-1"), event("p-2")]);
    let (text, outcome) = told(&mut loaded);
    let expected = "2 pods: 0/9 nodes are available: 9 are full; that is what the scheduler says; more takes the right \
        to list nodes\n  default/p-1, default/p-2\n";
    assert_eq!(text, expected);
    assert_eq!(outcome, Outcome::DoesNotFit);
    let report = Report::new(&mut loaded, "default", "p-1").expect("an answer");
    let mut out = Vec::new();
    report.print(&mut out, false).expect("written");
    let text = String::from_utf8(out).expect("UTF-8");
    let expected =
        "pod default/p-1 goes to no node: 0/9 nodes are available: 9 are full (FailedScheduling)\n";
    assert!(text.starts_with(expected), "{text}");
}

/// The condition of the pod is shown where events are not.
#[test]
fn the_pod_s_condition_stands_in_for_an_event() {
    let mut waiting = pod("p-3", json!({"resourceClaimName": "one"}));
    waiting["status"] = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled",
        "status": "False", "reason": "Unschedulable", "message": "0/9 nodes are available"}]});
    let mut loaded = hiding(nodes(), vec![waiting]);
    let report = Report::new(&mut loaded, "default", "p-3").expect("an answer");
    assert!(!report.fits);
    let cause = report.cause().expect("a cause");
    assert!(
        cause.reason.starts_with("0/9 nodes are available; "),
        "{cause:?}"
    );
    assert!(Report::new(&mut loaded, "default", "p-1").is_err());
}

/// The list said that it fits, the answer about the pod that it may.
#[test]
fn regression_what_claims_of_others_may_hold_only_may_fit() {
    let partly = || Hidden::new("resourceclaims", "ResourceClaim", Some("default"));
    let (text, _) = told(&mut hiding(partly(), Vec::new()));
    let expected =
        "2 pods: it may fit: not all is known of resourceclaims\n  default/p-1, default/p-2\n";
    assert_eq!(text, expected);
    let mut loaded = hiding(partly(), vec![event("p-1"), event("p-2")]);
    let (text, outcome) = told(&mut loaded);
    let expected = "2 pods: it may fit: not all is known of resourceclaims; the scheduler says: 0/9 nodes are available: 9 are full\n";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(outcome, Outcome::Fits);
    let report = Report::new(&mut loaded, "default", "p-1").expect("an answer");
    let mut out = Vec::new();
    report.print(&mut out, false).expect("written");
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(
        text.contains("\n  the scheduler says: 0/9 nodes are available"),
        "{text}"
    );
}

/// It was said that the claim controller, to which a pod in a file is unknown, had not made the claim yet.
#[test]
fn regression_a_pod_of_a_file_whose_template_is_not_shown_is_an_error() {
    let mut new = pod("p", json!({"resourceClaimTemplateName": "t"}));
    new["metadata"] = json!({"name": "p"});
    let told = |files: Vec<Value>| {
        let mut snapshot = Snapshot {
            objects: vec![node("a"), class("true"), slice("a", json!([{"name": "x"}]))],
            namespace: "default".to_owned(),
            ..Snapshot::default()
        };
        let hidden = Hidden::new("resourceclaimtemplates", "ResourceClaimTemplate", None);
        snapshot.about.hidden.push(hidden);
        let mut cluster = ClusterObjects::new(snapshot, "default".to_owned());
        cluster.add(files).expect("added");
        let mut loaded = cluster.load(Config::default()).expect("it can be read");
        Report::new(&mut loaded, "default", "p")
    };
    let error = told(vec![new.clone()]).expect_err("no answer").to_string();
    assert!(
        error.ends_with(
            "there is no right to list resourceclaimtemplates: add the template with -f"
        ),
        "{error}"
    );
    assert!(told(vec![template(), new]).expect("an answer").fits);
}
