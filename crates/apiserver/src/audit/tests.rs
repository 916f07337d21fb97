use std::path::Path;

use http_body_util::{BodyExt, Full};
use serde_json::json;

use super::*;
use crate::config::Config;
use crate::server::{Distrusted, Server};

async fn server(policy: &str, file: &Path, rotation: Rotation) -> (Server, Arc<Audit>) {
    let policy = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{policy}");
    let log = Log::open(file, rotation).unwrap();
    let audit = Audit::new(Policy::parse(&policy).unwrap(), log);
    let backend = Arc::new(allot_store::Embedded::in_memory(
        allot_store::Options::default(),
    ));
    let server = Server::new(
        backend,
        Config {
            audit: Some(audit.clone()),
            ..Config::default()
        },
    );
    server.bootstrap().await.unwrap();
    (server, audit)
}

async fn send(
    server: &Server,
    user: User,
    method: &str,
    path: &str,
    body: Value,
) -> http::HeaderMap {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .header("user-agent", "tests/1")
        .header("x-forwarded-for", "192.0.2.7, nonsense")
        .body(Full::new(bytes::Bytes::from(body)))
        .unwrap();
    let response = server.handle(request, Some(user)).await;
    let headers = response.headers().clone();
    let _ = response.into_body().collect().await.unwrap();
    headers
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

#[tokio::test]
async fn events_say_what_the_policy_wants() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.log");
    let rules = "rules:\n- {level: Metadata, resources: [{resources: [secrets]}]}\n- {level: RequestResponse}";
    let (server, audit) = server(rules, &file, Rotation::default()).await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "hidden"}});
    let secrets = "/api/v1/namespaces/default/secrets";
    let headers = send(&server, User::admin(), "POST", secrets, secret).await;
    let map = json!({"metadata": {"name": "m"}, "data": {"shown": "yes"}});
    let maps = "/api/v1/namespaces/default/configmaps";
    send(&server, User::admin(), "POST", maps, map).await;
    send(
        &server,
        User::new("jane", ["people"]),
        "GET",
        "/api/v1/pods?limit=3",
        Value::Null,
    )
    .await;
    audit.flush();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("hidden") && text.contains("shown"), "{text}");
    let events = lines(&file);
    assert_eq!(events.len(), 6, "{text}");
    let [received, complete] = [&events[0], &events[1]];
    assert_eq!(received["stage"], "RequestReceived");
    assert_eq!(complete["stage"], "ResponseComplete");
    assert_eq!(complete["auditID"], headers["audit-id"].to_str().unwrap());
    assert_eq!(received["auditID"], complete["auditID"]);
    let mut known = complete.clone();
    for key in ["auditID", "requestReceivedTimestamp", "stageTimestamp"] {
        assert!(known[key].is_string());
        known.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(
        known,
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "stage": "ResponseComplete",
            "requestURI": secrets, "verb": "create",
            "user": {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]},
            "sourceIPs": ["192.0.2.7", "127.0.0.1"], "userAgent": "tests/1",
            "objectRef": {"resource": "secrets", "namespace": "default", "name": "s", "apiVersion": "v1"},
            "responseStatus": {"metadata": {}, "code": 201},
            "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
        })
    );
    assert_eq!(events[3]["requestObject"]["data"]["shown"], "yes");
    assert_eq!(events[3]["responseObject"]["kind"], "ConfigMap");
    let refused = &events[5];
    assert_eq!(refused["user"]["username"], "jane");
    assert_eq!(refused["requestURI"], "/api/v1/pods?limit=3");
    assert_eq!(
        refused["annotations"]["authorization.k8s.io/decision"],
        "forbid"
    );
    assert_eq!(refused["responseStatus"]["code"], 403);
    assert_eq!(refused["responseStatus"]["reason"], "Forbidden");
}

