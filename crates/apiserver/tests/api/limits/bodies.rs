//! Bodies that are too large, too slow, or not wanted.

use std::time::Duration;

use allot_apiserver::{Limits, MAX_BODY};
use http_body_util::{BodyExt, Full};

use super::{Behind, answer, head, within, write};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn check_413(answer: &str) {
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let status: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(status["code"], 413);
    assert_eq!(status["reason"], "RequestEntityTooLarge");
    assert_eq!(
        status["message"],
        format!("Request entity too large: limit is {MAX_BODY}")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_the_limit_is_told_so() {
    let behind = Behind::start(Limits::default()).await;
    for length in [MAX_BODY + 1, 2 * MAX_BODY] {
        let body = vec![b' '; length];
        // The length is announced.
        let mut stream = behind.tls("http/1.1").await;
        let more = format!("Content-Length: {length}\r\n");
        write(&mut stream, head("POST", MAPS, "secret", &more).as_bytes()).await;
        write(&mut stream, &body).await;
        check_413(&answer(&mut stream).await);
        // All of it has been read, so the connection continues.
        write(&mut stream, head("GET", MAPS, "secret", "").as_bytes()).await;
        assert!(answer(&mut stream).await.starts_with("HTTP/1.1 200"));
        // It comes in pieces.
        let mut stream = behind.tls("http/1.1").await;
        let more = "Transfer-Encoding: chunked\r\n";
        write(&mut stream, head("POST", MAPS, "secret", more).as_bytes()).await;
        for piece in body.chunks(1 << 20) {
            write(&mut stream, format!("{:x}\r\n", piece.len()).as_bytes()).await;
            write(&mut stream, piece).await;
            write(&mut stream, b"\r\n").await;
        }
        write(&mut stream, b"0\r\n\r\n").await;
        check_413(&answer(&mut stream).await);
    }
    // The client waits to be asked for it: it is not.
    let mut stream = behind.tls("http/1.1").await;
    let more = format!(
        "Content-Length: {}\r\nExpect: 100-continue\r\n",
        MAX_BODY + 1
    );
    write(&mut stream, head("POST", MAPS, "secret", &more).as_bytes()).await;
    check_413(&answer(&mut stream).await);
    behind.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_over_http2() {
    let behind = Behind::start(Limits::default()).await;
    let io = hyper_util::rt::TokioIo::new(behind.tls("h2").await);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    for (token, wanted) in [("secret", 413), ("wrong", 401), ("jane", 403)] {
        let request = http::Request::post(format!("https://localhost{MAPS}"))
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .body(Full::new(bytes::Bytes::from(vec![b' '; MAX_BODY + 1])))
            .unwrap();
        let response = within(sender.send_request(request)).await.unwrap();
        assert_eq!(response.status(), wanted);
        let body = within(response.into_body().collect()).await.unwrap();
        let status: serde_json::Value = serde_json::from_slice(&body.to_bytes()).unwrap();
        assert_eq!(status["code"], wanted);
    }
    drop(sender);
    let _ = within(connection).await;
    behind.stop().await;
}

/// Whatever refuses a request before its body has been read, its client gets to see why.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_seen_by_those_who_send_much() {
    let behind = Behind::start(Limits::default()).await;
    let length = MAX_BODY - 1;
    for (path, token, wanted) in [
        (MAPS, "wrong", "401"),
        (MAPS, "jane", "403"),
        (&*format!("{MAPS}?timeout=x"), "secret", "400"),
        ("/version", "secret", "405"),
        ("/nothing", "secret", "404"),
    ] {
        let mut stream = behind.tls("http/1.1").await;
        let more = format!("Content-Length: {length}\r\n");
        write(&mut stream, head("POST", path, token, &more).as_bytes()).await;
        write(&mut stream, &vec![b' '; length]).await;
        let answer = answer(&mut stream).await;
        assert_eq!(answer.split(' ').nth(1), Some(wanted), "{path}: {answer}");
    }
    behind.stop().await;
}

/// `?timeout=` bounds a request, and the server bounds `?timeout=`.
#[tokio::test(flavor = "multi_thread")]
async fn requests_end_in_time() {
    let patient = Limits::default();
    let quick = Limits {
        request_timeout: Duration::from_millis(50),
        ..Limits::default()
    };
    for (limits, query) in [
        (patient, "?timeout=50ms"),
        (quick.clone(), ""),
        (quick.clone(), "?timeout=0s"),
        (quick, "?timeout=1h"),
    ] {
        let behind = Behind::start(limits).await;
        let mut stream = behind.tls("http/1.1").await;
        let path = format!("{MAPS}{query}");
        let head = head("POST", &path, "secret", "Content-Length: 10\r\n");
        // The body never comes.
        write(&mut stream, head.as_bytes()).await;
        let answer = answer(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 504"), "{query}: {answer}");
        assert!(
            answer.contains("Timeout: request did not complete within the allotted timeout"),
            "{answer}"
        );
        drop(stream);
        behind.stop().await;
    }
}
