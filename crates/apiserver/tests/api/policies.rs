//! Admission policies for users other than the administrator, and over restarts.

use std::sync::Arc;

use allot_apiserver::Server;
use allot_apiserver::config::Config;
use allot_apiserver::identity::User;
use allot_store::{Embedded, Options};
use allot_testing::wait::PATIENCE;
use serde_json::{Value, json};

use crate::{admin, send};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const ROLE_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

async fn install(server: &Server, name: &str, spec: Value) {
    let policy = json!({"metadata": {"name": name}, "spec": spec});
    let (code, answer) = admin(server, "POST", POLICIES, policy).await;
    assert_eq!(code, 201, "{answer}");
    let spec = json!({"policyName": name, "validationActions": ["Deny"]});
    let binding = json!({"metadata": {"name": name}, "spec": spec});
    let (code, answer) = admin(server, "POST", BINDINGS, binding).await;
    assert_eq!(code, 201, "{answer}");
}

/// Grants a permission to all authenticated users.
async fn allow(server: &Server, name: &str, rule: Value) {
    let role = json!({"metadata": {"name": name}, "rules": [rule]});
    assert_eq!(admin(server, "POST", ROLES, role).await.0, 201);
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": name}, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "Group", "apiGroup": group, "name": "system:authenticated"}],
    });
    assert_eq!(admin(server, "POST", ROLE_BINDINGS, binding).await.0, 201);
}

async fn post(server: &Server, user: &User, path: &str, body: Value) -> (u16, String) {
    let body = body.to_string();
    let kind = "application/json";
    let (code, answer) = send(server, user.clone(), "POST", path, kind, body.as_bytes()).await;
    (
        code,
        answer["message"].as_str().unwrap_or_default().to_owned(),
    )
}

/// Policies were not asked about configurations of webhooks, which upstream exempts from webhooks only.
#[tokio::test]
async fn regression_policies_apply_to_configurations_of_webhooks() {
    let server = Server::in_memory().await.unwrap();
    let rule = json!({
        "apiGroups": ["admissionregistration.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"],
        "resources": ["*"],
    });
    let spec = json!({
        "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false", "message": "no"}],
    });
    install(&server, "all", spec).await;
    let group = "/apis/admissionregistration.k8s.io/v1";
    for (plural, code) in [
        ("validatingwebhookconfigurations", 422),
        ("mutatingwebhookconfigurations", 422),
        ("validatingadmissionpolicybindings", 201),
    ] {
        let object = match code {
            201 => {
                json!({"metadata": {"name": "x"}, "spec": {"policyName": "y", "validationActions": ["Deny"]}})
            }
            _ => json!({"metadata": {"name": "x"}}),
        };
        let path = format!("{group}/{plural}");
        let (found, answer) = admin(&server, "POST", &path, object).await;
        assert_eq!(found, code, "{plural}: {answer}");
    }
}

/// As charts of drivers install it: the account of the driver writes only the slices of its own node.
#[tokio::test]
async fn a_driver_is_kept_to_its_node() {
    const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
    let server = Server::in_memory().await.unwrap();
    let account = "system:serviceaccount:gpu:driver";
    let rule = json!({
        "apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["create", "delete"],
    });
    allow(&server, "slices", rule).await;
    let policy = json!({
        "matchConstraints": {"resourceRules": [{
            "apiGroups": ["resource.k8s.io"], "apiVersions": ["v1", "v1beta1"],
            "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["resourceslices"],
        }]},
        "matchConditions": [
            {"name": "restricted", "expression": format!("request.userInfo.username == '{account}'")},
        ],
        "variables": [
            {"name": "userNode",
             "expression": "request.userInfo.extra[?'authentication.kubernetes.io/node-name'][0].orValue('')"},
            {"name": "objectNode",
             "expression": "(request.operation == 'DELETE' ? oldObject : object).spec.?nodeName.orValue('')"},
        ],
        "validations": [
            {"expression": "variables.userNode != ''", "message": "no node association found for user"},
            {"expression": "variables.userNode == variables.objectNode",
             "messageExpression": "'this user running on node ' + variables.userNode + ' may not modify ' + \
                 (variables.objectNode == '' ? 'cluster resourceslices' : 'resourceslices on node ' + variables.objectNode)"},
        ],
    });
    install(&server, "slices", policy).await;
    let slice = |node: &str| {
        json!({"metadata": {"name": node}, "spec": {
            "driver": "gpu.example.com", "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": [],
        }})
    };
    let groups = ["system:serviceaccounts"];
    let mut nowhere = User::new(account, groups);
    // Every token of an account has one.
    let id = "authentication.kubernetes.io/credential-id".to_owned();
    nowhere.extra.insert(id, vec!["JTI=1".to_owned()]);
    let mut here = nowhere.clone();
    let node = "authentication.kubernetes.io/node-name".to_owned();
    here.extra.insert(node, vec!["a".to_owned()]);
    let by = "ValidatingAdmissionPolicy 'slices' with binding 'slices' denied request";
    let refused = |node: &str, why: &str| {
        let text = format!("resourceslices.resource.k8s.io {node:?} is forbidden: {by}: {why}");
        (422, text)
    };
    let (code, _) = post(&server, &here, SLICES, slice("a")).await;
    assert_eq!(code, 201);
    let why = "this user running on node a may not modify resourceslices on node b";
    assert_eq!(
        post(&server, &here, SLICES, slice("b")).await,
        refused("b", why)
    );
    let why = "no node association found for user";
    assert_eq!(
        post(&server, &nowhere, SLICES, slice("b")).await,
        refused("b", why)
    );
    // It does not apply to other users.
    let (code, _) = admin(&server, "POST", SLICES, slice("b")).await;
    assert_eq!(code, 201);
    let (code, _) = send(&server, here, "DELETE", &format!("{SLICES}/b"), "", b"").await;
    assert_eq!(code, 422);
}

