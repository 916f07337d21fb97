//! Long-running requests: watches, and connections that are upgraded.

use allot_apiserver::Limits;
use allot_apiserver::identity::User;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::flow::{get, people};
use super::{Behind, answer, end, head, within, write};
use crate::admin;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=true";

/// Opens a watch by WebSocket and waits until the protocol has changed.
pub async fn by_websocket(behind: &Behind) -> TlsStream<TcpStream> {
    let (stream, answer) = upgraded(behind, WATCH, "secret").await;
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    stream
}

/// A connection after a request to upgrade it to WebSocket, and the answer.
async fn upgraded(behind: &Behind, path: &str, token: &str) -> (TlsStream<TcpStream>, String) {
    let mut stream = behind.tls("http/1.1").await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    write(&mut stream, head("GET", path, token, upgrade).as_bytes()).await;
    let answer = answer(&mut stream).await;
    (stream, answer)
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

/// One user could open watches until there was no memory.
#[tokio::test]
async fn regression_watches_of_one_user_are_bounded() {
    let server = people(Limits {
        max_watches: 8,
        ..Limits::default()
    })
    .await;
    let watch = async |user: User| get(&server, user, WATCH).await;
    let account = |name: &str| User::new(format!("system:serviceaccount:team:{name}"), ["people"]);
    let mut open = Vec::new();
    for name in ["a", "b"] {
        let answer = watch(account(name)).await;
        assert_eq!(answer.status(), 200);
        open.push(answer);
    }
    let refused = watch(account("c")).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");
    // Other users are served, and administrators and components have no limit.
    for user in [
        User::new("other", ["people"]),
        User::admin(),
        User::admin(),
        User::admin(),
    ] {
        let answer = watch(user).await;
        assert_eq!(answer.status(), 200);
        open.push(answer);
    }
    // A watch that ends no longer counts.
    open.remove(0);
    assert_eq!(watch(account("c")).await.status(), 200);
    // A list is no watch.
    assert_eq!(get(&server, account("c"), MAPS).await.status(), 200);
}

/// Upgraded connections are never closed for new ones: one user could have all of them.
#[tokio::test(flavor = "multi_thread")]
async fn regression_upgraded_connections_of_one_user_are_bounded() {
    let server = people(Limits {
        max_connections: 16,
        ..Limits::default()
    })
    .await;
    let behind = Behind::of(server).await;
    let node = json!({"metadata": {"name": "n"}, "status": {"addresses": [
        {"type": "InternalIP", "address": "203.0.113.1"},
    ]}});
    assert_eq!(
        admin(&behind.server, "POST", "/api/v1/nodes", node).await.0,
        201
    );
    let mut open = Vec::new();
    // A quarter of three quarters.
    for _ in 0..3 {
        let (stream, answer) = upgraded(&behind, WATCH, "jane").await;
        assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        open.push(stream);
    }
    for path in [WATCH, "/api/v1/nodes/n/proxy/exec/a/b/c"] {
        let (_, answer) = upgraded(&behind, path, "jane").await;
        assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
        assert!(answer.to_lowercase().contains("retry-after: 1"), "{answer}");
    }
    // Plain requests of the user are served, and so are streams of others.
    let mut plain = behind.tls("http/1.1").await;
    write(&mut plain, head("GET", MAPS, "jane", "").as_bytes()).await;
    assert!(answer(&mut plain).await.starts_with("HTTP/1.1 200"));
    let (_other, answer) = upgraded(&behind, WATCH, "secret").await;
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    open.pop();
    let again = async {
        while !upgraded(&behind, WATCH, "jane")
            .await
            .1
            .starts_with("HTTP/1.1 101")
        {
            tokio::task::yield_now().await;
        }
    };
    within(again).await;
    drop((open, plain));
    behind.stop().await;
}

/// A frame of a WebSocket client. Its mask is zero, which leaves the data as it is.
fn frame(first: u8, data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_be_bytes();
    [&[first, 0xff][..], &length, &[0; 4], data].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_of_a_watch_that_are_none_end_it_alone() {
    let behind = Behind::start(Limits::default()).await;
    // More than the server buffers of what a client sends to a watch.
    let mut endless = frame(0x02, b"x");
    endless.extend(frame(0x00, &[b'x'; 1000]).repeat(200));
    let mut pings = [0x89, 0x81, 0, 0, 0, 0, b'x'].repeat(20_000);
    pings.extend([0x88, 0x80, 0, 0, 0, 0]);
    for (what, bytes) in [
        ("a frame without a mask", vec![0x82, 2, 0, b'x']),
        ("an unknown kind of frame", frame(0x83, b"x")),
        ("a frame with reserved bits", frame(0xf2, b"x")),
        (
            "a frame of eight exabytes",
            [&[0x82, 0xff, 0x7f][..], &[0xff; 7], &[0; 4]].concat(),
        ),
        (
            "a frame of a megabyte",
            [&[0x82, 0xff][..], &(1_u64 << 20).to_be_bytes(), &[0; 4]].concat(),
        ),
        ("a long ping", frame(0x89, &[b'x'; 200])),
        ("a ping in parts", vec![0x09, 0x80, 0, 0, 0, 0]),
        ("the rest of nothing", frame(0x80, b"x")),
        ("text that is none", frame(0x81, b"\xff")),
        ("a message without an end", endless),
        ("a flood of pings", pings),
    ] {
        let (mut stream, answer) = upgraded(&behind, WATCH, "secret").await;
        assert!(answer.starts_with("HTTP/1.1 101"), "{what}: {answer}");
        // The stream may have ended before everything was sent.
        let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, &bytes).await;
        let _ = tokio::io::AsyncWriteExt::flush(&mut stream).await;
        end(&mut stream).await;
    }
    behind
        .wait_for("apiserver_longrunning_requests", |it| it == 0.0)
        .await;
    behind.stop().await;
}
