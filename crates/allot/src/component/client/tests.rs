use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

#[tokio::test]
async fn an_error_says_why_the_server_cannot_be_reached() {
    // Bound, so that no other server gets the port, and not listened on.
    let gone = tokio::net::TcpSocket::new_v4().expect("a socket");
    gone.bind("127.0.0.1:0".parse().expect("an address"))
        .expect("a port");
    let address = gone.local_addr().expect("bound");
    let uri = format!("http://{address}").parse().expect("a URL");
    let client = connect(kube::Config::new(uri), "test", Watches::Apart).expect("a client");
    let error = client
        .apiserver_version()
        .await
        .expect_err("nobody listens");
    assert!(error.to_string().contains("Connection refused"), "{error}");
}

/// Pods waited for a minute and more for a server that answers every third request with 429.
#[tokio::test]
async fn a_busy_server_is_asked_again_soon() {
    use tower::retry::Policy;

    let mut policy = patient().expect("it is valid");
    let mut request = Request::new(Body::empty());
    for attempt in 0..15 {
        let busy = Response::builder().status(429).header("Retry-After", "1");
        let mut answer: Result<_, BoxError> = Ok(busy.body(()).expect("a response"));
        let pause = policy.retry(&mut request, &mut answer);
        let pause = pause.unwrap_or_else(|| panic!("it gave up after {attempt}"));
        let waits = pause.deadline() - Instant::now();
        assert!(waits <= Duration::from_secs(2), "{attempt}: {waits:?}");
    }
}

#[test]
fn writes_and_streams_do_not_share_a_connection_with_reads() {
    let check = |method: &str, uri: &str, expected| {
        let request = Request::builder().method(method).uri(uri);
        let request = request.body(Body::empty()).expect("a request");
        assert_eq!(traffic(&request), expected, "{method} {uri}");
    };
    check("GET", "/api/v1/pods", Traffic::Read);
    check("GET", "/api/v1/pods?limit=500&watchful=true", Traffic::Read);
    check("GET", "/api/v1/pods?limit=500&watch=true", Traffic::Watch);
    check("GET", "/api/v1/pods?watch=1", Traffic::Watch);
    check(
        "GET",
        "/api/v1/namespaces/d/pods/p/log?follow=true",
        Traffic::Watch,
    );
    check("POST", "/api/v1/namespaces/d/pods", Traffic::Write);
    check(
        "PATCH",
        "/api/v1/namespaces/d/pods/p/status",
        Traffic::Write,
    );
    check("DELETE", "/api/v1/namespaces/d/pods/p", Traffic::Write);
}

/// A server that is stopped keeps its connections: nothing but time tells, also in the middle of an answer.
#[tokio::test]
async fn a_write_to_a_frozen_server_is_given_up() {
    const SOON: Duration = Duration::from_millis(20);
    for sent in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            stream.read_u8().await.expect("a request");
            stream.write_all(sent.as_bytes()).await.expect("it reads");
            std::future::pending::<()>().await;
        });
        let uri = format!("http://{address}").parse().expect("a URL");
        let config = kube::Config::new(uri);
        let mut transport = Transport::new(&config, Watches::Apart).expect("connections");
        transport.limit = SOON;
        let request = Request::post(format!("http://{address}/api/v1/namespaces"));
        let request = request.body(Body::empty()).expect("a request");
        let error = transport.call(request).await.expect_err("no whole answer");
        assert_eq!(error.to_string(), "no answer within 20ms", "{sent:?}");
        server.abort();
    }
}
