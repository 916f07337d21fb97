//! Answers that are not read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allot_apiserver::Limits;
use allot_testing::wait;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};

use super::flow::people;
use super::{Behind, end, head, metrics, number_in, within, write};
use crate::admin;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Stores so many objects of 100 kB.
async fn fill(behind: &Behind, count: usize) {
    for number in 0..count {
        let body = json!({
            "metadata": {"name": format!("m-{number:03}")}, "data": {"x": "y".repeat(100_000)},
        });
        assert_eq!(admin(&behind.server, "POST", MAPS, body).await.0, 201);
    }
}

fn short_deadlines() -> Limits {
    Limits {
        stall_timeout: Duration::from_millis(500),
        ..Limits::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unread_list_costs_a_buffer_and_ends() {
    let behind = Behind::start(short_deadlines()).await;
    fill(&behind, 300).await;
    let mut connections = Vec::new();
    for accept in [
        "application/json",
        "application/vnd.kubernetes.protobuf",
        "application/yaml",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
    ] {
        let mut stream = behind.tls("http/1.1").await;
        let path = format!("{MAPS}?includeObject=Object");
        let more = format!("Accept: {accept}\r\n");
        write(&mut stream, head("GET", &path, "secret", &more).as_bytes()).await;
        connections.push(stream);
    }
    // The answers with the metrics are large as well.
    let of_metrics = AtomicUsize::new(0);
    let metrics = wait::until("all answers are abandoned", || async {
        let metrics = metrics(&behind.server).await;
        let abandoned = number_in(&metrics, "allot_apiserver_abandoned_answers_total");
        if abandoned == 4.0 {
            return Ok(metrics);
        }
        of_metrics.fetch_add(metrics.len(), Ordering::Relaxed);
        Err(abandoned)
    })
    .await;
    // 30 MB each; the buffers of the sockets take a part.
    let sent = number_in(&metrics, "allot_apiserver_streamed_bytes_total");
    let sent = sent - of_metrics.load(Ordering::Relaxed) as f64;
    assert!(sent < 60e6, "{sent}");
    assert_eq!(behind.metric("allot_apiserver_answer_bytes").await, 0.0);
    for mut stream in connections {
        end(&mut stream).await;
    }
    behind.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_http2_that_are_not_read_end() {
    let behind = Behind::start(short_deadlines()).await;
    fill(&behind, 20).await;
    let stream = behind.tls("h2").await;
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    // The client takes 16 KiB of each answer and no more.
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(executor)
        .initial_stream_window_size(16 << 10)
        .handshake(io)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let mut answers = Vec::new();
    for path in [MAPS, "/api/v1/configmaps?watch=true&resourceVersion=0"] {
        let request = http::Request::get(format!("https://localhost{path}"))
            .header("authorization", "Bearer secret")
            .body(http_body_util::Empty::<bytes::Bytes>::new())
            .unwrap();
        answers.push(within(sender.send_request(request)).await.unwrap());
    }
    behind
        .wait_for("allot_apiserver_abandoned_answers_total", |it| it == 2.0)
        .await;
    assert_eq!(behind.metric("allot_apiserver_answer_bytes").await, 0.0);
    behind
        .wait_for("apiserver_longrunning_requests", |it| it == 0.0)
        .await;
    // Its client does not read at all: the connection goes, too.
    let _ = within(connection).await.unwrap();
    behind.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_gets_the_whole_list() {
    // A busy machine may keep the reader from its turn for a while.
    let behind = Behind::start(Limits {
        stall_timeout: Duration::from_secs(5),
        ..Limits::default()
    })
    .await;
    fill(&behind, 60).await;
    let mut stream = behind.tls("http/1.1").await;
    let request = head("GET", MAPS, "secret", "Connection: close\r\n");
    write(&mut stream, request.as_bytes()).await;
    let mut buffer = vec![0; 256 << 10];
    let mut total = 0;
    loop {
        let read = within(tokio::io::AsyncReadExt::read(&mut stream, &mut buffer)).await;
        match read.unwrap_or(0) {
            0 => break,
            read => total += read,
        }
        // Longer in all than the longest time without progress.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(total > 60 * 100_000, "{total}");
    assert_eq!(
        behind
            .metric("allot_apiserver_abandoned_answers_total")
            .await,
        0.0
    );
    behind.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_that_are_idle_stay() {
    let behind = Behind::start(short_deadlines()).await;
    let mut stream = behind.tls("http/1.1").await;
    let path = format!("{MAPS}?watch=true");
    write(&mut stream, head("GET", &path, "secret", "").as_bytes()).await;
    let first = super::answer(&mut stream).await;
    assert!(first.starts_with("HTTP/1.1 200"), "{first}");
    tokio::time::sleep(Duration::from_millis(2000)).await;
    // Small enough for the buffers of the sockets: this reader may have to wait for its turn.
    let map = json!({"metadata": {"name": "m-000"}});
    assert_eq!(admin(&behind.server, "POST", MAPS, map).await.0, 201);
    let mut all = String::new();
    let mut buffer = vec![0; 64 << 10];
    while !all.contains("m-000") {
        let read = within(tokio::io::AsyncReadExt::read(&mut stream, &mut buffer)).await;
        let read = read.unwrap();
        assert!(read > 0, "the watch has ended");
        all.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    assert_eq!(
        behind
            .metric("allot_apiserver_abandoned_answers_total")
            .await,
        0.0
    );
    drop(stream);
    behind.stop().await;
}

type Sender = http2::SendRequest<Empty<Bytes>>;

/// A client over HTTP/2, and its connection. `window` bytes of each answer are sent before the client reads it.
async fn http2_client(behind: &Behind, window: u32) -> (Sender, JoinHandle<hyper::Result<()>>) {
    let stream = TokioIo::new(behind.tls("h2").await);
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .handshake(stream)
        .await
        .unwrap();
    (sender, tokio::spawn(connection))
}

/// A request of the user `jane`, which has all permissions but is not exempt from flow control.
fn send_as(sender: &Sender, path: &str) -> http::Request<Empty<Bytes>> {
    assert!(!sender.is_closed());
    http::Request::get(format!("https://localhost{path}"))
        .header("authorization", "Bearer jane")
        .body(Empty::new())
        .unwrap()
}

/// Sends many requests at the same time on one connection, and keeps the responses without reading them.
fn send_without_reading(sender: &Sender, path: &str, count: usize) -> JoinSet<()> {
    let mut asking = JoinSet::new();
    for _ in 0..count {
        let (mut sender, request) = (sender.clone(), send_as(sender, path));
        asking.spawn(async move {
            let answer = sender.send_request(request).await;
            std::future::pending::<()>().await;
            drop(answer);
        });
    }
    asking
}

/// A server with a small pool for answers that are not read.
async fn with_small_pool() -> Behind {
    let limits = Limits {
        unread_bytes: 256 << 10,
        // The server closes the connection after twice this time; until then the test reads its metrics.
        stall_timeout: Duration::from_secs(2),
        ..Limits::default()
    };
    Behind::of(people(limits).await).await
}

/// Opens many streams on one connection and reads none of the responses; returns the most bytes that connections held
/// until the server closed this one.
async fn most_held(behind: &Behind, path: &str) -> f64 {
    let (sender, connection) = http2_client(behind, 0).await;
    let _asking = send_without_reading(&sender, path, 90);
    let mut most = 0_f64;
    let watched = async {
        while !connection.is_finished() {
            most = most.max(behind.metric("allot_apiserver_unread_bytes").await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(watched).await;
    behind
        .wait_for("allot_apiserver_unread_bytes", |it| it == 0.0)
        .await;
    most
}

/// Each of the streams of a connection held an answer for as long as its client liked.
#[tokio::test(flavor = "multi_thread")]
async fn regression_small_answers_that_are_not_read_are_bounded_and_end() {
    let behind = with_small_pool().await;
    let map = json!({"metadata": {"name": "small"}, "data": {"x": "y".repeat(50_000)}});
    assert_eq!(admin(&behind.server, "POST", MAPS, map).await.0, 201);
    let most = most_held(&behind, &format!("{MAPS}/small")).await;
    // An allowance, the pool, and the answer that exceeds the pool.
    assert!(most > 256e3, "{most}");
    assert!(most < f64::from((64 + 256) << 10) + 51e3, "{most}");
    behind.stop().await;
}

/// Each of the streams of a connection held as much as its queue can hold.
#[tokio::test(flavor = "multi_thread")]
async fn regression_watches_that_are_not_read_are_bounded_and_end() {
    let behind = with_small_pool().await;
    fill(&behind, 20).await;
    let watch = format!("{MAPS}?watch=true&resourceVersion=0");
    let most = most_held(&behind, &watch).await;
    assert!(most > 256e3, "{most}");
    // When the pool is full, each thread may add one more piece of 100 kB; without the bound each stream had one.
    assert!(most < 6e6, "{most}");
    behind.stop().await;
}

/// Even if other connections use the whole pool, a client that reads receives everything.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_needs_no_more_than_its_allowance() {
    let limits = Limits {
        unread_bytes: 0,
        ..Limits::default()
    };
    let behind = Behind::of(people(limits).await).await;
    fill(&behind, 20).await;
    let map = json!({"metadata": {"name": "small"}, "data": {"x": "y".repeat(50_000)}});
    assert_eq!(admin(&behind.server, "POST", MAPS, map).await.0, 201);
    let (sender, connection) = http2_client(&behind, 1 << 20).await;
    let mut reading = JoinSet::new();
    for number in 0..30 {
        let path = match number % 3 {
            0 => format!("{MAPS}?watch=true&resourceVersion=0"),
            1 => format!("{MAPS}/m-007"),
            _ => format!("{MAPS}/small"),
        };
        let (mut sender, request) = (sender.clone(), send_as(&sender, &path));
        let wanted = [20 * 100_000, 100_000, 50_000][number % 3];
        reading.spawn(async move {
            let answer = sender.send_request(request).await.unwrap();
            assert_eq!(answer.status(), 200);
            let mut body = answer.into_body();
            let mut read = 0;
            while read < wanted {
                let frame = body.frame().await.expect("the answer is longer").unwrap();
                read += frame.data_ref().map_or(0, Bytes::len);
            }
        });
    }
    while let Some(read) = within(reading.join_next()).await {
        read.unwrap();
    }
    let abandoned = "allot_apiserver_abandoned_answers_total";
    assert_eq!(behind.metric(abandoned).await, 0.0);
    drop((sender, connection));
    behind.stop().await;
}
