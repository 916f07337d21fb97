//! The server behind a front proxy: whose headers name users.

use std::net::SocketAddr;
use std::sync::Arc;

use allot_apiserver::config::{FrontProxy, RequestHeaders};
use allot_apiserver::pki::{Authority, Identity};
use allot_apiserver::serve::Tls;
use allot_apiserver::{Config, Server, serve};
use allot_store::{Embedded, Options};
use http::{HeaderName, Request};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

fn headers(fronts: &Authority) -> RequestHeaders {
    let header = |name: &'static str| vec![HeaderName::from_static(name)];
    RequestHeaders {
        ca: fronts.certificate().to_owned(),
        allowed_names: vec!["front-proxy-client".to_owned()],
        username: header("x-remote-user"),
        uid: header("x-remote-uid"),
        group: header("x-remote-group"),
        extra_prefixes: vec!["x-remote-extra-".to_owned()],
    }
}

/// A server on a socket that believes the proxies which `fronts` has signed.
pub async fn start(
    identity: &Identity,
    clients: &Authority,
    fronts: &Authority,
) -> (Server, Arc<Embedded>, SocketAddr, DropGuard) {
    let backend = Arc::new(Embedded::in_memory(Options::default()));
    let config = Config {
        front_proxy: FrontProxy {
            client: Some(fronts.client("front-proxy-client", &[]).unwrap()),
            headers: Some(headers(fronts)),
        },
        ..Config::default()
    };
    let server = Server::new(backend.clone(), config);
    server.bootstrap().await.unwrap();
    let tls = tls(identity, clients, fronts);
    let (address, stop) = listen(&server, tls).await;
    (server, backend, address, stop)
}

fn tls(identity: &Identity, clients: &Authority, fronts: &Authority) -> Tls {
    let (clients, fronts) = (clients.certificate(), fronts.certificate());
    serve::tls_behind_proxies(identity, Some(clients), Some(fronts)).unwrap()
}

async fn listen(server: &Server, tls: Tls) -> (SocketAddr, DropGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(serve::serve(server.clone(), listener, tls, stop.clone()));
    (address, stop.drop_guard())
}

/// A connection to a server, with a client certificate or without one.
pub async fn connect(
    address: SocketAddr,
    authority: &Authority,
    identity: Option<&Identity>,
) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.certificate().as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes());
            let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap()
}

/// Asks the server which user the request is from: code, and the user information.
async fn user(
    address: SocketAddr,
    authority: &Authority,
    identity: Option<&Identity>,
    headers: &[(&str, &[u8])],
) -> (u16, Value) {
    let stream = connect(address, authority, identity).await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    // Of anonymous users a review is refused; the message names the user then.
    let mut request = Request::post(REVIEWS)
        .header("host", "localhost")
        .header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = request.body(body.to_string()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    match code {
        201 => (code, answer["status"]["userInfo"].clone()),
        _ => (code, answer["message"].clone()),
    }
}

/// The attack: the key of a front proxy was stolen, and its authority is taken out of the file. The proxy could name users until
/// the server started again.
#[tokio::test(flavor = "multi_thread")]
async fn regression_other_authorities_of_front_proxies_count_at_once() {
    let clients = Authority::generate("clients").unwrap();
    let [first, second] = ["first", "second"].map(|name| Authority::generate(name).unwrap());
    let serving = clients.server("x", &["localhost".to_owned()], &[]);
    let serving = serving.unwrap();
    let (server, _backend, _address, _stop) = start(&serving, &clients, &first).await;
    let tls = tls(&serving, &clients, &first);
    let (address, _also) = listen(&server, tls.clone()).await;
    let names: [(&str, &[u8]); 2] = [("x-remote-user", b"jo"), ("x-remote-group", b"team")];
    let named_by = async |authority: &Authority| {
        let front = authority.client("front-proxy-client", &[]).unwrap();
        let (code, info) = user(address, &clients, Some(&front), &names).await;
        (code == 201).then(|| info["username"].clone())
    };
    let jo = Some(Value::from("jo"));
    assert_eq!(named_by(&first).await, jo);
    assert_eq!(named_by(&second).await, None);
    tls.trust_front_proxies(second.certificate()).unwrap();
    assert_eq!(named_by(&first).await, None);
    assert_eq!(named_by(&second).await, jo);
    tls.trust_front_proxies("no certificate").unwrap_err();
    assert_eq!(named_by(&second).await, jo);
    // Authorities of clients change alone.
    tls.trust(clients.certificate()).unwrap();
    assert_eq!(named_by(&first).await, None);
    assert_eq!(named_by(&second).await, jo);
}

/// The attack: a client names another user in the headers of a front proxy. Only a certificate of the proxies' CA, with an
/// allowed name, makes them count.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_front_proxy_names_users_in_headers() {
    let clients = Authority::generate("clients").unwrap();
    let fronts = Authority::generate("fronts").unwrap();
    let strangers = Authority::generate("fronts").unwrap();
    let names = ["localhost".to_owned()];
    let serving = clients.server("x", &names, &[]).unwrap();
    let (_server, _backend, address, _stop) = start(&serving, &clients, &fronts).await;
    let claims: [(&str, &[u8]); 5] = [
        ("x-remote-user", b"jo"),
        ("x-remote-uid", b"7"),
        ("x-remote-group", b"system:masters"),
        ("x-remote-group", b"team"),
        ("x-remote-extra-example.org%2fscope", b"one"),
    ];
    let proxy = fronts.client("front-proxy-client", &[]).unwrap();
    let (code, found) = user(address, &clients, Some(&proxy), &claims).await;
    let expected = json!({
        "username": "jo", "uid": "7", "groups": ["system:masters", "team", "system:authenticated"],
        "extra": {"example.org/scope": ["one"]},
    });
    assert_eq!((code, found), (201, expected));
    // A client of its own name, one without a certificate, and one with a certificate of another CA with the same name.
    let client = clients.client("kim", &[]).unwrap();
    let (code, found) = user(address, &clients, Some(&client), &claims).await;
    assert_eq!((code, &found["username"]), (201, &json!("kim")));
    assert_eq!(found["groups"], json!(["system:authenticated"]));
    let impostor = clients.client("front-proxy-client", &[]).unwrap();
    let (_, found) = user(address, &clients, Some(&impostor), &claims).await;
    assert_eq!(found["username"], "front-proxy-client");
    let (code, found) = user(address, &clients, None, &claims).await;
    assert_eq!(code, 403, "{found}");
    assert!(
        found.as_str().unwrap().contains("system:anonymous"),
        "{found}"
    );
    let stranger = strangers.client("front-proxy-client", &[]).unwrap();
    let other_name = fronts.client("some-other-client", &[]).unwrap();
    let garbled: [(&str, &[u8]); 2] = [("x-remote-user", b"jo"), ("x-remote-group", b"\xff")];
    let twice: [(&str, &[u8]); 2] = [("x-remote-user", b"jo"), ("x-remote-user", b"kim")];
    for (identity, headers) in [
        (&stranger, &claims[..]),
        // Of an allowed CA, with a name that is not allowed.
        (&other_name, &claims[..]),
        // A proxy that names no user is not a client.
        (&proxy, &[]),
        (&proxy, &claims[1..]),
        (&proxy, &garbled[..]),
        (&proxy, &twice[..]),
    ] {
        let (code, found) = user(address, &clients, Some(identity), headers).await;
        assert_eq!((code, found), (401, json!("Unauthorized")), "{headers:?}");
    }
}
