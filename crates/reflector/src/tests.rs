use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;

fn map(name: &str, version: &str) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": version}})
}

fn list(version: &str, next: &str, items: &[Value]) -> (u16, String) {
    let metadata = json!({"resourceVersion": version, "continue": next});
    (
        200,
        json!({"metadata": metadata, "items": items}).to_string(),
    )
}

fn events(events: &[(&str, Value)]) -> (u16, String) {
    let lines = events
        .iter()
        .map(|(kind, object)| format!("{}\n", json!({"type": kind, "object": object})));
    (200, lines.collect())
}

fn refused(code: u16) -> (u16, String) {
    let status = json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "Expired", "code": code});
    (code, status.to_string())
}

/// Follows an API that returns these answers in turn, until none is left. Checks the requests and the observations.
async fn check(answers: Vec<(u16, String)>, asked: &[&str], told: &[&str]) {
    check_of(|collection| collection, answers, asked, told).await;
}

/// As [`check`], for a collection with options.
async fn check_of(
    with: fn(Collection) -> Collection,
    answers: Vec<(u16, String)>,
    asked: &[&str],
    told: &[&str],
) {
    let shutdown = CancellationToken::new();
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    let requests = Arc::new(Mutex::new(Vec::new()));
    let (log, end) = (requests.clone(), shutdown.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answers.lock().expect("no panic").pop_front();
        if answer.is_none() {
            end.cancel();
        } else {
            let query = request.uri().query().unwrap_or_default();
            let wanted = ["continue=", "resourceVersion=", "watch="];
            let query: Vec<&str> = query
                .split('&')
                .filter(|part| wanted.iter().any(|start| part.starts_with(start)))
                .collect();
            log.lock().expect("no panic").push(query.join("&"));
        }
        let (code, text) = answer.unwrap_or_else(|| refused(500));
        let response = Response::builder()
            .status(code)
            .body(Body::from(text.into_bytes()));
        async { response }
    });
    let client = kube::Client::new(service, "default");
    let seen = Mutex::new(Vec::new());
    let name = |object: &ConfigMap| object.metadata.name.clone().unwrap_or_default();
    reflect::<ConfigMap, _>(
        with(Collection::new(Api::<ConfigMap>::all(client), None)),
        everything,
        shutdown,
        |observed| {
            let text = match observed {
                Observed::Listed { items, version } => {
                    let names: Vec<String> = items.iter().map(name).collect();
                    format!("{} at {version}", names.join(" "))
                }
                Observed::Applied(object) => format!("+{}", name(&object)),
                Observed::Deleted(object) => format!("-{}", name(&object)),
            };
            seen.lock().expect("no panic").push(text);
            true
        },
    )
    .await;
    assert_eq!(*requests.lock().expect("no panic"), asked);
    assert_eq!(*seen.lock().expect("no panic"), told);
}

#[tokio::test(start_paused = true)]
async fn lists_by_pages_and_goes_on_from_the_last_version() {
    check(
        vec![
            list("3", "more", &[map("a", "1")]),
            list("3", "", &[map("b", "2")]),
            events(&[
                ("ADDED", map("c", "4")),
                ("DELETED", map("a", "5")),
                (
                    "BOOKMARK",
                    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}}),
                ),
            ]),
            events(&[("MODIFIED", map("c", "10"))]),
        ],
        &[
            "",
            "continue=more",
            "watch=true&resourceVersion=3",
            "watch=true&resourceVersion=9",
        ],
        &["a b at 3", "+c", "-a", "+c"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn lists_anew_when_the_history_is_gone() {
    let expired = json!({"kind": "Status", "status": "Failure", "message": "old", "reason": "Expired", "code": 410});
    check(
        vec![
            list("3", "", &[]),
            refused(410),
            list("7", "", &[map("a", "6")]),
            events(&[("ADDED", map("b", "8")), ("ERROR", expired)]),
            list("9", "", &[map("b", "8")]),
        ],
        &[
            "",
            "watch=true&resourceVersion=3",
            "",
            "watch=true&resourceVersion=7",
            "",
        ],
        &[" at 3", "a at 7", "+b", "b at 9"],
    )
    .await;
}

/// Other servers may write events in another order, with other spaces, or with unknown members.
#[tokio::test(start_paused = true)]
async fn events_are_read_however_they_are_written() {
    let text = [
        r#"{"object":{"metadata":{"name":"a","resourceVersion":"4"}},"type":"ADDED"}"#,
        r#"{"type":"MODIFIED","object":{"metadata":{"name":"b","resourceVersion":"5"}},"more":{}}"#,
        r#" { "type" : "DELETED", "object" : {"metadata":{"name":"c","resourceVersion":"6"}} } "#,
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"d\",\"resourceVersion\":\"7\"}}}\r",
        r#"{"type":"ADDED","object":{"metadata":{"name":"cut"}"#,
    ];
    check(
        vec![list("3", "", &[]), (200, text.join("\n"))],
        &["", "watch=true&resourceVersion=3"],
        &[" at 3", "+a", "+b", "-c", "+d"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn tries_again_after_errors() {
    check(
        vec![
            refused(503),
            list("3", "", &[]),
            (200, "{\"type\":\"ADDED\",\"obj".to_owned()),
            events(&[("ADDED", map("a", "4"))]),
        ],
        &[
            "",
            "",
            "watch=true&resourceVersion=3",
            "watch=true&resourceVersion=3",
        ],
        &[" at 3", "+a"],
    )
    .await;
}

/// An optional kind that may not be listed must not keep a component from starting, and counts from when it may.
#[tokio::test(start_paused = true)]
async fn an_optional_kind_counts_as_empty_while_it_is_refused() {
    let refusals = vec![refused(403); 6];
    let allowed = vec![list("3", "", &[map("a", "1")]), refused(403)];
    let answers = [refusals.clone(), allowed].concat();
    let watch = "watch=true&resourceVersion=3";
    let asked = ["", "", "", "", "", "", "", watch];
    check_of(Collection::optional, answers, &asked, &[" at ", "a at 3"]).await;
    check(refusals, &[""; 6], &[]).await;
}
