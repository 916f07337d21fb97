use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use http_body::Frame;
use http_body_util::{Either, StreamBody};
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

/// Follows an API that returns these responses in turn, until none is left. Checks the requests and the observations.
async fn check(answers: Vec<(u16, String)>, asked: &[&str], told: &[&str]) {
    check_of(|collection| collection, answers, asked, told).await;
}

/// Like [`check`], for a collection with options.
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

/// An optional kind that may not be listed must not keep a component from starting; it is watched once it may be listed.
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

/// The attack: a server that always returns 410, or ends every watch at once, got thousands of requests a second.
#[tokio::test(start_paused = true)]
async fn regression_watches_that_end_at_once_are_not_repeated_without_a_pause() {
    let expired = json!({"kind": "Status", "status": "Failure", "message": "old", "reason": "Expired", "code": 410});
    let ends: [(&str, (u16, String)); 4] = [
        ("nothing", events(&[])),
        ("gone", refused(410)),
        (
            "an event, then gone",
            events(&[("ADDED", map("a", "4")), ("ERROR", expired)]),
        ),
        ("too many requests", refused(429)),
    ];
    for (name, end) in ends {
        let count = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&count);
        let service = tower::service_fn(move |request: Request<Body>| {
            *counted.lock().expect("no panic") += 1;
            let query = request.uri().query().unwrap_or_default();
            let (code, text) = match query.contains("watch=true") {
                true => end.clone(),
                false => list("3", "", &[]),
            };
            let response = Response::builder()
                .status(code)
                .body(Body::from(text.into_bytes()));
            async { response }
        });
        let client = kube::Client::new(service, "default");
        let all = Collection::new(Api::<ConfigMap>::all(client), None);
        let follow = reflect::<ConfigMap, _>(all, everything, CancellationToken::new(), |_| true);
        let minutes = std::time::Duration::from_secs(600);
        assert!(tokio::time::timeout(minutes, follow).await.is_err());
        let count = *count.lock().expect("no panic");
        // A round every ten seconds, after a few faster ones.
        assert!((60..=160).contains(&count), "{name}: {count} requests");
    }
}

const SPACES: &[u8] = &[b' '; 1 << 16];

/// An endless body, which counts the bytes that were read.
fn endless(
    chunk: &'static [u8],
    taken: &Arc<Mutex<usize>>,
) -> impl http_body::Body<Data = <Body as http_body::Body>::Data, Error = Infallible> + use<> {
    let taken = Arc::clone(taken);
    StreamBody::new(futures::stream::repeat_with(move || {
        *taken.lock().expect("no panic") += chunk.len();
        Ok(Frame::data(chunk.into()))
    }))
}

/// An endless response used memory without a bound.
#[tokio::test(start_paused = true)]
async fn regression_answers_without_end_are_not_collected() {
    let check = async |code: u16, of_watch: bool, most: usize, message: &str| {
        let taken = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&taken);
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let is_watch = query.contains("watch=true");
            let body = match is_watch == of_watch {
                true => Either::Right(endless(SPACES, &counted)),
                false => Either::Left(Body::from(list("3", "", &[]).1.into_bytes())),
            };
            let response = Response::builder().status(code).body(body);
            async { response }
        });
        let client = kube::Client::new(service, "default");
        let api = Api::<ConfigMap>::all(client);
        if !of_watch {
            let error = get(&api, "a", everything).await.unwrap_err();
            assert!(api_message(&error).contains(message), "{error}");
            assert!(*taken.lock().expect("no panic") <= most, "{code}");
        }
        *taken.lock().expect("no panic") = 0;
        let shutdown = CancellationToken::new();
        let follow = reflect::<ConfigMap, _>(
            Collection::new(api, None).largest(1 << 20),
            everything,
            shutdown,
            |_| true,
        );
        let second = std::time::Duration::from_millis(150);
        assert!(tokio::time::timeout(second, follow).await.is_err());
        let taken = *taken.lock().expect("no panic");
        assert!(taken > 0 && taken <= most, "{code} {of_watch}: {taken}");
    };
    let object = wire::LARGEST_OBJECT + SPACES.len();
    check(200, false, object, "an answer of more than 67108864 bytes").await;
    check(500, false, 2 << 20, "an answer of more than 1048576 bytes").await;
    check(200, true, 2 * object, "").await;
}

/// As for reads: the response to a write was awaited and collected without a limit.
#[tokio::test(start_paused = true)]
async fn regression_answers_to_writes_are_bounded() {
    let check = async |client: kube::Client, message: &str| {
        let (writes, url) = (Writes::new(client), "/api/v1/namespaces/default/configmaps");
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let only = writes.send_only(http::Method::POST, url, &object).await;
        let read = writes.send::<ConfigMap>(http::Method::POST, url, &object, everything);
        for error in [only.unwrap_err(), read.await.unwrap_err()] {
            assert!(api_message(&error).contains(message), "{error}");
        }
    };
    let taken = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&taken);
    let large = tower::service_fn(move |_: Request<Body>| {
        let body = endless(SPACES, &counted);
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    let large = kube::Client::new(large, "default");
    check(large, "an answer of more than 67108864 bytes").await;
    let most = 2 * (wire::LARGEST_OBJECT + SPACES.len());
    assert!(*taken.lock().expect("no panic") <= most);
    let silent = tower::service_fn(|_: Request<Body>| async {
        let silence = futures::stream::pending::<Result<Frame<_>, Infallible>>();
        Ok::<_, Infallible>(Response::new(StreamBody::new(silence)))
    });
    let silent = kube::Client::new(silent, "default");
    check(silent, "no whole answer within 300s").await;
}

/// A list with endless pages ends with an error, because of its size or the number of pages.
#[tokio::test(start_paused = true)]
async fn regression_lists_of_endless_pages_are_given_up() {
    let count = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&count);
    let service = tower::service_fn(move |_: Request<Body>| {
        *counted.lock().expect("no panic") += 1;
        let (_, text) = list("3", "more", &[map("a", "1")]);
        async { Ok::<_, Infallible>(Response::new(Body::from(text.into_bytes()))) }
    });
    let client = kube::Client::new(service, "default");
    let small = Collection::new(Api::<ConfigMap>::all(client.clone()), None).largest(10_000);
    let whole = Collection::new(Api::<ConfigMap>::all(client), None);
    for (of, most) in [(small, 200), (whole, 10_000)] {
        *count.lock().expect("no panic") = 0;
        let follow = reflect::<ConfigMap, _>(of, everything, CancellationToken::new(), |_| true);
        let once = std::time::Duration::from_millis(150);
        assert!(tokio::time::timeout(once, follow).await.is_err());
        let count = *count.lock().expect("no panic");
        assert!(count > 10 && count <= most, "{count} requests");
    }
}

/// A silent watch that the server never ends is renewed.
#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_renewed() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.contains("watch=true");
        log.lock().expect("no panic").push(is_watch);
        let silence = futures::stream::pending::<Result<Frame<_>, Infallible>>();
        let body = match is_watch {
            true => Either::Right(StreamBody::new(silence)),
            false => Either::Left(Body::from(list("3", "", &[]).1.into_bytes())),
        };
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    let client = kube::Client::new(service, "default");
    let all = Collection::new(Api::<ConfigMap>::all(client), None);
    let follow = reflect::<ConfigMap, _>(all, everything, CancellationToken::new(), |_| true);
    let minutes = std::time::Duration::from_secs(1900);
    assert!(tokio::time::timeout(minutes, follow).await.is_err());
    assert_eq!(
        *asked.lock().expect("no panic"),
        [false, true, true, true, true]
    );
}
