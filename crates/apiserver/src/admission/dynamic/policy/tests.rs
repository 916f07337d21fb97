//! What policies decide, beside what upstream's own library (k8s.io/apiserver 0.36.2) decided.

use std::sync::Arc;

use allot_cel::authorization::{Answers, Check, Decision};
use serde_json::json;

use super::*;

/// What a policy with one validation has against the object of the file, in its words.
fn refused(file: &Value, case: &Value) -> Option<String> {
    let (object, null) = (&file["object"], &Value::Null);
    let is = |key: &str| case[key] == true;
    let pairs = file["variables"].as_array().into_iter().flatten();
    let pairs = pairs.filter(|_| is("variables"));
    let variables: Vec<Value> = pairs
        .map(|pair| json!({"name": pair[0], "expression": pair[1]}))
        .collect();
    let mut policy = json!({"spec": {
        "variables": variables,
        "validations": [{"expression": case["expression"], "messageExpression": case["message"]}],
    }});
    if is("params") {
        policy["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    }
    let policy = Policy::compile(&policy, 0);
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    let request = json!({
        "kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource,
        "operation": "CREATE", "name": "m", "namespace": "default", "dryRun": false,
        "userInfo": {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]},
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    });
    let namespace = json!({
        "metadata": {"name": "default", "labels": {"kubernetes.io/metadata.name": "default"}},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    });
    let (check, answers) = (Check::default(), Arc::new(Answers::default()));
    let scene = EvaluationContext {
        object: if is("deleted") { null } else { object },
        old: if is("deleted") || is("updated") {
            object
        } else {
            null
        },
        namespace: &namespace,
        request: &request,
        params: is("params").then_some(&file["params"]),
        variables: &policy.definition.variables,
        check: &check,
        answers: &answers,
    };
    loop {
        let refusals = policy.judge(&scene).refusals;
        let wanted = answers.wanted();
        if wanted.is_empty() {
            return refusals.into_iter().next().map(|refusal| refusal.message);
        }
        for check in wanted {
            let allowed = check.verb == "get";
            let reason = if allowed { "yes" } else { "" };
            let decision = Decision {
                allowed,
                reason: reason.to_owned(),
                ..Decision::default()
            };
            answers.put(check, decision);
        }
    }
}

#[test]
fn decisions_are_upstreams() {
    let file: Value = serde_json::from_str(include_str!("decisions.json")).unwrap();
    let cases = file["cases"].as_array().unwrap();
    assert!(cases.len() > 150);
    let mut wrong = Vec::new();
    for case in cases {
        let (found, expected) = (refused(&file, case), case["refused"].as_str());
        if found.as_deref() != expected {
            wrong.push(format!("{case}\n  found {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