#[tokio::test]
async fn policies_are_there_after_a_restart() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let backend = Arc::new(Embedded::in_memory(Options::default()));
    let start = async || {
        let server = Server::new(backend.clone(), Config::default());
        server.bootstrap().await.unwrap();
        server
    };
    let policy = json!({
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
        ]},
        "validations": [{"expression": "object.metadata.name != 'no'"}],
    });
    let map = json!({"metadata": {"name": "no"}});
    let server = start().await;
    assert_eq!(
        admin(&server, "POST", &format!("{MAPS}?dryRun=All"), map.clone())
            .await
            .0,
        201
    );
    install(&server, "maps", policy).await;
    assert_eq!(admin(&server, "POST", MAPS, map.clone()).await.0, 422);
    server.shutdown();
    let server = start().await;
    assert_eq!(admin(&server, "POST", MAPS, map.clone()).await.0, 422);
    let gone = admin(&server, "DELETE", &format!("{BINDINGS}/maps"), Value::Null).await;
    assert_eq!(gone.0, 200);
    assert_eq!(admin(&server, "POST", MAPS, map).await.0, 201);
}

#[tokio::test]
async fn parameters_are_for_those_who_may_read_them() {
    let server = Server::in_memory().await.unwrap();
    let rule = json!({
        "apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["create"],
    });
    allow(&server, "policies", rule).await;
    let user = User::new("alice", ["team"]);
    let policy = json!({"metadata": {"name": "secrets"}, "spec": {
        "paramKind": {"apiVersion": "v1", "kind": "Secret"},
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
        ]},
        "validations": [{"expression": "true"}],
    }});
    let binding = json!({"metadata": {"name": "secrets"}, "spec": {
        "policyName": "secrets", "validationActions": ["Deny"],
        "paramRef": {"name": "a", "namespace": "default", "parameterNotFoundAction": "Allow"},
    }});
    let who = "user &{alice  [team system:authenticated] map[]}";
    assert_eq!(
        post(&server, &user, POLICIES, policy.clone()).await,
        (
            422,
            format!(
                "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"secrets\" is invalid: spec.paramKind: Forbidden: \
             {who} must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)"
            )
        )
    );
    assert_eq!(admin(&server, "POST", POLICIES, policy).await.0, 201);
    assert_eq!(
        post(&server, &user, BINDINGS, binding.clone()).await,
        (
            422,
            format!(
                "ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io \"secrets\" is invalid: spec.paramRef: \
             Forbidden: {who} does not have \"get\" permission on the object referenced by paramRef"
            )
        )
    );
    let rule = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]});
    allow(&server, "secrets", rule).await;
    assert_eq!(post(&server, &user, BINDINGS, binding).await.0, 201);
}

