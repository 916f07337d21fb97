//! The secure port against a real API server and through a real socket.

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use http_body_util::BodyExt as _;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::PostParams;

use super::*;

const PAGE: &str = "# TYPE attempts counter\nattempts_total 1\n# EOF\n";

/// An API server with an account that may read metrics, and one that may not; with their tokens.
async fn accounts() -> (kube::Client, String, String) {
    let server = Server::in_memory().await.expect("a server");
    let client = kube::Client::new(server.client_service(User::admin()), "default");
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let mut tokens = Vec::new();
    for name in ["reader", "stranger"] {
        let account = json!({"metadata": {"name": name}});
        let account = serde_json::from_value(account).expect("an account");
        let params = PostParams::default();
        accounts.create(&params, &account).await.expect("created");
        let issued = accounts
            .create_token_request(name, &params, &TokenRequest::default())
            .await
            .expect("a token");
        tokens.push(
            issued
                .status
                .and_then(|status| status.token)
                .expect("a token"),
        );
    }
    let role = json!({"metadata": {"name": "reader"},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]});
    let binding = json!({"metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}]});
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let params = PostParams::default();
    roles
        .create(&params, &serde_json::from_value(role).expect("a role"))
        .await
        .expect("created");
    bindings
        .create(
            &params,
            &serde_json::from_value(binding).expect("a binding"),
        )
        .await
        .expect("created");
    let stranger = tokens.pop().expect("two tokens");
    (client, tokens.pop().expect("two tokens"), stranger)
}

fn pages(client: kube::Client) -> Pages {
    Pages {
        metrics: Box::new(|| PAGE.to_owned()),
        reviews: Reviews::new(client),
    }
}

/// The response of the port to a request with these Authorization headers.
async fn check(
    pages: &Pages,
    method: Method,
    path: &str,
    headers: &[&[u8]],
    code: u16,
    part: &str,
) {
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().expect("a path");
    for header in headers {
        let value = http::HeaderValue::from_bytes(header).expect("a header");
        request.headers_mut().append("authorization", value);
    }
    let response = pages.answer(&request).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body");
    let body = String::from_utf8(body.to_bytes().to_vec()).expect("text");
    assert_eq!(status, code, "{path}: {body}");
    assert!(body.contains(part), "{part:?} in {body}");
}

#[tokio::test]
async fn rbac_decides_about_readers_of_metrics() {
    let (client, reader, stranger) = accounts().await;
    let pages = pages(client);
    let bearer = |token: &str| format!("Bearer {token}").into_bytes();
    let (reader, stranger) = (bearer(&reader), bearer(&stranger));
    let get = || Method::GET;

    for path in HEALTH {
        check(&pages, get(), path, &[], 200, "ok").await;
        // Health never asks for the identity, so that a broken token cannot make a component look dead.
        check(&pages, get(), path, &[b"Bearer wrong"], 200, "ok").await;
    }
    let allowed = "# TYPE attempts_total counter\nattempts_total 1\n";
    check(&pages, get(), "/metrics", &[&reader], 200, allowed).await;
    check(
        &pages,
        get(),
        "/metrics",
        &[&reader],
        200,
        "process_open_fds ",
    )
    .await;
    let anonymous = r#"forbidden: User \"system:anonymous\" cannot get path \"/metrics\""#;
    check(&pages, get(), "/metrics", &[], 403, anonymous).await;
    let denied = r#"User \"system:serviceaccount:default:stranger\" cannot get path \"/metrics\""#;
    check(&pages, get(), "/metrics", &[&stranger], 403, denied).await;
    // The right to get /metrics is no right to anything else.
    check(
        &pages,
        Method::POST,
        "/metrics",
        &[&reader],
        403,
        "cannot post path",
    )
    .await;
    check(
        &pages,
        get(),
        "/configz",
        &[&reader],
        403,
        "cannot get path",
    )
    .await;
    check(
        &pages,
        get(),
        "/metrics/",
        &[&reader],
        403,
        "cannot get path",
    )
    .await;

    // Invalid credentials are rejected, never treated as anonymous.
    for headers in [
        &[&b"Bearer wrong"[..]][..],
        &[b"Bearer \xc3\xa9"],
        &[b"Bearer "],
        &[b"Basic dXNlcjpwYXNz"],
        &[b""],
        &[&reader, &reader],
    ] {
        check(&pages, get(), "/metrics", headers, 401, "Unauthorized").await;
    }
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_opens_nothing() {
    let unreachable = tower::service_fn(|_: Request<kube::client::Body>| async {
        Err::<Response<kube::client::Body>, _>(std::io::Error::other("connection refused"))
    });
    let pages = pages(kube::Client::new(unreachable, "default"));
    for headers in [&[][..], &[&b"Bearer x"[..]]] {
        check(&pages, Method::GET, "/metrics", headers, 500, "failed").await;
    }
    check(&pages, Method::GET, "/livez", &[], 200, "ok").await;
}

#[tokio::test]
async fn the_port_speaks_tls_with_a_certificate_of_its_own() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let (client, ..) = accounts().await;
    let flags = SecureServing {
        secure_port: 0,
        bind_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        tls_cert_file: None,
        tls_private_key_file: None,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let certificate = flags.certificate("allot-scheduler").expect("a certificate");
    tokio::spawn(serve(
        listener,
        Arc::new(certificate),
        Arc::new(pages(client)),
    ));

    // Plain HTTP gets no answer, and other clients are served nevertheless.
    let mut plain = tokio::net::TcpStream::connect(address)
        .await
        .expect("connected");
    plain
        .write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .expect("sent");
    let mut answer = Vec::new();
    // The server ends the connection with a TLS alert.
    let _ended = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    // The test is about the protocol.
    let trust = Arc::new(allot_certificates::AnyServer::new(provider.clone()));
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(trust)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = tokio::net::TcpStream::connect(address)
        .await
        .expect("connected");
    let name = rustls_pki_types::ServerName::try_from("localhost").expect("a name");
    let mut stream = connector.connect(name, stream).await.expect("a handshake");
    let request = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}
