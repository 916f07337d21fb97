//! Connections that only wait.

use std::time::Duration;

use allot_apiserver::Limits;
use tokio::io::AsyncReadExt;

use super::{Behind, answer, end, head, within, write};

const VERSION: &str = "/version";

async fn check_served(behind: &Behind, protocol: &str) {
    let mut stream = behind.tls(protocol).await;
    write(&mut stream, head("GET", VERSION, "secret", "").as_bytes()).await;
    assert!(answer(&mut stream).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_make_room() {
    let behind = Behind::start(Limits {
        max_connections: 8,
        ..Limits::default()
    })
    .await;
    // A watch is not idle.
    let mut watch = behind.tls("http/1.1").await;
    let path = "/api/v1/configmaps?watch=true";
    write(&mut watch, head("GET", path, "secret", "").as_bytes()).await;
    answer(&mut watch).await;
    let mut waiting = Vec::new();
    for number in 0..40 {
        // Before the handshake, and after it.
        let stream = behind.tcp().await;
        waiting.push((Some(stream), None));
        if number % 4 == 0 {
            waiting.push((None, Some(behind.tls("http/1.1").await)));
        }
        check_served(&behind, "http/1.1").await;
    }
    let map = serde_json::json!({"metadata": {"name": "seen"}});
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(crate::admin(&behind.server, "POST", maps, map).await.0, 201);
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while !seen.contains("\"seen\"") {
        let read = within(watch.read(&mut buffer)).await.unwrap();
        assert!(read > 0, "the watch was closed");
        seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    drop((waiting, watch));
    behind.stop().await;
}

/// A user with as many busy connections as there may be locked out all others.
#[tokio::test(flavor = "multi_thread")]
async fn regression_busy_connections_of_one_user_do_not_lock_out_others() {
    let behind = Behind::start(Limits {
        max_connections: 8,
        ..Limits::default()
    })
    .await;
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let mut waiting = Vec::new();
    for round in 0..3 {
        for _ in 0..8 {
            let mut stream = behind.tls("http/1.1").await;
            let more = "Content-Length: 100\r\nExpect: 100-continue\r\n";
            write(&mut stream, head("POST", review, "jane", more).as_bytes()).await;
            // Its body is read, so it is busy.
            let asked = answer(&mut stream).await;
            assert!(asked.starts_with("HTTP/1.1 100"), "{round}: {asked}");
            waiting.push(stream);
        }
        check_served(&behind, "http/1.1").await;
    }
    drop(waiting);
    behind.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_waits_without_end() {
    // Long enough for a handshake, and for a request, on a busy machine. All are tried at once.
    let soon = Duration::from_secs(5);
    let behind = Behind::start(Limits {
        handshake_timeout: soon,
        header_timeout: soon,
        idle_timeout: soon,
        ..Limits::default()
    })
    .await;
    let no_handshake = async {
        let mut stream = behind.tcp().await;
        let mut nothing = [0; 1];
        let read = within(stream.read(&mut nothing)).await;
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    };
    let half_a_head = async |text: &str| {
        let mut stream = behind.tls("http/1.1").await;
        write(&mut stream, text.as_bytes()).await;
        end(&mut stream).await;
    };
    let nothing_after_an_answer = async {
        let mut stream = behind.tls("http/1.1").await;
        write(&mut stream, head("GET", VERSION, "secret", "").as_bytes()).await;
        answer(&mut stream).await;
        end(&mut stream).await;
    };
    let http2_without_the_preface = async {
        let mut stream = behind.tls("h2").await;
        end(&mut stream).await;
    };
    let http2_without_requests = async {
        let io = hyper_util::rt::TokioIo::new(behind.tls("h2").await);
        let executor = hyper_util::rt::TokioExecutor::new();
        let (sender, connection) =
            hyper::client::conn::http2::handshake::<_, _, http_body_util::Empty<bytes::Bytes>>(
                executor, io,
            )
            .await
            .unwrap();
        let _ = within(connection).await;
        drop(sender);
    };
    tokio::join!(
        no_handshake,
        half_a_head("GET /version HTTP/1.1\r\nHost: local"),
        half_a_head("G"),
        half_a_head(""),
        nothing_after_an_answer,
        http2_without_the_preface,
        http2_without_requests,
    );
    behind.stop().await;
}

/// What one server takes for one request and another for two, or for another one.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_can_be_read_in_two_ways_are_refused() {
    let behind = Behind::start(Limits::default()).await;
    let token = "Authorization: Bearer secret\r\n";
    let version = "GET /version HTTP/1.1\r\n";
    let post = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\n";
    for (request, wanted) in [
        (format!("{version}Host: x\r\n\r\n"), "HTTP/1.1 200"),
        (format!("{version}\r\n"), "HTTP/1.1 400"),
        (format!("{version}Host: a\r\nHost: b\r\n\r\n"), "HTTP/1.1 400"),
        (format!("{version}Host: x\r\nA: b\r\n c\r\n\r\n"), "HTTP/1.1 400"),
        (format!("{version}Host: x\r\nAuthorization : Bearer secret\r\n\r\n"), "HTTP/1.1 400"),
        (format!("{post}{token}Content-Length: 4\r\nContent-Length: 5\r\n\r\n{{}}   "), "HTTP/1.1 400"),
        (format!("{post}{token}Content-Length: +4\r\n\r\n{{}}  "), "HTTP/1.1 400"),
        (format!("{post}{token}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"), "HTTP/1.1 400"),
        (format!("{post}{token}Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{{}}"), "HTTP/1.1 400"),
        // A success would promise a tunnel.
        (format!("CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n{token}\r\n"), "HTTP/1.1 404"),
        (format!("OPTIONS * HTTP/1.1\r\nHost: x\r\n{token}\r\n"), "HTTP/1.1 404"),
        // Nothing but the authenticated user counts.
        ("GET /api/v1/secrets HTTP/1.1\r\nHost: x\r\nX-Remote-User: a\r\nX-Remote-Group: system:masters\r\n\r\n".to_owned(), "HTTP/1.1 403"),
        (format!("GET /api/v1/secrets HTTP/1.1\r\nHost: x\r\nAuthorization: Basic x\r\n{token}\r\n"), "HTTP/1.1 401"),
        (format!("GET https://elsewhere/api/v1/namespaces/default HTTP/1.1\r\nHost: x\r\n{token}\r\n"), "HTTP/1.1 200"),
    ] {
        let mut stream = behind.tls("http/1.1").await;
        write(&mut stream, request.as_bytes()).await;
        let answer = super::answer(&mut stream).await;
        assert!(answer.starts_with(wanted), "{request}\n{answer}");
    }
    // What comes after a body with two lengths is no request.
    let mut stream = behind.tls("http/1.1").await;
    let second = format!("GET /api/v1/namespaces/default HTTP/1.1\r\nHost: x\r\n{token}\r\n");
    let both = format!(
        "{post}{token}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{second}"
    );
    write(&mut stream, both.as_bytes()).await;
    let first = super::answer(&mut stream).await;
    let mut more = Vec::new();
    // The connection may stay open; what would come would come at once.
    let read = stream.read_to_end(&mut more);
    let _ = tokio::time::timeout(Duration::from_secs(3), read).await;
    let all = first + &String::from_utf8_lossy(&more);
    assert_eq!(all.matches("HTTP/1.1 ").count(), 1, "{all}");
    behind.stop().await;
}