/// Requests with a certificate that is not trusted were answered before the log could have them.
#[tokio::test]
async fn regression_requests_with_distrusted_certificates_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.log");
    let policy = "omitStages: [RequestReceived]\nrules: [{level: Metadata}]";
    let (server, audit) = server(policy, &file, Rotation::default()).await;
    for (path, token) in [
        ("/api/v1/secrets", None),
        ("/livez", None),
        ("/livez", Some("Basic YTpi")),
        ("/livez", Some("Bearer wrong")),
    ] {
        let mut request = http::Request::get(path);
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let mut request = request.body(Full::new(bytes::Bytes::new())).unwrap();
        request.extensions_mut().insert(Distrusted);
        let response = server.handle(request, None).await;
        assert_eq!(response.status(), 401, "{path} {token:?}");
        assert!(response.headers().contains_key("audit-id"));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["reason"], "Unauthorized");
    }
    audit.flush();
    let events = lines(&file);
    assert_eq!(events.len(), 4, "{events:?}");
    for event in events {
        assert_eq!(event["responseStatus"]["code"], 401, "{event}");
        assert_eq!(event["user"], json!({}), "{event}");
    }
}

#[tokio::test]
async fn impersonation_and_streams_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.log");
    let (server, audit) = server("rules: [{level: Metadata}]", &file, Rotation::default()).await;
    let request = http::Request::get("/api/v1/configmaps?watch=true&timeoutSeconds=1")
        .header("impersonate-user", "jane")
        .header("impersonate-group", "system:masters")
        .body(Full::new(bytes::Bytes::new()))
        .unwrap();
    let response = server.handle(request, Some(User::admin())).await;
    audit.flush();
    let stages = |events: &[Value]| -> Vec<String> {
        let stage = |event: &Value| event["stage"].as_str().unwrap().to_owned();
        events.iter().map(stage).collect()
    };
    assert_eq!(
        stages(&lines(&file)),
        ["RequestReceived", "ResponseStarted"]
    );
    drop(response);
    audit.flush();
    let events = lines(&file);
    assert_eq!(
        stages(&events),
        ["RequestReceived", "ResponseStarted", "ResponseComplete"]
    );
    assert_eq!(events[2]["user"]["username"], "kubernetes-admin");
    assert_eq!(events[2]["impersonatedUser"]["username"], "jane");
    // The old mode has no constraint.
    assert_eq!(events[2]["authenticationMetadata"], Value::Null);
}

/// A decision about a request with a field selector was noted without it, as one that the request had not got.
#[tokio::test]
async fn the_log_has_the_decision_that_counted() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.log");
    let (server, audit) = server("rules: [{level: Metadata}]", &file, Rotation::default()).await;
    let node = || User::new("system:node:n1", [crate::identity::NODES]);
    for selector in ["?fieldSelector=spec.nodeName%3Dn1", ""] {
        let path = format!("/api/v1/pods{selector}");
        send(&server, node(), "GET", &path, Value::Null).await;
    }
    audit.flush();
    let decisions: Vec<_> = lines(&file)
        .iter()
        .filter(|event| event["stage"] == "ResponseComplete")
        .map(|event| {
            let decision = &event["annotations"]["authorization.k8s.io/decision"];
            (event["responseStatus"]["code"].clone(), decision.clone())
        })
        .collect();
    let expected =
        [(200, "allow"), (403, "forbid")].map(|(code, decision)| (json!(code), json!(decision)));
    assert_eq!(decisions, expected);
}

