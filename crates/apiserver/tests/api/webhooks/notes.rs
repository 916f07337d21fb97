//! What admission leaves behind beside its decision: notes in the audit log, warnings, and numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_apiserver::Server;
use allot_apiserver::audit::{Audit, Log, Policy, Rotation};
use allot_apiserver::config::Config;
use allot_apiserver::identity::User;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::{Hooks, MAPS, MUTATING, VALIDATING, install, response, webhook};
use crate::{admin, with_config};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const OWNER: &str = "7b1d1b1e-0000-4000-8000-000000000001";

fn reply(path: &str, review: &Value) -> Option<(u16, Value)> {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": OWNER});
    let patch = match path.split('?').next().unwrap() {
        "/note" => json!([{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}]),
        "/owners" => {
            json!([{"op": "add", "path": "/metadata/ownerReferences", "value": [owner, owner]}])
        }
        "/fields" => json!([{"op": "remove", "path": "/metadata/managedFields/0/apiVersion"}]),
        _ => return Some((500, json!("no"))),
    };
    let answer = json!({
        "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string()),
        "auditAnnotations": {"seen": "yes"},
    });
    Some((200, response(review, answer)))
}

/// A server whose audit log has what is requested of a level.
async fn server(directory: &std::path::Path, level: &str) -> (Server, Arc<Audit>) {
    let policy = format!(
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- {{level: {level}, resources: [{{resources: [configmaps, pods]}}]}}\n- {{level: None}}\n"
    );
    let log = Log::open(&directory.join("log"), Rotation::default()).unwrap();
    let audit = Audit::new(Policy::parse(&policy).unwrap(), log);
    let config = Config {
        audit: Some(audit.clone()),
        disabled_admission: vec!["ServiceAccount".to_owned()],
        ..Config::default()
    };
    let server = with_config(config).await;
    (server, audit)
}

/// The notes about the last request that was logged, without those of the authorizer.
fn notes(directory: &std::path::Path, audit: &Audit) -> BTreeMap<String, String> {
    audit.flush();
    let text = std::fs::read_to_string(directory.join("log")).unwrap();
    let event: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let notes = event["annotations"].as_object().unwrap().iter();
    let notes = notes.filter(|(key, _)| !key.starts_with("authorization.k8s.io/"));
    notes
        .map(|(key, text)| (key.clone(), text.as_str().unwrap().to_owned()))
        .collect()
}

fn map_of<const N: usize>(wanted: [(&str, &str); N]) -> BTreeMap<String, String> {
    let wanted = wanted.into_iter();
    wanted
        .map(|(key, text)| (key.to_owned(), text.to_owned()))
        .collect()
}

#[tokio::test]
async fn calls_of_webhooks_are_noted() {
    let hooks = Hooks::start(reply).await;
    let open = json!({"failurePolicy": "Ignore"});
    let always = [
        ("a.example.com/seen", "yes"),
        (
            "failed-open.mutation.webhook.admission.k8s.io/round_0_index_1",
            "b.example.com",
        ),
        (
            "failed-open.validating.webhook.admission.k8s.io/round_0_index_0",
            "c.example.com",
        ),
        (
            "mutation.webhook.admission.k8s.io/round_0_index_0",
            r#"{"configuration":"w","webhook":"a.example.com","mutated":true}"#,
        ),
        (
            "mutation.webhook.admission.k8s.io/round_0_index_1",
            r#"{"configuration":"w","webhook":"b.example.com","mutated":false}"#,
        ),
    ];
    let patch = [(
        "patch.webhook.admission.k8s.io/round_0_index_0",
        r#"{"configuration":"w","webhook":"a.example.com","patch":[{"op":"add","path":"/metadata/labels","value":{"x":"y"}}],"patchType":"JSONPatch"}"#,
    )];
    for level in ["Metadata", "Request"] {
        let directory = tempfile::tempdir().unwrap();
        let (server, audit) = server(directory.path(), level).await;
        let mutating = [
            webhook("a", hooks.url("/note"), json!({})),
            webhook("b", hooks.url("/gone"), open.clone()),
        ];
        install(&server, MUTATING, "w", &mutating).await;
        let validating = [webhook("c", hooks.url("/gone"), open.clone())];
        install(&server, VALIDATING, "v", &validating).await;
        let map = json!({"metadata": {"name": "m"}});
        assert_eq!(admin(&server, "POST", MAPS, map).await.0, 201);
        let mut wanted = map_of(always);
        if level == "Request" {
            wanted.extend(map_of(patch));
        }
        assert_eq!(notes(directory.path(), &audit), wanted, "{level}");
    }
}

