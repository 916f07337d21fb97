//! DaemonSets of files: each node that is to have a pod is one question.

use serde_json::{Value, json};

use super::*;
use crate::cmd::snapshot::Hidden;

/// What is printed about a DaemonSet whose pods want a device each, as text and JSON; and whether it fits.
fn told(fields: Value, more: Vec<Value>) -> (String, Value, bool) {
    let mut tainted = node("d");
    tainted["spec"] = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
    let mut unready = node("c");
    unready["spec"] = json!({"taints": [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]});
    let mut objects = vec![
        node("a"),
        node("b"),
        unready,
        tainted,
        class("true"),
        slice("a", json!([{"name": "x"}])),
        slice("b", json!([])),
        slice("c", json!([{"name": "x"}])),
        slice("d", json!([{"name": "x"}])),
        template(),
    ];
    objects.extend(more);
    let mut spec = templated();
    for (field, value) in fields.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "mon", "uid": "m"},
        "spec": {"selector": {}, "template": {"spec": spec}}});
    let (text, fits) = of_workload(&objects, &set, false);
    let (value, _) = of_workload(&objects, &set, true);
    (text, serde_json::from_str(&value).expect("JSON"), fits)
}

/// It counted as one pod, which fits where any node has a device.
#[test]
fn regression_a_daemon_set_fits_when_it_fits_on_each_of_its_nodes() {
    let (text, value, fits) = told(json!({}), Vec::new());
    let expected = "\
DaemonSet default/mon: fits on 2 of 3 nodes
  on a, c
  1 node: cannot allocate all claims (b)
";
    assert!(text.starts_with(expected) && !fits, "{text}");
    assert_eq!((&value["replicas"], &value["fit"]), (&json!(3), &json!(2)));
    assert_eq!(value["lacking"][0]["node"], "b");
    let tolerant = json!({"tolerations": [{"key": "k", "operator": "Exists"}]});
    let (text, ..) = told(tolerant, Vec::new());
    assert!(
        text.contains("fits on 3 of 4 nodes\n  on a, c, d\n"),
        "{text}"
    );
}

#[test]
fn only_the_nodes_that_a_daemon_set_selects_count() {
    let named = |name: &str| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": [name]}]}]}}}})
    };
    let (text, _, fits) = told(named("a"), Vec::new());
    assert_eq!(text, "DaemonSet default/mon: fits on 1 of 1 node\n  on a\n");
    assert!(fits);
    let (text, _, fits) = told(named("absent"), Vec::new());
    let none = "DaemonSet default/mon: no node is to have it: node selector, affinity and taints leave none\n";
    assert_eq!(text, none);
    assert!(fits);
}

/// A pod of the set, on a node.
fn own(name: &str, claim: &str, node: &str) -> Value {
    let mut own = pod(name, json!({"resourceClaimTemplateName": "t"}));
    own["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1",
        "kind": "DaemonSet", "name": "mon", "uid": "m", "controller": true}]);
    own["spec"]["nodeName"] = json!(node);
    own["status"] = json!({"phase": "Running",
        "resourceClaimStatuses": [{"name": "c", "resourceClaimName": claim}]});
    own
}

#[test]
fn the_pods_that_a_daemon_set_has_are_not_in_its_way() {
    let running = vec![
        own("mon-1", "one", "a"),
        held("one", "a", json!(["x"]), Some("mon-1")),
    ];
    let (text, value, fits) = told(json!({}), running);
    let expected = "DaemonSet default/mon: on 1 node, fits on 1 of 2 more\n  on c\n  1 node: ";
    assert!(text.starts_with(expected) && !fits, "{text}");
    assert_eq!(value["onNodes"], 1);
}

/// Of three nodes one has a pod of the set, and one more could have it.
fn one_runs((text, value, _): (String, Value, bool)) {
    assert!(
        text.contains(": on 1 node, fits on 1 of 2 more\n"),
        "{text}"
    );
    assert_eq!(value["onNodes"], 1);
}

/// The affinity of the template is not in the pods, whose controller sets the node that each is for: all pods seemed to make way.
#[test]
fn regression_pods_of_a_daemon_set_with_node_affinity_stay() {
    let mut running = own("mon-1", "one", "a");
    allot_controllers::daemonset::pin(&mut running, "a");
    let held = held("one", "a", json!(["x"]), Some("mon-1"));
    let affinity = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "absent", "operator": "DoesNotExist"}]}]}}}});
    one_runs(told(affinity, vec![running, held]));
}

/// The next pod of an update with a surge, which waits for the device, stood for the one that runs.
#[test]
fn regression_the_next_pod_of_a_node_does_not_hide_the_one_that_runs() {
    let running = own("mon-1", "one", "a");
    let held = held("one", "a", json!(["x"]), Some("mon-1"));
    let mut next = own("mon-2", "two", "a");
    next["spec"]["nodeName"] = Value::Null;
    next["status"] = json!({"phase": "Pending"});
    allot_controllers::daemonset::pin(&mut next, "a");
    let (first, second) = (vec![running.clone(), next.clone()], vec![next, running]);
    for pods in [first, second] {
        one_runs(told(json!({}), [pods, vec![held.clone()]].concat()));
    }
}

/// Without nodes it would fit on all of none.
#[test]
fn without_the_right_to_list_nodes_nothing_is_said_to_fit() {
    let mut snapshot = Snapshot {
        namespace: "default".to_owned(),
        ..Snapshot::default()
    };
    snapshot
        .about
        .hidden
        .push(Hidden::new("nodes", "Node", None));
    let mut cluster = ClusterObjects::new(snapshot, "default".to_owned());
    let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "mon"},
        "spec": {"selector": {}, "template": {"spec": {"containers": []}}}});
    let error = cluster.add(vec![set]).expect_err("refused");
    let expected =
        "DaemonSet default/mon has a pod on each node, and there is no right to list nodes";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn what_no_node_decides_is_told_once() {
    let missing = json!({"resourceClaims": [{"name": "c", "resourceClaimTemplateName": "absent"}]});
    let (text, value, fits) = told(missing, Vec::new());
    let expected = "\
DaemonSet default/mon: fits on 0 of 3 nodes
pod default/mon-a goes to no node: ";
    assert!(text.starts_with(expected) && !fits, "{text}");
    assert!(
        text.contains("there is no ResourceClaimTemplate default/absent"),
        "{text}"
    );
    assert_eq!(value["firstWithout"]["pod"], "default/mon-a");
}
