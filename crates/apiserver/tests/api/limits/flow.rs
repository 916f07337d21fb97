//! Requests in flight, and whose turn it is.

use std::time::Duration;

use allot_apiserver::identity::User;
use allot_apiserver::{Body, Limits, Server};
use bytes::Bytes;
use futures::StreamExt;
use http::Response;
use http_body_util::{BodyExt, Empty, StreamBody};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;

use super::{Behind, answer, head, metric, server, within, write};
use crate::admin;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

fn person(name: &str) -> User {
    User::new(name, ["people"])
}

/// A request whose body never comes: it has its seat until it is dropped, on the servers of these tests.
fn hang(server: &Server, user: User) -> tokio::task::JoinHandle<()> {
    let server = server.clone();
    let never = futures::stream::pending::<Result<http_body::Frame<Bytes>, std::io::Error>>();
    let request = http::Request::post(MAPS).header("content-type", "application/json");
    let request = request.body(StreamBody::new(never)).unwrap();
    tokio::spawn(async move {
        server.handle(request, Some(user)).await;
    })
}

async fn get(server: &Server, user: User, path: &str) -> Response<Body> {
    let request = http::Request::get(path)
        .body(Empty::<Bytes>::new())
        .unwrap();
    within(server.handle(request, Some(user))).await
}

async fn check_refused(response: Response<Body>) {
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(
        response.headers()["content-type"],
        "text/plain; charset=utf-8"
    );
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "Too many requests, please try again later.\n");
}

/// A server on which all users in the group `people` have all permissions.
async fn with_people(limits: Limits) -> Server {
    // Those that hang keep their seats.
    let seated_upload = Duration::from_secs(3600);
    people(Limits {
        seated_upload,
        ..limits
    })
    .await
}

/// As [`with_people`]; those that hang lose their seats.
pub async fn people(limits: Limits) -> Server {
    let server = server(limits).await;
    let role = json!({
        "metadata": {"name": "people"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "people"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(admin(&server, "POST", bindings, role).await.0, 201);
    server
}

/// A level without nominal seats, which serves one request at a time, for the user `greedy`.
async fn with_level(response: serde_json::Value) -> Server {
    let server = with_people(Limits::default()).await;
    let level = json!({
        "metadata": {"name": "one"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0, "limitResponse": response,
        }},
    });
    let path = format!("{GROUP}/prioritylevelconfigurations");
    let (code, made) = admin(&server, "POST", &path, level).await;
    assert_eq!(code, 201, "{made}");
    let schema = json!({
        "metadata": {"name": "greedy"},
        "spec": {
            "priorityLevelConfiguration": {"name": "one"}, "matchingPrecedence": 10,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": "greedy"}}],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true,
                }],
            }],
        },
    });
    let path = format!("{GROUP}/flowschemas");
    let (code, made) = admin(&server, "POST", &path, schema).await;
    assert_eq!(code, 201, "{made}");
    server
}

async fn wait_for(server: &Server, name: &str, wanted: f64) {
    for _ in 0..3000 {
        let (_, text) = crate::send(server, User::admin(), "GET", "/metrics", "", b"").await;
        let text = text.as_str().unwrap().to_owned();
        if text.lines().any(|line| line == format!("{name} {wanted}")) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{name} is not {wanted}");
}

#[tokio::test]
async fn a_level_without_queues_refuses() {
    let server = with_level(json!({"type": "Reject"})).await;
    let hanging = hang(&server, person("greedy"));
    let executing = "apiserver_flowcontrol_current_executing_requests{priority_level=\"one\"}";
    wait_for(&server, executing, 1.0).await;
    let refused = get(&server, person("greedy"), MAPS).await;
    let path = format!("{GROUP}/flowschemas/greedy");
    let (_, schema) = admin(&server, "GET", &path, json!(null)).await;
    let path = format!("{GROUP}/prioritylevelconfigurations/one");
    let (_, level) = admin(&server, "GET", &path, json!(null)).await;
    assert_eq!(
        refused.headers()["x-kubernetes-pf-flowschema-uid"],
        schema["metadata"]["uid"].as_str().unwrap()
    );
    assert_eq!(
        refused.headers()["x-kubernetes-pf-prioritylevel-uid"],
        level["metadata"]["uid"].as_str().unwrap()
    );
    check_refused(refused).await;
    // Others, and what is exempt, are served.
    let served = get(&server, person("modest"), MAPS).await;
    assert_eq!(served.status(), 200);
    assert!(
        served
            .headers()
            .contains_key("x-kubernetes-pf-flowschema-uid")
    );
    assert_eq!(get(&server, User::admin(), MAPS).await.status(), 200);
    hanging.abort();
    let _ = hanging.await;
    // The seat is free again.
    assert_eq!(get(&server, person("greedy"), MAPS).await.status(), 200);
    let name = "apiserver_flowcontrol_rejected_requests_total{priority_level=\"one\",flow_schema=\"greedy\",reason=\"concurrency-limit\"}";
    assert_eq!(metric(&server, name).await, 1.0);
}

#[tokio::test]
async fn queues_are_bounded_and_served_in_turn() {
    let queuing = json!({"queues": 1, "handSize": 1, "queueLengthLimit": 3});
    let server = with_level(json!({"type": "Queue", "queuing": queuing})).await;
    let first = hang(&server, person("greedy"));
    let executing = "apiserver_flowcontrol_current_executing_requests{priority_level=\"one\"}";
    wait_for(&server, executing, 1.0).await;
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move { get(&server, person("greedy"), MAPS).await.status() })
        })
        .collect();
    let inqueue = "apiserver_flowcontrol_current_inqueue_requests{priority_level=\"one\"}";
    wait_for(&server, inqueue, 2.0).await;
    let leaves = hang(&server, person("greedy"));
    wait_for(&server, inqueue, 3.0).await;
    check_refused(get(&server, person("greedy"), MAPS).await).await;
    // One that gives up leaves the queue.
    leaves.abort();
    let _ = leaves.await;
    wait_for(&server, inqueue, 2.0).await;
    first.abort();
    for waiting in waiting {
        assert_eq!(within(waiting).await.unwrap(), 200);
    }
    wait_for(&server, executing, 0.0).await;
    wait_for(&server, inqueue, 0.0).await;
}

