//! Streams of containers, as clients of all versions ask for them.

use allot_node::RuntimeKind;
use allot_testing::wait::{PATIENCE, until};
use futures::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::harness::{pod_path, shell};
use super::setup::Setup;

/// A connection that continues as something else, and the head of the answer. The lines of the request follow the first
/// one.
pub(super) async fn upgrade(
    setup: &Setup,
    request: &str,
    lines: &str,
) -> (TlsStream<TcpStream>, String) {
    let identity = setup.authority.client("user", &[]).expect("a certificate");
    let mut stream = setup.connect(Some(identity)).await;
    let head = format!("{request} HTTP/1.1\r\nhost: n1\r\nconnection: Upgrade\r\n{lines}\r\n");
    stream.write_all(head.as_bytes()).await.expect("written");
    let mut answer = String::new();
    while !answer.ends_with("\r\n\r\n") {
        let byte = tokio::time::timeout(PATIENCE, stream.read_u8()).await;
        let byte = byte.expect("an answer in time").expect("an answer");
        answer.push(char::from(byte));
    }
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    (stream, answer)
}

/// Like [`upgrade`], to WebSocket.
pub(super) async fn by_websocket(
    setup: &Setup,
    path: &str,
    lines: &str,
) -> (TlsStream<TcpStream>, String) {
    let lines = format!(
        "upgrade: websocket\r\n{lines}sec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    );
    upgrade(setup, &format!("GET {path}"), &lines).await
}

/// A node with a pod whose streams a user may have.
pub(super) async fn with_pod() -> Setup {
    let setup = Setup::with(RuntimeKind::Process, false).await;
    setup.allow("user", &["get", "create"], "proxy").await;
    setup.create_pod(shell("sleep 300")).await;
    until("the pod runs", || async {
        match setup.get(&pod_path("p")).await {
            Some(pod) if pod["status"]["phase"] == "Running" => Ok(()),
            found => Err(found),
        }
    })
    .await;
    setup
}

/// What a client gets of a program by WebSocket, with the protocol that the node chose: messages without their channels,
/// by channel.
pub(super) async fn exec(
    setup: &Setup,
    script: &str,
    protocol: Option<&str>,
) -> (String, [String; 4]) {
    let offer = protocol.map(|it| format!("sec-websocket-protocol: {it}\r\n"));
    let path = format!("/exec/default/p/c?output=1&error=1&command=sh&command=-c&command={script}");
    let (stream, answer) = by_websocket(setup, &path, &offer.unwrap_or_default()).await;
    let chosen = answer
        .lines()
        .find_map(|line| line.strip_prefix("sec-websocket-protocol: "));
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
    let mut all: [String; 4] = Default::default();
    loop {
        let message = tokio::time::timeout(PATIENCE, socket.next()).await;
        let (channel, text) = match message.expect("a message in time") {
            Some(Ok(Message::Binary(data))) => {
                let (channel, data) = data.split_first().expect("a channel");
                (*channel, String::from_utf8_lossy(data).into_owned())
            }
            Some(Ok(Message::Text(text))) => {
                let (channel, data) = text.split_at(1);
                (channel.as_bytes()[0] - b'0', data.to_owned())
            }
            Some(Ok(Message::Close(_))) | None => break,
            other => panic!("{other:?}"),
        };
        all[usize::from(channel)].push_str(&text);
    }
    (chosen.unwrap_or_default().to_owned(), all)
}

/// Clients that name no protocol, or one of before v4, were refused.
#[tokio::test(flavor = "multi_thread")]
async fn regression_old_web_socket_protocols_are_understood() {
    let setup = with_pod().await;
    for protocol in [None, Some("channel.k8s.io")] {
        let (chosen, [_, out, error, result]) = exec(&setup, "echo%20hi", protocol).await;
        assert_eq!(chosen, protocol.unwrap_or_default());
        assert_eq!((&*out, &*error, &*result), ("hi\n", "", ""));
    }
    let (_, [_, out, _, result]) = exec(&setup, "exit%203", Some("channel.k8s.io")).await;
    assert_eq!(out, "");
    assert!(result.contains("exit code 3"), "{result}");
    assert!(!result.contains('{'), "{result}");
    // "hi" and a newline.
    let (_, [_, out, _, _]) = exec(&setup, "echo%20hi", Some("base64.channel.k8s.io")).await;
    assert_eq!(out, "aGkK");
    let (_, [_, out, _, result]) = exec(&setup, "echo%20hi", Some("v4.channel.k8s.io")).await;
    assert_eq!(out, "hi\n");
    assert!(result.contains("\"status\":\"Success\""), "{result}");
    setup.delete_pod().await;
}
