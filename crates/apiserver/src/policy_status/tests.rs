use serde_json::json;

use super::*;
use crate::builtin;

fn check(spec: Value, expected: &[(&str, &str)]) {
    let config = crate::config::Config::default();
    let registry = builtin::registry(&config.runtime_config, config.features.release());
    let found = warnings(&json!({"spec": spec}), &registry);
    let found: Vec<(&str, &str)> = found
        .iter()
        .map(|it| (text(it, &["fieldRef"]), text(it, &["warning"])))
        .collect();
    assert_eq!(found, expected, "{spec}");
}

fn rule(group: &str, version: &str, resource: &str) -> Value {
    json!({"apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": ["*"]})
}

fn deployments(expression: &str) -> Value {
    json!({
        "matchConstraints": {"resourceRules": [rule("apps", "v1", "deployments")]},
        "validations": [{"expression": expression}],
    })
}

const FIRST: &str = "spec.validations[0].expression";

#[test]
fn fields_that_a_kind_does_not_have_are_named() {
    check(deployments("object.spec.replicas > 1"), &[]);
    check(
        deployments("object.replicas > 1"),
        &[(
            FIRST,
            "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'replicas'\n | object.replicas > 1\n | ......^\n",
        )],
    );
    check(
        deployments("object.spec.replicas > '1'"),
        &[(
            FIRST,
            "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'\n | object.spec.replicas > '1'\n | .....................^\n",
        )],
    );
}

#[test]
fn each_kind_that_a_rule_names_is_checked() {
    // No group means any.
    let spec = json!({
        "matchConstraints": {"resourceRules": [rule("", "v1", "events")]},
        "validations": [{"expression": "object.count > 1", "messageExpression": "object.nothing"}],
    });
    check(
        spec,
        &[
            (
                FIRST,
                "events.k8s.io/v1, Kind=Event: ERROR: <input>:1:7: undefined field 'count'\n | object.count > 1\n | ......^\n",
            ),
            (
                "spec.validations[0].messageExpression",
                "/v1, Kind=Event: ERROR: <input>:1:7: undefined field 'nothing'\n | object.nothing\n | ......^\n\nevents.k8s.io/v1, Kind=Event: ERROR: <input>:1:7: undefined field 'nothing'\n | object.nothing\n | ......^\n",
            ),
        ],
    );
    for rule in [
        rule("*", "v1", "pods"),
        rule("", "*", "pods"),
        rule("", "v1", "*"),
        rule("", "v1", "pods/status"),
    ] {
        let spec = json!({
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "object.nothing"}],
        });
        check(spec, &[]);
    }
}

#[test]
fn parameters_and_variables_have_types() {
    let spec = |expression: &str| {
        json!({
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": [rule("", "v1", "configmaps")]},
            "variables": [{"name": "wrong", "expression": "object.nothing"}, {"name": "n", "expression": "1"}],
            "validations": [{"expression": expression}],
        })
    };
    check(spec("params.data['a'] == 'b'"), &[]);
    // What is wrong with a variable is not reported, and whatever uses it is fine.
    check(spec("variables.wrong.x == variables.n"), &[]);
    check(
        spec("variables.n == params.data['a']"),
        &[(
            FIRST,
            "/v1, Kind=ConfigMap: ERROR: <input>:1:13: found no matching overload for '_==_' applied to '(int, string)'\n | variables.n == params.data['a']\n | ............^\n",
        )],
    );
}
