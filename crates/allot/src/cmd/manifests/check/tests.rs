use super::*;
use serde_json::json;

/// The errors of an object, one line each.
fn check(object: Value, expected: &str) {
    let found = problems(&object, Release::DEFAULT, false);
    let lines = found.iter().map(|(field, text)| format!("{field}: {text}"));
    assert_eq!(lines.collect::<Vec<_>>().join("\n"), expected);
}

fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "n"}, "spec": spec})
}

#[test]
fn mistyped_fields_are_found_wherever_they_are() {
    let pod = |spec: Value| {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n"}, "spec": spec})
    };
    check(
        pod(json!({"containrs": []})),
        "spec.containrs: unknown field \"spec.containrs\"; did you mean containers?",
    );
    let container = json!({"name": "c", "imgae": "x"});
    let template = json!({"spec": {"containers": [container]}});
    check(
        deployment(json!({"selector": {"matchLabels": {"a": "b"}}, "template": template})),
        "spec.template.spec.containers[0].imgae: unknown field \"spec.template.spec.containers[0].imgae\"; did you mean image?",
    );
    check(
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": "c"}, "spec": {"devices": {"requests": [
                {"name": "r", "exactly": {"deviceClasName": "gpu"}}]}}}),
        "spec.devices.requests[0].exactly.deviceClasName: unknown field \"spec.devices.requests[0].exactly.deviceClasName\"; did you mean deviceClassName?",
    );
}

#[test]
fn what_the_server_refuses_is_refused() {
    let found = problems(&deployment(json!({})), Release::DEFAULT, false);
    assert!(
        found.iter().any(|(field, _)| field == "spec.selector"),
        "{found:?}"
    );
    let found = problems(
        &json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
            "metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": "1"}}]}}),
        Release::DEFAULT,
        false,
    );
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn what_a_server_wrote_is_taken() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": []},
        "spec": {"containers": [{"name": "c", "image": "x"}], "nodeName": "n"},
        "status": {"phase": "Running", "podIP": "10.0.0.1"}});
    check(pod, "");
    check(
        json!({"apiVersion": "example.com/v1", "kind": "Other", "anything": 1}),
        "",
    );
}

#[test]
fn regression_a_misspelt_kind_is_named() {
    check(
        json!({"apiVersion": "apps/v1", "kind": "Deploymnt", "metadata": {"name": "d"}}),
        "kind: there is no kind Deploymnt in apps/v1; did you mean Deployment?",
    );
    check(
        json!({"apiVersion": "v1", "kind": "pod", "metadata": {"name": "p"}}),
        "kind: there is no kind pod in v1; did you mean Pod?",
    );
}

#[test]
fn custom_resources_are_checked_by_their_definition() {
    let size = json!({"type": "integer", "maximum": 5});
    let spec = json!({"type": "object", "properties": {"size": size}});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": schema}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition", "metadata": {"name": "cats.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "cats", "kind": "Cat"}, "versions": [version]}});
    let server = Server::new(Release::DEFAULT, [&definition, &json!({"kind": "Pod"})]);
    let check = |api: &str, spec: Value, expected: &str| {
        let cat =
            json!({"apiVersion": api, "kind": "Cat", "metadata": {"name": "c"}, "spec": spec});
        let found = server.problems(&cat);
        let lines = found.iter().map(|(field, text)| format!("{field}: {text}"));
        assert_eq!(lines.collect::<Vec<_>>().join("\n"), expected);
    };
    check("example.com/v1", json!({"size": 3}), "");
    check(
        "example.com/v1",
        json!({"sizes": 3}),
        "spec.sizes: unknown field \"spec.sizes\"; did you mean size?",
    );
    check(
        "example.com/v1",
        json!({"size": 7}),
        "spec.size: Invalid value: 7: spec.size in body should be less than or equal to 5",
    );
    check(
        "example.com/v2",
        json!({}),
        "apiVersion: Cat of example.com is served in v1, not in v2",
    );
}

#[test]
fn a_definition_need_not_say_what_the_server_adds() {
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let names = json!({"plural": "cats", "kind": "Cat"});
    check(
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "cats.example.com"}, "spec": {"group": "example.com",
                "scope": "Namespaced", "names": names, "versions": [version]}}),
        "",
    );
}

/// They were refused for what the server adds: the selector of a Job, and the addresses of a headless Service.
#[test]
fn regression_what_the_server_completes_is_not_missing() {
    let template = json!({"spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "image": "x"}]}});
    check(
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "n"},
            "spec": {"template": template}}),
        "",
    );
    check(
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "n"},
            "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]}}),
        "",
    );
}

/// Their plurals are not regular, and they were not validated.
#[test]
fn regression_kinds_with_other_plurals_are_validated() {
    for (api, kind, spec) in [
        (
            "networking.k8s.io/v1",
            "NetworkPolicy",
            json!({"policyTypes": ["Sideways"]}),
        ),
        ("networking.k8s.io/v1", "Ingress", json!({})),
    ] {
        let object = json!({"apiVersion": api, "kind": kind,
            "metadata": {"name": "x", "namespace": "n"}, "spec": spec});
        let found = problems(&object, Release::DEFAULT, false);
        assert!(!found.is_empty(), "{kind}");
    }
}

/// `explain -f` listed nodes for a pod that the server rejects.
#[test]
fn regression_names_that_the_server_refuses_are_refused() {
    let pod = |metadata: Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"containers": [{"name": "c", "image": "x"}]}})
    };
    let refused = |object: Value| {
        let found = problems(&object, Release::DEFAULT, false);
        found
            .into_iter()
            .map(|(field, _)| field)
            .collect::<Vec<_>>()
    };
    assert_eq!(refused(pod(json!({"name": "größe"}))), ["metadata.name"]);
    assert_eq!(refused(pod(json!({"generateName": "P_"}))).len(), 2);
    assert_eq!(
        refused(pod(json!({"name": "p", "labels": {"a b": "c"}}))),
        ["metadata.labels"]
    );
    assert!(refused(pod(json!({"name": "p"}))).is_empty());
    assert!(refused(pod(json!({"generateName": "p-"}))).is_empty());
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    assert!(refused(node).is_empty());
}
