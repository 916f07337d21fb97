use std::sync::atomic::{AtomicUsize, Ordering};

use http::Response;
use http_body_util::Full;
use kube::client::Body as KubeBody;
use parking_lot::Mutex;

use super::*;
use crate::{Config, Explain};

/// The requests to the API server: method, target, and Authorization.
pub(crate) type Asked = Arc<Mutex<Vec<(String, String, Option<String>)>>>;

/// A dashboard in front of an API server with these answers, selected by a part of the target.
pub(crate) fn dashboard(
    login: Login,
    answers: &'static [(&str, u16, &str)],
) -> (Arc<Dashboard>, Asked) {
    let asked = Asked::default();
    let log = asked.clone();
    let service = tower::service_fn(move |request: Request<KubeBody>| {
        let target = request.uri().to_string();
        let token = request.headers().get(http::header::AUTHORIZATION);
        let token = token.map(|token| token.to_str().expect("text").to_owned());
        let method = request.method().to_string();
        log.lock().push((method, target.clone(), token));
        let found = answers.iter().find(|(part, ..)| target.contains(part));
        let (_, status, body) = found.copied().unwrap_or(("", 404, "{}"));
        async move {
            Response::builder()
                .status(status)
                .body(Full::new(Bytes::from_static(body.as_bytes())))
        }
    });
    let explain: Explain = Arc::new(|_, pods| {
        async move {
            Ok(pods
                .iter()
                .map(|(a, b)| json!(format!("{a} {b}")))
                .collect())
        }
        .boxed()
    });
    let dashboard = Dashboard::new(Config {
        login,
        hosts: vec!["h:1".to_owned()],
        path: "/",
        client: kube::Client::new(service, "team"),
        explain,
        cluster: "c".to_owned(),
    });
    (Arc::new(dashboard), asked)
}

const TOKEN: &str = "Bearer reader";

async fn ask(dashboard: &Arc<Dashboard>, line: &str, body: &str) -> (StatusCode, Value, Answer) {
    let (method, target) = line.split_once(' ').expect("a method and a target");
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header("host", "h:1")
        .header("origin", "http://h:1")
        .header("content-type", "application/json")
        .header("authorization", TOKEN)
        .header("impersonate-user", "admin")
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
        .expect("a request");
    let answer = answer(dashboard.clone(), request).await;
    let (head, body) = answer.into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let copy = answer::whole(head.status, "text/plain", bytes);
    let (_, body) = copy.into_parts();
    (head.status, value, Answer::from_parts(head, body))
}

const SLICES: &str = r#"{"metadata": {"resourceVersion": "7", "continue": "more/&x"}, "items": [
    {"metadata": {"name": "s", "managedFields": [{}]}, "spec": {"driver": "d", "devices": [{"name": "a"}, {"name": "b"}]}}]}"#;

#[tokio::test]
async fn lists_are_read_with_the_readers_token() {
    let (dashboard, asked) = dashboard(Login::Token, &[("resourceslices", 200, SLICES)]);
    let (status, list, _) = ask(&dashboard, "GET /api/list?kind=slices&limit=2", "").await;
    assert_eq!(status, 200, "{list}");
    assert_eq!(list["resourceVersion"], "7");
    assert_eq!(list["items"][0]["metadata"], json!({"name": "s"}));
    let target = "/apis/resource.k8s.io/v1/resourceslices?limit=2".to_owned();
    let expected = ("GET".to_owned(), target, Some(TOKEN.to_owned()));
    assert_eq!(*asked.lock(), [expected]);
}

#[tokio::test]
async fn marks_of_the_server_cannot_add_parameters() {
    let (dashboard, asked) = dashboard(Login::Token, &[("resourceslices", 200, SLICES)]);
    let line = "GET /api/list?kind=slices&continue=a%26watch%3D1%23x";
    ask(&dashboard, line, "").await;
    let target = &asked.lock()[0].1;
    assert!(target.ends_with("&continue=a%26watch%3D1%23x"), "{target}");
}

#[tokio::test]
async fn older_versions_are_found_and_remembered() {
    let (dashboard, asked) = dashboard(Login::Token, &[("v1beta1/resourceslices", 200, SLICES)]);
    for _ in 0..2 {
        let (status, list, _) = ask(&dashboard, "GET /api/list?kind=slices", "").await;
        assert_eq!(
            (status.as_u16(), &list["version"]),
            (200, &json!("v1beta1"))
        );
    }
    assert_eq!(
        asked.lock().len(),
        4,
        "v1, v1beta2, v1beta1; and v1beta1 again"
    );
}

