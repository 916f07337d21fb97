//! Pods that need what not every node has.

use super::*;

/// Sets the only open node, with the features that it declares.
fn declare(fixture: &mut Fixture, features: &[&str]) {
    fixture.node("n1", json!({"unschedulable": true}));
    let node: Box<Node> = fixture.object(json!({
        "metadata": {"name": "n0", "labels": {"kubernetes.io/hostname": "n0"}},
        "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}, "declaredFeatures": features},
    }));
    fixture.handle(Input::Node(Observed::Applied(node)));
}

fn check_feature(gates: &str, spec: Value, declared: &[&str], fits: bool) {
    let mut fixture = Fixture::new(gates);
    declare(&mut fixture, declared);
    fixture.any_pod("p", &[], spec.clone());
    let outcome = fixture.run();
    assert_eq!(
        outcome.node().is_some(),
        fits,
        "{spec} with {declared:?}: {}",
        outcome.message()
    );
    let text = "1 node(s) didn't match Pod's required features";
    assert_eq!(outcome.message().contains(text), !fits);
}

fn restarts_all() -> Value {
    let rule =
        json!({"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}});
    let container = json!({"name": "i", "restartPolicy": "Never", "restartPolicyRules": [rule]});
    json!({"initContainers": [container]})
}

#[test]
fn pods_go_to_nodes_that_declare_what_they_need() {
    let restart = "RestartAllContainersOnContainerExits";
    check_feature("", restarts_all(), &[], false);
    check_feature("", restarts_all(), &["Other", restart], true);
    let mut container = restarts_all()["initContainers"].clone();
    check_feature("", json!({"containers": container}), &[], false);
    container[0]["restartPolicyRules"][0]["action"] = json!("Restart");
    check_feature("", json!({"containers": container}), &[], true);
    let users = json!({"hostNetwork": true, "hostUsers": false});
    check_feature("", users.clone(), &[restart], false);
    check_feature("", users, &["UserNamespacesHostNetworkSupport"], true);
    check_feature("", json!({"hostNetwork": true}), &[], true);
    check_feature("", json!({"hostUsers": false}), &[], true);
}

#[test]
fn declared_features_are_not_checked_while_the_gate_is_off() {
    let off = "NodeDeclaredFeatures=false";
    check_feature(off, restarts_all(), &[], true);
}

#[test]
fn pods_come_back_when_a_node_declares_more() {
    let mut fixture = Fixture::new("");
    declare(&mut fixture, &[]);
    fixture.any_pod("p", &[], restarts_all());
    assert_eq!(fixture.run().node(), None);
    declare(&mut fixture, &["RestartAllContainersOnContainerExits"]);
    assert_eq!(fixture.run().node(), Some("n0"));
}