#[tokio::test]
async fn policies_and_levels_of_security_are_noted() {
    let directory = tempfile::tempdir().unwrap();
    let (server, audit) = server(directory.path(), "Metadata").await;
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
        ]},
        "validations": [{"expression": "true"}, {"expression": "object.metadata.name == 'x'", "message": "no"}],
        "auditAnnotations": [
            {"key": "name", "valueExpression": "string(object.metadata.name)"},
            {"key": "nothing", "valueExpression": "''"},
        ],
    }});
    assert_eq!(admin(&server, "POST", POLICIES, policy).await.0, 201);
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Audit"]}});
    assert_eq!(admin(&server, "POST", BINDINGS, binding).await.0, 201);
    let failure = r#"[{"message":"no","policy":"p","binding":"b","expressionIndex":1,"validationActions":["Audit"]}]"#;
    for (name, failure) in [("m", Some(failure)), ("x", None)] {
        let map = json!({"metadata": {"name": name}});
        assert_eq!(admin(&server, "POST", MAPS, map).await.0, 201);
        let mut wanted = map_of([("p/name", name)]);
        wanted.extend(failure.map(|it| {
            (
                "validation.policy.admission.k8s.io/validation_failure".to_owned(),
                it.to_owned(),
            )
        }));
        assert_eq!(notes(directory.path(), &audit), wanted);
    }
    let labels = json!({"pod-security.kubernetes.io/audit": "baseline"});
    let namespace = json!({"metadata": {"name": "watched", "labels": labels}});
    assert_eq!(
        admin(&server, "POST", "/api/v1/namespaces", namespace)
            .await
            .0,
        201
    );
    let enforced = (
        "pod-security.kubernetes.io/enforce-policy",
        "privileged:latest",
    );
    let violated = (
        "pod-security.kubernetes.io/audit-violations",
        "would violate PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)",
    );
    for (namespace, wanted) in [
        ("watched", map_of([enforced, violated])),
        ("default", map_of([enforced])),
    ] {
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        let pod = json!({"metadata": {"name": "p"}, "spec": {
            "hostNetwork": true, "containers": [{"name": "c", "image": "i"}],
        }});
        let (code, answer) = admin(&server, "POST", &pods, pod).await;
        assert_eq!(code, 201, "{answer}");
        assert_eq!(notes(directory.path(), &audit), wanted, "{namespace}");
    }
    let (_, _, numbers) = send_as(&server, "GET", "/metrics", "text/plain", String::new()).await;
    for line in [
        r#"pod_security_evaluations_total{decision="deny",mode="audit",policy_level="baseline",policy_version="latest",request_operation="create",resource="pod",subresource=""} 1"#,
        r#"pod_security_evaluations_total{decision="allow",mode="enforce",policy_level="privileged",policy_version="latest",request_operation="create",resource="pod",subresource=""} 2"#,
        r#"pod_security_exemptions_total{request_operation="create",resource="controller",subresource=""} 0"#,
    ] {
        assert!(numbers.contains(line), "{line} is not in {numbers}");
    }
}

/// Code, warnings and body of an answer to the administrator.
async fn send_as(
    server: &Server,
    method: &str,
    path: &str,
    kind: &str,
    body: String,
) -> (u16, Vec<String>, String) {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .header("user-agent", "tests/1");
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let response = server.handle(request, Some(User::admin())).await;
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|it| it.to_str().unwrap().to_owned()).collect();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, warnings, String::from_utf8(body.to_vec()).unwrap())
}

