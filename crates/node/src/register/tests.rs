use allot_apiserver::Server;
use allot_apiserver::identity::User;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};

use serde_json::Value;

use super::*;
use crate::runtime::Simulated;

/// A policy refuses as an invalid object is refused. The agent ended, and with it a cluster of one process.
#[tokio::test]
async fn regression_a_policy_does_not_end_the_agent() {
    let server = Server::in_memory().await.expect("a server");
    let client = Client::new(server.client_service(User::admin()), "default");
    let facts = Facts::of(&Simulated::default(), None, None, Pressed::default());
    let nodes = Api::all(client.clone());
    let wrong = Config::new("Wrong", "/");
    let error = try_register(&nodes, &wrong, &facts)
        .await
        .expect_err("refused");
    assert!(is_final(&error), "{error}");

    let policies = Api::<ValidatingAdmissionPolicy>::all(client.clone());
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(client);
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"], "operations": ["CREATE"]}]},
        "validations": [{"expression": "false"}],
    }});
    let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    let params = PostParams::default();
    let policy = serde_json::from_value(policy).expect("a policy");
    policies.create(&params, &policy).await.expect("the policy");
    let binding = serde_json::from_value(binding).expect("a binding");
    bindings
        .create(&params, &binding)
        .await
        .expect("the binding");
    let config = Config::new("n", "/");
    let error = try_register(&nodes, &config, &facts)
        .await
        .expect_err("refused");
    assert!(
        matches!(&error, kube::Error::Api(status) if status.code == 422),
        "{error}"
    );
    assert!(!is_final(&error), "{error}");
    let deleted = bindings.delete("p", &Default::default()).await;
    assert!(deleted.is_ok(), "{deleted:?}");
    try_register(&nodes, &config, &facts)
        .await
        .expect("registered");
}

#[test]
fn a_node_that_was_taken_for_lost_says_that_it_is_not() {
    let said = |status: &str, reason: &str| {
        json!({"conditions": [
            {"type": "Ready", "status": status, "reason": reason, "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
        ]})
    };
    let node = |status: Value| {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": status});
        serde_json::from_value::<Node>(node).expect("a node")
    };
    let own = said("True", "KubeletReady");
    let mut later = own.clone();
    later["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T01:00:00Z".into();
    assert!(!differs(&node(later), &own));
    assert!(differs(&node(said("Unknown", "NodeStatusUnknown")), &own));
    assert!(differs(&node(said("True", "Other")), &own));
    assert!(differs(&node(json!({})), &own));
    assert!(!differs(&node(own), &json!({})));
}

#[test]
fn another_boot_is_a_reboot() {
    let check = |before: Value, now: &str, expected: bool| {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": before});
        let node = serde_json::from_value::<Node>(node).expect("a node");
        assert_eq!(was_rebooted(&node, now), expected, "{node:?}, {now:?}");
    };
    let of = |boot: &str| {
        json!({"nodeInfo": {"architecture": "", "bootID": boot, "containerRuntimeVersion": "", "kernelVersion": "",
            "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""}})
    };
    check(of("a"), "b", true);
    check(of("a"), "a", false);
    // Nothing is known about the one before, or about this one.
    check(json!({}), "b", false);
    check(of(""), "b", false);
    check(of("a"), "", false);
}