#[tokio::test]
async fn no_request_waits_longer_than_a_quarter_of_the_time() {
    let queuing = json!({"queues": 1, "handSize": 1, "queueLengthLimit": 2});
    let server = with_level(json!({"type": "Queue", "queuing": queuing})).await;
    let hanging = hang(&server, person("greedy"));
    let executing = "apiserver_flowcontrol_current_executing_requests{priority_level=\"one\"}";
    wait_for(&server, executing, 1.0).await;
    let path = format!("{MAPS}?timeout=400ms");
    check_refused(get(&server, person("greedy"), &path).await).await;
    let name = "apiserver_flowcontrol_rejected_requests_total{priority_level=\"one\",flow_schema=\"greedy\",reason=\"time-out\"}";
    assert_eq!(metric(&server, name).await, 1.0);
    hanging.abort();
}

#[tokio::test]
async fn without_fairness_there_are_two_limits() {
    let server = with_people(Limits {
        priority_and_fairness: false,
        max_requests_inflight: 1,
        max_mutating_requests_inflight: 1,
        ..Limits::default()
    })
    .await;
    let mut hanging = hang(&server, person("greedy"));
    let refused = loop {
        if hanging.is_finished() {
            // It came while the other request was served.
            hanging = hang(&server, person("greedy"));
        }
        let request = http::Request::post(MAPS).header("content-type", "application/json");
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let response = within(server.handle(request, Some(person("modest")))).await;
        // The other request may not have come yet.
        if response.status() != 400 {
            break response;
        }
        tokio::task::yield_now().await;
    };
    assert!(
        !refused
            .headers()
            .contains_key("x-kubernetes-pf-flowschema-uid")
    );
    check_refused(refused).await;
    // Those that change nothing have their own limit, administrators none, and watches do not count.
    assert_eq!(get(&server, person("modest"), MAPS).await.status(), 200);
    let map = json!({"metadata": {"name": "made"}});
    assert_eq!(admin(&server, "POST", MAPS, map).await.0, 201);
    let watch = format!("{MAPS}?watch=true");
    let mut watches = Vec::new();
    for _ in 0..3 {
        let watch = get(&server, person("modest"), &watch).await;
        assert_eq!(watch.status(), 200);
        watches.push(watch);
    }
    hanging.abort();
    let _ = hanging.await;
    let dropped = metric(
        &server,
        "apiserver_dropped_requests_total{request_kind=\"mutating\"}",
    );
    assert!(dropped.await >= 1.0);
}

/// What is never sent must not keep a seat: neither the body of a watch nor that of a list.
#[tokio::test]
async fn a_request_that_reads_no_body_waits_for_none() {
    let server = with_level(json!({"type": "Reject"})).await;
    let mut watches = Vec::new();
    for path in [
        MAPS.to_owned(),
        format!("{MAPS}?watch=true"),
        format!("{MAPS}/kube-root-ca.crt"),
    ] {
        let never = futures::stream::pending::<Result<http_body::Frame<Bytes>, std::io::Error>>();
        let request = http::Request::get(&path).header("content-length", "10");
        let request = request.body(StreamBody::new(never)).unwrap();
        let answer = within(server.handle(request, Some(person("greedy")))).await;
        assert!(
            matches!(answer.status().as_u16(), 200 | 404),
            "{path}: {}",
            answer.status()
        );
        watches.push(answer);
    }
    assert_eq!(get(&server, person("greedy"), MAPS).await.status(), 200);
}