/// A request that had been answered with 504 went on with all parameters, which others than the author of the policy make.
#[tokio::test]
async fn regression_many_parameters_end_with_the_time_of_the_request() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let server = Server::in_memory().await.unwrap();
    let data: serde_json::Map<String, Value> =
        (0..100).map(|at| (format!("k{at}"), json!("v"))).collect();
    for at in 0..300 {
        let labels = json!({"params": "yes"});
        let map = json!({"metadata": {"name": format!("p{at}"), "labels": labels}, "data": data});
        assert_eq!(admin(&server, "POST", MAPS, map).await.0, 201);
    }
    let all = "params.data.all(a, params.data.all(b, params.data.all(c, a + b + c != '')))";
    let policy = json!({"metadata": {"name": "costly"}, "spec": {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
        ]},
        "validations": [{"expression": all}],
    }});
    let binding = json!({"metadata": {"name": "costly"}, "spec": {
        "policyName": "costly", "validationActions": ["Deny"],
        "paramRef": {"selector": {"matchLabels": {"params": "yes"}}, "parameterNotFoundAction": "Allow"},
    }});
    assert_eq!(admin(&server, "POST", POLICIES, policy).await.0, 201);
    assert_eq!(admin(&server, "POST", BINDINGS, binding).await.0, 201);
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    // Each parameter takes a million steps. Without a look at the time the answer is that of the policy.
    let path = "/api/v1/namespaces/default/pods?timeout=200ms";
    let (code, answer) = admin(&server, "POST", path, pod("a")).await;
    assert_eq!(code, 504, "{answer}");
}

/// An expression that the end of the time interrupts has failed, which `failurePolicy: Ignore` permits: the client got 504, and the
/// object was stored nevertheless.
#[tokio::test]
async fn regression_a_short_timeout_does_not_skip_a_policy() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let server = Server::in_memory().await.unwrap();
    let all =
        "object.data.all(a, object.data.all(b, object.data.all(c, a + b + c != ''))) && false";
    let policy = json!({"metadata": {"name": "costly"}, "spec": {
        "failurePolicy": "Ignore",
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
        ]},
        "validations": [{"expression": all}],
    }});
    let binding = json!({"metadata": {"name": "costly"}, "spec": {
        "policyName": "costly", "validationActions": ["Deny"],
    }});
    assert_eq!(admin(&server, "POST", POLICIES, policy).await.0, 201);
    assert_eq!(admin(&server, "POST", BINDINGS, binding).await.0, 201);
    let data: serde_json::Map<String, Value> =
        (0..30).map(|at| (format!("k{at}"), json!("v"))).collect();
    for timeout in ["5ms", "20ms", "50ms"] {
        let map = json!({"metadata": {"name": "m"}, "data": data});
        let path = format!("{MAPS}?timeout={timeout}");
        let (code, answer) = admin(&server, "POST", &path, map).await;
        assert!(matches!(code, 422 | 504), "{code}: {answer}");
        let stored = admin(&server, "GET", &format!("{MAPS}/m"), Value::Null).await;
        assert_eq!(stored.0, 404, "{timeout}");
    }
}

/// What authors of policies see of mistakes that only show where a policy is asked.
#[tokio::test]
async fn the_status_of_a_policy_says_what_does_not_fit_the_types() {
    let server = Server::in_memory().await.unwrap();
    server.check_policy_types();
    let named = format!("{POLICIES}/typed");
    let status = async |generation: i64| {
        let wait = async {
            loop {
                let policy = admin(&server, "GET", &named, Value::Null).await.1;
                if policy["status"]["observedGeneration"] == generation {
                    return policy;
                }
                tokio::task::yield_now().await;
            }
        };
        let wait = tokio::time::timeout(PATIENCE, wait);
        wait.await.expect("the status is written")
    };
    let spec = |expression: &str| {
        json!({
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"],
            }]},
            "validations": [{"expression": expression}],
        })
    };
    install(&server, "typed", spec("object.replicas > 1")).await;
    let policy = status(1).await;
    let warning = "/v1, Kind=Pod: ERROR: <input>:1:7: undefined field 'replicas'\n | object.replicas > 1\n | ......^\n";
    let warnings = json!([{"fieldRef": "spec.validations[0].expression", "warning": warning}]);
    let expected =
        json!({"observedGeneration": 1, "typeChecking": {"expressionWarnings": warnings}});
    assert_eq!(policy["status"], expected);
    let owner = &policy["metadata"]["managedFields"][0];
    assert_eq!(owner["manager"], "validatingadmissionpolicy-status");
    assert_eq!(owner["operation"], "Apply");
    assert_eq!(owner["subresource"], "status");

    let mended = json!({"spec": spec("object.spec.hostNetwork == true")});
    assert_eq!(admin(&server, "PATCH", &named, mended).await.0, 200);
    let expected = json!({"observedGeneration": 2, "typeChecking": {}});
    assert_eq!(status(2).await["status"], expected);
}