/// Objects kept both of the references that a webhook had added.
#[tokio::test]
async fn regression_what_webhooks_break_is_mended() {
    const REPEATED: &str = "contains duplicate entries after mutating admission happens";
    const FIELDS: &str = ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: apiVersion must not be empty";
    let hooks = Hooks::start(reply).await;
    for (hook, warning) in [("/owners", REPEATED), ("/fields", FIELDS)] {
        let server = Server::in_memory().await.unwrap();
        let both = json!({"rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]},
        ]});
        install(
            &server,
            MUTATING,
            "w",
            &[webhook("a", hooks.url(hook), both)],
        )
        .await;
        let object = format!("{MAPS}/m");
        // A manager is named for the fields that it sets.
        let map = json!({"metadata": {"name": "m"}, "data": {"k": "v"}}).to_string();
        let (plain, patch) = ("application/json", "application/merge-patch+json");
        for (method, path, kind, body) in [
            ("POST", MAPS, plain, map.as_str()),
            ("PUT", object.as_str(), plain, map.as_str()),
            ("PATCH", object.as_str(), patch, "{}"),
        ] {
            let (code, warnings, body) =
                send_as(&server, method, path, kind, body.to_owned()).await;
            assert!(matches!(code, 200 | 201), "{method} {hook}: {body}");
            assert_eq!(warnings.len(), 1, "{method} {hook}: {warnings:?}");
            assert!(
                warnings[0].contains(warning),
                "{method} {hook}: {warnings:?}"
            );
            let stored: Value = serde_json::from_str(&body).unwrap();
            let metadata = &stored["metadata"];
            assert_eq!(
                metadata["managedFields"][0]["apiVersion"], "v1",
                "{method} {hook}"
            );
            if hook == "/owners" {
                assert_eq!(
                    metadata["ownerReferences"].as_array().unwrap().len(),
                    1,
                    "{method}"
                );
            }
        }
    }
}

/// A request whose time is over is answered with a Status that has no kind, which clients of Go tell from an answer of
/// the API.
#[tokio::test]
async fn the_end_of_the_time_is_answered_as_text() {
    let hooks = Hooks::start(|_, _| None).await;
    let server = Server::in_memory().await.unwrap();
    install(
        &server,
        VALIDATING,
        "v",
        &[webhook("a", hooks.url("/"), json!({}))],
    )
    .await;
    let map = json!({"metadata": {"name": "m"}}).to_string();
    let path = format!("{MAPS}?timeout=1s");
    let (code, _, body) = send_as(&server, "POST", &path, "application/json", map).await;
    let text = "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Timeout: request did not complete within the allotted timeout\",\"reason\":\"Timeout\",\"details\":{},\"code\":504}\n";
    assert_eq!((code, body.as_str()), (504, text));
}

/// Reviews went past the webhooks, and mutating ones did not learn the name of a binding.
#[tokio::test]
async fn regression_webhooks_are_asked_about_reviews_and_bindings() {
    let hooks =
        Hooks::start(|_, review| Some((200, response(review, json!({"allowed": true}))))).await;
    let server = Server::in_memory().await.unwrap();
    let all = json!({"rules": [
        {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]},
    ]});
    for (kind, name) in [(MUTATING, "m"), (VALIDATING, "v")] {
        let hook = webhook(name, hooks.url(&format!("/{name}")), all.clone());
        install(&server, kind, name, &[hook]).await;
    }
    let access = json!({"resourceAttributes": {"verb": "get", "resource": "pods"}});
    let target = json!({"kind": "Node", "name": "n"});
    for (path, body, code, kind, name) in [
        (
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": access}),
            201,
            "SelfSubjectAccessReview",
            Value::Null,
        ),
        (
            "/apis/authentication.k8s.io/v1/tokenreviews",
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "t"}}),
            201,
            "TokenReview",
            Value::Null,
        ),
        (
            "/api/v1/namespaces/default/bindings",
            json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target}),
            404,
            "Binding",
            "p".into(),
        ),
    ] {
        let (found, answer) = admin(&server, "POST", path, body).await;
        assert_eq!(found, code, "{answer}");
        let asked = hooks.take_requests();
        let paths: Vec<&str> = asked.iter().map(|(path, _)| &path[..2]).collect();
        assert_eq!(paths, ["/m", "/v"], "{path}");
        for (_, review) in &asked {
            let request = &review["request"];
            assert_eq!(request["kind"]["kind"], kind, "{review}");
            assert_eq!(request["object"]["kind"], kind, "{review}");
            assert_eq!(request["name"], name, "{review}");
        }
    }
}