#[tokio::test]
async fn a_schema_says_whether_its_level_exists() {
    let server = with_people(Limits::default()).await;
    let schema = json!({
        "metadata": {"name": "early"},
        "spec": {"priorityLevelConfiguration": {"name": "late"}, "matchingPrecedence": 10, "rules": [{
            "subjects": [{"kind": "User", "user": {"name": "modest"}}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }]},
    });
    let schemas = format!("{GROUP}/flowschemas");
    assert_eq!(admin(&server, "POST", &schemas, schema).await.0, 201);
    let condition = async || {
        let (_, schema) = admin(&server, "GET", &format!("{schemas}/early"), json!(null)).await;
        assert_eq!(schema["metadata"]["generation"], 1);
        schema["status"]["conditions"][0].clone()
    };
    let dangling = condition().await;
    assert_eq!(dangling["type"], "Dangling");
    assert_eq!(
        (&dangling["status"], &dangling["reason"]),
        (&json!("True"), &json!("NotFound"))
    );
    // A schema without a level takes nothing.
    let served = get(&server, person("modest"), "/version").await;
    assert_eq!(served.status(), 200);
    let level = json!({
        "metadata": {"name": "late"},
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}},
    });
    let levels = format!("{GROUP}/prioritylevelconfigurations");
    assert_eq!(admin(&server, "POST", &levels, level).await.0, 201);
    let found = condition().await;
    assert_eq!(
        (&found["status"], &found["reason"]),
        (&json!("False"), &json!("Found"))
    );
    let (code, _) = admin(&server, "DELETE", &format!("{levels}/late"), json!(null)).await;
    assert_eq!(code, 200);
    assert_eq!(condition().await["status"], "True");
}

#[tokio::test]
async fn a_change_that_many_watch_is_wider() {
    let server = with_people(Limits::default()).await;
    let labels = "{priority_level=\"global-default\",flow_schema=\"global-default\"}";
    let name = format!("apiserver_flowcontrol_work_estimated_seats_sum{labels}");
    let mut watches = Vec::new();
    for number in 0..40 {
        let path = match number % 4 {
            0 => "/api/v1/configmaps?watch=true&resourceVersion=1".to_owned(),
            _ => format!("{MAPS}?watch=true"),
        };
        watches.push(get(&server, person("watcher"), &path).await);
    }
    // These are told of nothing that happens there.
    for path in [
        "/api/v1/namespaces/kube-system/configmaps?watch=true".to_owned(),
        format!("{MAPS}?watch=true&fieldSelector=metadata.name=other"),
        "/api/v1/namespaces/default/secrets?watch=true".to_owned(),
    ] {
        watches.push(get(&server, person("watcher"), &path).await);
    }
    let width = async |map: &str| {
        let before = metric(&server, &name).await;
        let request = http::Request::post(MAPS).header("content-type", "application/json");
        let body = json!({"metadata": {"name": map}}).to_string();
        let request = request
            .body(http_body_util::Full::new(Bytes::from(body)))
            .unwrap();
        let made = within(server.handle(request, Some(person("modest")))).await;
        assert_eq!(made.status(), 201);
        metric(&server, &name).await - before
    };
    assert_eq!(width("one").await, 4.0);
    watches.clear();
    assert_eq!(width("two").await, 1.0);
    // The seats are given up when all have been told.
    let used = "apiserver_flowcontrol_current_executing_seats{priority_level=\"global-default\"}";
    wait_for(&server, used, 0.0).await;
}

/// Opens a watch by WebSocket and waits until the protocol has changed.
pub async fn by_websocket(behind: &Behind) -> TlsStream<TcpStream> {
    let (stream, answer) = upgraded(behind, &format!("{MAPS}?watch=true"), "secret").await;
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    stream
}

/// A connection after a request to go on by WebSocket, and the answer to it.
pub async fn upgraded(behind: &Behind, path: &str, token: &str) -> (TlsStream<TcpStream>, String) {
    let mut stream = behind.tls("http/1.1").await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    write(&mut stream, head("GET", path, token, upgrade).as_bytes()).await;
    let answer = answer(&mut stream).await;
    (stream, answer)
}