/// Whatever a page requests, the API server gets only reads of the five kinds.
#[tokio::test]
async fn nothing_else_can_be_asked_for() {
    let (dashboard, asked) = dashboard(Login::Token, &[("", 200, "{}")]);
    for line in [
        "GET /api/list?kind=secrets",
        "GET /api/list",
        "GET /api/list?kind=pods&kind=claims",
        "GET /api/list?kind=pods&fieldSelector=",
        "GET /api/list?kind=claims&namespace=../secrets",
        "GET /api/list?kind=claims&namespace=a%2Fsecrets",
        "GET /api/list?kind=claims&namespace=a%3Fx",
        "GET /api/list?kind=claims&continue=a%0d%0aimpersonate-user:%20admin",
        "GET /api/list?kind=slices&limit=-1",
        "GET /api/pod?namespace=a&name=b/exec",
        "GET /api/pod?namespace=a&name=",
        "GET /api/pod?namespace=a&name=..%2F..%2Fsecrets",
        "GET /api/watch?secrets=1",
        "GET /api/watch",
        "GET /api/watch?pods.namespace=x",
        "GET /api/watch?claims=1&claims.namespace=a/b",
        "GET /api/explain",
        "GET /api/explain?pod=a/b/c",
        "GET /api/v1/secrets",
        "GET /api/../../api/v1/secrets",
        "GET /apis/resource.k8s.io/v1/resourceslices",
        "GET /api/apis/resource.k8s.io/v1/resourceslices",
        "GET /api/namespaces/a/pods/b/exec",
        "GET /metrics",
    ] {
        let (status, _, _) = ask(&dashboard, line, "").await;
        assert!(status.is_client_error(), "{line}: {status}");
    }
    assert!(asked.lock().is_empty(), "{:?}", asked.lock());
    let many = "&pod=a/b".repeat(MOST_PODS + 1);
    let (status, ..) = ask(&dashboard, &format!("GET /api/explain?{many}"), "").await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn refusals_of_the_api_server_are_told() {
    const FORBIDDEN: &str = r#"{"message": "pods is forbidden", "code": 403}"#;
    let answers = &[
        ("/pods", 403, FORBIDDEN),
        ("resourceclaims", 500, "<html>"),
        ("deviceclasses", 200, "no JSON"),
    ];
    let (dashboard, _) = dashboard(Login::Token, answers);
    for (kind, status, text) in [
        ("pods", 403, "pods is forbidden"),
        (
            "claims",
            502,
            "the API server answered 500 Internal Server Error",
        ),
        (
            "classes",
            502,
            "the API server's answer cannot be read: it is no JSON",
        ),
    ] {
        let (found, body, _) = ask(&dashboard, &format!("GET /api/list?kind={kind}"), "").await;
        assert_eq!(
            (found.as_u16(), body["error"].as_str()),
            (status, Some(text))
        );
    }
}

#[tokio::test]
async fn devices_are_filtered() {
    const LAST: &str = r#"{"metadata": {}, "items": [{"metadata": {"name": "s"},
        "spec": {"driver": "d", "devices": [{"name": "a"}, {"name": "b"}]}}]}"#;
    let (dashboard, asked) = dashboard(Login::Token, &[("resourceslices", 200, LAST)]);
    let body = r#"{"expression": "device.driver == 'd'"}"#;
    let (status, found, _) = ask(&dashboard, "POST /api/filter", body).await;
    assert_eq!(status, 200, "{found}");
    assert_eq!(found["slices"], json!({"s": "0-1"}));
    assert_eq!(found["count"], 2);
    let before = asked.lock().len();
    let long = format!(r#"{{"expression": "{}"}}"#, "x".repeat(LONGEST_BODY));
    for body in ["", "[]", "{}", r#"{"expression": "device."}"#, &long] {
        let (status, answer, _) = ask(&dashboard, "POST /api/filter", body).await;
        assert_eq!(status, 400, "{body:.100}: {answer}");
    }
    assert_eq!(asked.lock().len(), before, "nothing was listed for them");
}

#[tokio::test]
async fn classes_select_devices_or_say_why_not() {
    const CLASSES: &str = r#"{"items": [
        {"metadata": {"name": "all"}, "spec": {}},
        {"metadata": {"name": "bad"}, "spec": {"selectors": [{"cel": {"expression": "device."}}]}},
        {"metadata": {"name": "none"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'x'"}}]}}]}"#;
    const LAST: &str = r#"{"metadata": {}, "items": [{"metadata": {"name": "s"},
        "spec": {"driver": "d", "devices": [{"name": "a"}, {"name": "b"}]}}]}"#;
    let answers = &[
        ("deviceclasses", 200, CLASSES),
        ("resourceslices", 200, LAST),
    ];
    let (dashboard, _) = dashboard(Login::Token, answers);
    let (status, found, _) = ask(&dashboard, "GET /api/classes", "").await;
    assert_eq!(status, 200, "{found}");
    let classes = &found["classes"];
    assert_eq!(classes[0]["selected"]["count"], 2);
    assert!(classes[1]["error"].is_string() && classes[1]["selected"].is_null());
    assert_eq!(classes[2]["selected"]["count"], 0);
}