#[tokio::test]
async fn the_mode_of_impersonation_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.log");
    let (server, audit) = server("rules: [{level: Metadata}]", &file, Rotation::default()).await;
    let rule = |verb: &str, group: &str, resource: &str| json!({"verbs": [verb], "apiGroups": [group], "resources": [resource]});
    let rules = json!([
        rule("impersonate:user-info", "authentication.k8s.io", "users"),
        rule("impersonate-on:user-info:list", "", "configmaps"),
    ]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    send(
        &server,
        User::admin(),
        "POST",
        &format!("{rbac}/clusterroles"),
        role,
    )
    .await;
    let binding = json!({
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    });
    send(
        &server,
        User::admin(),
        "POST",
        &format!("{rbac}/clusterrolebindings"),
        binding,
    )
    .await;
    let request = http::Request::get("/api/v1/configmaps")
        .header("impersonate-user", "jane")
        .body(Full::new(bytes::Bytes::new()))
        .unwrap();
    server
        .handle(request, Some(User::new("bob", ["people"])))
        .await;
    audit.flush();
    let events = lines(&file);
    let last = events.last().unwrap();
    assert_eq!(last["impersonatedUser"]["username"], "jane", "{last}");
    let metadata = json!({"impersonationConstraint": "impersonate:user-info"});
    assert_eq!(last["authenticationMetadata"], metadata);
}

/// Large answers are made while they are sent, and are in the log nevertheless.
#[tokio::test]
async fn answers_that_are_streamed_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.log");
    let policy = "rules: [{level: RequestResponse, verbs: [list]}]";
    let (server, audit) = server(policy, &file, Rotation::default()).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let send = async |request: http::request::Builder, body: Value| {
        let body = Full::new(bytes::Bytes::from(body.to_string()));
        let request = request.header("content-type", "application/json");
        server
            .handle(request.body(body).unwrap(), Some(User::admin()))
            .await
    };
    for number in 0..3 {
        let map =
            json!({"metadata": {"name": format!("m-{number}")}, "data": {"x": "y".repeat(50_000)}});
        assert_eq!(send(http::Request::post(path), map).await.status(), 201);
    }
    let list = async || {
        send(http::Request::get(path), Value::Null)
            .await
            .into_body()
    };
    let body = list().await;
    assert_eq!(body.whole_size(), None, "not a stream");
    let sent = body.collect().await.unwrap().to_bytes();
    audit.flush();
    let events = lines(&file);
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(events[1]["stage"], "ResponseComplete");
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    assert_eq!(events[1]["responseObject"], sent);
    // The body is not read to its end.
    drop(list().await);
    audit.flush();
    let last = lines(&file).pop().unwrap();
    assert_eq!(last["stage"], "ResponseComplete");
    assert_eq!(last["responseStatus"]["code"], 200);
    assert_eq!(last["annotations"][STREAMED], "true");
    assert_eq!(last["responseObject"], Value::Null);
    // All of it together has a bound.
    let everything = audit
        .streamed
        .clone()
        .try_acquire_many_owned(ALL_STREAMED as u32);
    let body = list().await;
    body.collect().await.unwrap();
    audit.flush();
    assert_eq!(lines(&file).pop().unwrap()["annotations"][STREAMED], "true");
    drop(everything.expect("all shares have been given up"));
}

#[test]
fn full_files_are_put_aside() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.log");
    let rotation = Rotation {
        size: 4000,
        backups: 2,
        ..Rotation::default()
    };
    let log = Log::open(&file, rotation).unwrap();
    let mut event = Event {
        kind: "Event",
        api_version: "audit.k8s.io/v1",
        level: Level::Metadata,
        audit_id: String::new(),
        stage: Stage::ResponseComplete,
        request_uri: "/".repeat(1000),
        verb: "get".to_owned(),
        user: UserInfo::of(&User::admin()),
        impersonated_user: None,
        authentication_metadata: None,
        source_ips: Vec::new(),
        user_agent: String::new(),
        object_ref: None,
        response_status: None,
        request_object: None,
        response_object: None,
        request_received_timestamp: String::new(),
        stage_timestamp: String::new(),
        annotations: Default::default(),
    };
    for number in 0..20 {
        event.audit_id = number.to_string();
        log.write(&event);
    }
    log.flush();
    let mut files: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    // The two newest old ones, and the present one.
    assert_eq!(files.len(), 3, "{files:?}");
    for file in &files {
        assert!(std::fs::metadata(file).unwrap().len() <= 4000);
    }
    let last = lines(&file).last().unwrap()["auditID"].clone();
    assert_eq!(last, "19");
    assert_eq!(log.lost(), 0);
}