/// Watches over WebSocket were not counted by flow control.
#[tokio::test(flavor = "multi_thread")]
async fn regression_watches_by_websocket_make_a_change_wider() {
    let server = with_people(Limits::default()).await;
    let behind = Behind::of(server.clone()).await;
    let labels = "{priority_level=\"global-default\",flow_schema=\"global-default\"}";
    let name = format!("apiserver_flowcontrol_work_estimated_seats_sum{labels}");
    let mut watches = Vec::new();
    for _ in 0..30 {
        watches.push(by_websocket(&behind).await);
    }
    let width = async |map: &str| {
        let before = metric(&server, &name).await;
        let request = http::Request::post(MAPS).header("content-type", "application/json");
        let body = json!({"metadata": {"name": map}}).to_string();
        let request = request
            .body(http_body_util::Full::new(Bytes::from(body)))
            .unwrap();
        let made = within(server.handle(request, Some(person("modest")))).await;
        assert_eq!(made.status(), 201);
        metric(&server, &name).await - before
    };
    assert_eq!(width("one").await, 3.0);
    drop(watches);
    behind
        .wait_for("apiserver_longrunning_requests", |it| it == 0.0)
        .await;
    assert_eq!(width("two").await, 1.0);
    behind.stop().await;
}

/// Upgraded connections were not counted: their number was unlimited.
#[tokio::test(flavor = "multi_thread")]
async fn regression_upgraded_connections_have_a_place() {
    let behind = Behind::start(Limits {
        max_connections: 4,
        ..Limits::default()
    })
    .await;
    let mut watches = Vec::new();
    for _ in 0..4 {
        watches.push(by_websocket(&behind).await);
    }
    // All connections are busy: the new one is rejected, and the watches continue.
    assert!(behind.try_tls("http/1.1").await.is_err());
    watches.pop();
    behind
        .wait_for("apiserver_longrunning_requests", |it| it == 3.0)
        .await;
    let served = async {
        while behind.try_tls("http/1.1").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    within(served).await;
    drop(watches);
    behind.stop().await;
}

/// A config map of which the second half comes when it is asked for.
struct Upload {
    /// The server has read the first half.
    begun: oneshot::Receiver<()>,
    rest: oneshot::Sender<()>,
    answered: JoinHandle<http::StatusCode>,
}

fn upload(server: &Server, user: User, path: &str, name: &str) -> Upload {
    let (begins, begun) = oneshot::channel();
    let (rest, asked) = oneshot::channel();
    let map = json!({"metadata": {"name": name}}).to_string();
    let (first, second) = map.split_at(10);
    let piece = |text: &str| {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        Ok::<_, std::io::Error>(http_body::Frame::data(bytes))
    };
    let (first, second) = (piece(first), piece(second));
    let second = futures::stream::once(async move {
        let _ = begins.send(());
        let _ = asked.await;
        second
    });
    let body = StreamBody::new(futures::stream::iter([first]).chain(second));
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(body).unwrap();
    let server = server.clone();
    let answered = tokio::spawn(async move { server.handle(request, Some(user)).await.status() });
    Upload {
        begun,
        rest,
        answered,
    }
}

/// As many requests as there are seats, whose bodies did not come, were the end of service for all others.
#[tokio::test]
async fn regression_slow_uploads_give_up_their_seats() {
    let server = people(Limits {
        max_requests_inflight: 4,
        max_mutating_requests_inflight: 4,
        seated_upload: Duration::from_millis(10),
        ..Limits::default()
    })
    .await;
    let mut uploads = Vec::new();
    for at in 0..24 {
        let mut upload = upload(&server, person("slow"), MAPS, &format!("m{at}"));
        // It is read, which takes a seat.
        within(&mut upload.begun).await.unwrap();
        uploads.push(upload);
    }
    assert_eq!(get(&server, person("fast"), MAPS).await.status(), 200);
    for upload in uploads {
        upload.rest.send(()).unwrap();
        assert_eq!(within(upload.answered).await.unwrap(), 201);
    }
}

#[tokio::test]
async fn slow_uploads_of_one_user_are_bounded() {
    let server = people(Limits {
        seated_upload: Duration::from_millis(10),
        ..Limits::default()
    })
    .await;
    // The latter takes no seat at all: any number of long-running requests may run.
    let proxy = "/api/v1/namespaces/default/pods/none/proxy/x";
    for (path, code) in [(MAPS, 201), (proxy, 404)] {
        let mut uploads = Vec::new();
        let refused = loop {
            let name = format!("m{}", uploads.len());
            let mut next = upload(&server, person("slow"), path, &name);
            within(&mut next.begun).await.unwrap();
            uploads.push(next);
            // Each has no seat after a moment, until there are as many of these as one user may have.
            let ended = uploads.iter().position(|it| it.answered.is_finished());
            if let Some(ended) = ended {
                break uploads.swap_remove(ended);
            }
        };
        assert!(uploads.len() >= 64, "{path}: {}", uploads.len());
        assert_eq!(refused.answered.await.unwrap(), 429, "{path}");
        let mut other = upload(&server, person("other"), path, "other");
        within(&mut other.begun).await.unwrap();
        other.rest.send(()).unwrap();
        assert_eq!(within(other.answered).await.unwrap(), code, "{path}");
        for waiting in uploads {
            waiting.answered.abort();
            let _ = waiting.answered.await;
        }
    }
}
