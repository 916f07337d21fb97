//! Requests in flight, and whose turn it is.

use std::time::Duration;

use allot_apiserver::identity::User;
use allot_apiserver::{Body, Limits, Server};
use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Empty, StreamBody};
use serde_json::json;

use super::streams::by_websocket;
use super::{Behind, metric, server, within};
use crate::admin;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

pub fn person(name: &str) -> User {
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

pub async fn get(server: &Server, user: User, path: &str) -> Response<Body> {
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
    // Requests that hang keep their seats.
    let seated_upload = Duration::from_secs(3600);
    people(Limits {
        seated_upload,
        ..limits
    })
    .await
}

/// As [`with_people`], but requests that hang lose their seats.
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
    let executing = "apiserver_flowcontrol_current_executing_requests{priority_level=\"one\",flow_schema=\"greedy\"}";
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
    let executing = "apiserver_flowcontrol_current_executing_requests{priority_level=\"one\",flow_schema=\"greedy\"}";
    wait_for(&server, executing, 1.0).await;
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move { get(&server, person("greedy"), MAPS).await.status() })
        })
        .collect();
    let inqueue = "apiserver_flowcontrol_current_inqueue_requests{priority_level=\"one\",flow_schema=\"greedy\"}";
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
    let executing = "apiserver_flowcontrol_current_executing_requests{priority_level=\"one\",flow_schema=\"greedy\"}";
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
    let used = format!("apiserver_flowcontrol_current_executing_seats{labels}");
    wait_for(&server, &used, 0.0).await;
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

/// Upstream's metrics of 1.36 with their types, but for `epoch_advance_total`, which is not there while it is 0, and for
/// `target_seats` and `seat_fair_frac`: seats are not moved from time to time here.
#[tokio::test]
async fn the_metrics_are_those_of_upstream() {
    let queuing = json!({"queues": 2, "handSize": 1, "queueLengthLimit": 2});
    let server = with_level(json!({"type": "Queue", "queuing": queuing})).await;
    let hanging = hang(&server, person("greedy"));
    let flow = "{priority_level=\"one\",flow_schema=\"greedy\"}";
    let executing = format!("apiserver_flowcontrol_current_executing_seats{flow}");
    wait_for(&server, &executing, 1.0).await;
    // It waits until it gives up.
    let path = format!("{MAPS}?timeout=400ms");
    check_refused(get(&server, person("greedy"), &path).await).await;
    // Queues without requests have no virtual time of the next one.
    let waiting = hang(&server, person("greedy"));
    let in_queue = format!("apiserver_flowcontrol_current_inqueue_requests{flow}");
    wait_for(&server, &in_queue, 1.0).await;
    let (_, text) = crate::send(&server, User::admin(), "GET", "/metrics", "", b"").await;
    let text = text.as_str().unwrap().to_owned();
    waiting.abort();
    for (name, kind) in [
        ("rejected_requests", "counter"),
        ("dispatched_requests", "counter"),
        ("priority_level_seat_utilization", "histogram"),
        ("priority_level_request_utilization", "histogram"),
        ("read_vs_write_current_requests", "histogram"),
        ("current_r", "gauge"),
        ("dispatch_r", "gauge"),
        ("latest_s", "gauge"),
        ("next_s_bounds", "gauge"),
        ("next_discounted_s_bounds", "gauge"),
        ("current_inqueue_requests", "gauge"),
        ("current_inqueue_seats", "gauge"),
        ("request_queue_length_after_enqueue", "histogram"),
        ("current_executing_requests", "gauge"),
        ("current_executing_seats", "gauge"),
        ("request_wait_duration_seconds", "histogram"),
        ("request_execution_seconds", "histogram"),
        ("watch_count_samples", "histogram"),
        ("work_estimated_seats", "histogram"),
        ("request_dispatch_no_accommodation", "counter"),
        ("nominal_limit_seats", "gauge"),
        ("lower_limit_seats", "gauge"),
        ("upper_limit_seats", "gauge"),
        ("demand_seats", "histogram"),
        ("demand_seats_high_watermark", "gauge"),
        ("demand_seats_average", "gauge"),
        ("demand_seats_stdev", "gauge"),
        ("demand_seats_smoothed", "gauge"),
        ("current_limit_seats", "gauge"),
    ] {
        let line = format!("# TYPE apiserver_flowcontrol_{name} {kind}");
        let total = format!("# TYPE apiserver_flowcontrol_{name}_total {kind}");
        let mut lines = text.lines();
        assert!(lines.any(|it| it == line || it == total), "{line}");
    }
    let exempt = "{priority_level=\"exempt\",flow_schema=\"exempt\"";
    for (name, least) in [
        // The first was alone, the second saw itself.
        (format!("request_queue_length_after_enqueue_sum{flow}"), 2.0),
        (
            format!("request_queue_length_after_enqueue_count{flow}"),
            2.0,
        ),
        (
            format!("request_dispatch_no_accommodation_total{flow}"),
            1.0,
        ),
        (format!("dispatched_requests_total{exempt}}}"), 1.0),
        // The request for the metrics.
        (format!("current_executing_requests{exempt}}}"), 1.0),
        (
            format!("request_execution_seconds_count{exempt},type=\"regular\"}}"),
            1.0,
        ),
        (
            "priority_level_seat_utilization_count{phase=\"executing\",priority_level=\"exempt\"}"
                .to_owned(),
            1.0,
        ),
        (
            "read_vs_write_current_requests_sum{phase=\"waiting\",request_kind=\"readOnly\"}"
                .to_owned(),
            1.0,
        ),
        (
            "read_vs_write_current_requests_sum{phase=\"executing\",request_kind=\"mutating\"}"
                .to_owned(),
            1.0,
        ),
        (
            "watch_count_samples_count{priority_level=\"exempt\",flow_schema=\"exempt\"}"
                .to_owned(),
            1.0,
        ),
    ] {
        let name = format!("apiserver_flowcontrol_{name}");
        let value = metric(&server, &name).await;
        assert!(value >= least, "{name} {value}");
    }
    hanging.abort();
}