#[tokio::test]
async fn a_stream_has_the_changes_of_all_kinds() {
    const EVENTS: &str = concat!(
        r#"{"type": "ADDED", "object": {"metadata": {"name": "s", "resourceVersion": "8"}}}"#,
        "\n",
        r#"{"type": "ERROR", "object": {"code": 410, "message": "too old"}}"#,
        "\n",
    );
    const FORBIDDEN: &str = r#"{"message": "no", "code": 403}"#;
    let answers = &[
        ("resourceslices", 200, EVENTS),
        ("/namespaces/team/resourceclaims", 403, FORBIDDEN),
    ];
    let (dashboard, asked) = dashboard(Login::Token, answers);
    let line = "GET /api/watch?slices=7&claims=7&claims.namespace=team";
    let (_, _, answer) = ask(&dashboard, line, "").await;
    let body = answer
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    let lines = body.split(|byte| *byte == b'\n').filter(|l| !l.is_empty());
    let mut lines: Vec<Value> = lines
        .map(|line| serde_json::from_slice(line).expect("JSON"))
        .collect();
    lines.sort_by_key(|line| (line["kind"].to_string(), line["code"].as_u64()));
    let object = json!({"metadata": {"name": "s", "resourceVersion": "8"}});
    let expected = [
        json!({"kind": "claims", "type": "ERROR", "code": 403, "message": "no"}),
        json!({"kind": "slices", "type": "ADDED", "object": object}),
        json!({"kind": "slices", "type": "ERROR", "code": 410, "message": "too old"}),
    ];
    assert_eq!(lines, expected);
    let asked = asked.lock();
    let slices = asked
        .iter()
        .find(|(_, target, _)| target.contains("slices"));
    let (method, target, token) = slices.expect("watched");
    assert_eq!((method.as_str(), token.as_deref()), ("GET", Some(TOKEN)));
    assert!(
        target.contains("watch=1") && target.contains("resourceVersion=7"),
        "{target}"
    );
}

#[tokio::test]
async fn streams_are_counted() {
    let (dashboard, _) = dashboard(Login::Token, &[]);
    let _all = dashboard
        .streams
        .clone()
        .try_acquire_many_owned(crate::STREAMS as u32);
    let (status, ..) = ask(&dashboard, "GET /api/watch?slices=7", "").await;
    assert_eq!(status, 503);
}

#[tokio::test]
async fn pods_are_explained_with_the_readers_token() {
    let (dashboard, _) = dashboard(Login::Token, &[]);
    let (status, found, _) = ask(&dashboard, "GET /api/explain?pod=a/b&pod=c%2Fd", "").await;
    assert_eq!(
        (status.as_u16(), found),
        (200, json!({"pods": ["a b", "c d"]}))
    );
}

fn mistaken() -> Vec<Value> {
    panic!("a mistake")
}

#[tokio::test]
async fn a_panic_of_the_explainer_ends_its_request() {
    let (mut dashboard, _) = dashboard(Login::Token, &[]);
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    Arc::get_mut(&mut dashboard).expect("one owner").explain = Arc::new(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok(mistaken()) }.boxed()
    });
    for _ in 0..=crate::EXPLANATIONS {
        let (status, ..) = ask(&dashboard, "GET /api/explain?pod=a/b", "").await;
        assert_eq!(status, 502);
    }
    assert_eq!(calls.load(Ordering::Relaxed), crate::EXPLANATIONS + 1);
}

#[tokio::test]
async fn every_answer_keeps_browsers_in() {
    let (dashboard, _) = dashboard(Login::Token, &[("", 200, "{}")]);
    for line in [
        "GET /",
        "GET /app.js",
        "GET /nothing",
        "PUT /",
        "GET /api/list?kind=slices",
    ] {
        let (_, _, answer) = ask(&dashboard, line, "").await;
        let header = |name: &str| {
            let value = answer.headers().get(name);
            value
                .map(|value| value.to_str().expect("text").to_owned())
                .unwrap_or_default()
        };
        let policy = header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{line}: {policy}"
        );
        assert!(!policy.contains("unsafe"), "{line}: {policy}");
        assert!(
            policy.contains("frame-ancestors 'none'"),
            "{line}: {policy}"
        );
        assert_eq!(header("x-content-type-options"), "nosniff", "{line}");
        assert_eq!(header("referrer-policy"), "no-referrer", "{line}");
        assert_eq!(header("access-control-allow-origin"), "", "{line}");
    }
}
