use allot_driver::webhook::Certificate;

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

/// A stopped server keeps its connections open: only a timeout detects it, also in the middle of a response.
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

/// The library accepts every CA as valid: a server with an expired CA was trusted.
#[tokio::test]
async fn regression_an_expired_authority_proves_no_server() {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    let mut roots = Vec::new();
    for last in [2020, 4096] {
        let made = "a key";
        let (key, of_authority) = (
            KeyPair::generate().expect(made),
            KeyPair::generate().expect(made),
        );
        let mut authority = CertificateParams::new(Vec::new()).expect("no names");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.not_after = rcgen::date_time_ymd(last, 1, 1);
        let root = authority.self_signed(&of_authority).expect("a root");
        let issuer = Issuer::new(authority, of_authority);
        let server = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
        let server = server.signed_by(&key, &issuer).expect("a certificate");
        let key = rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).expect(made);
        let server = Certificate::fixed(vec![server.der().clone()], key);
        let server = std::sync::Arc::new(server.expect("they fit"));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(server.accept(stream).await);
            }
        });
        let uri = format!("https://{address}").parse().expect("a URL");
        let mut config = kube::Config::new(uri);
        roots.push(root.der().to_vec());
        config.root_cert = Some(vec![root.der().to_vec()]);
        let client = connect(config, "test", Watches::Apart).expect("a client");
        let error = client.apiserver_version().await.expect_err("it hangs up");
        // Otherwise the connection ends after the handshake.
        let is_refused = error.to_string().contains("certificate: Expired");
        assert_eq!(is_refused, last == 2020, "{error}");
        assert!(
            is_refused || !error.to_string().contains("certificate"),
            "{error}"
        );
        serving.abort();
    }
    let mut config = kube::Config::new("https://127.0.0.1".parse().expect("a URL"));
    config.root_cert = Some(roots.clone());
    trust::forget_expired(&mut config);
    assert_eq!(config.root_cert.as_deref(), Some(&roots[1..]));
}
