//! Access control of a node's HTTPS API, and limits of its connections.

use allot_apiserver::pki::Authority;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::setup::{Credentials, PATIENCE, Setup, post};

#[tokio::test]
async fn the_kubelet_api_is_for_those_who_may_use_the_node() {
    let setup = Setup::start(false).await;
    setup.allow("scraper", &["get"], "metrics").await;
    setup.allow("lister", &["get"], "pods").await;
    setup.allow("reader", &["get"], "proxy").await;
    setup
        .allow("system:serviceaccount:default:bot", &["get"], "stats")
        .await;
    setup
        .bind("kube-apiserver-kubelet-client", "system:kubelet-api-admin")
        .await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    post(
        &setup.client,
        accounts,
        json!({"metadata": {"name": "bot"}}),
    )
    .await;
    let asked = post(
        &setup.client,
        &format!("{accounts}/bot/token"),
        json!({"spec": {}}),
    )
    .await;
    let token = asked["status"]["token"].as_str().expect("a token");

    let server = Credentials::Certificate("kube-apiserver-kubelet-client", &[]);
    let nobody = Credentials::Certificate("nobody", &[]);
    let (scraper, lister) = (
        Credentials::Certificate("scraper", &[]),
        Credentials::Certificate("lister", &[]),
    );
    let reader = Credentials::Certificate("reader", &[]);
    let masters = Credentials::Certificate("somebody", &["system:masters"]);
    let denied = |user: &str, verb: &str, subresources: &str| {
        format!(
            "Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{subresources}])\n"
        )
    };
    let exec = "/exec/default/p/c?command=id&output=1";
    let rows = [
        (
            &Credentials::None,
            Method::GET,
            "/pods",
            401,
            "Unauthorized".to_owned(),
        ),
        (
            &Credentials::None,
            Method::GET,
            "/healthz",
            401,
            "Unauthorized".to_owned(),
        ),
        (
            &Credentials::Token("wrong"),
            Method::GET,
            "/pods",
            401,
            "Unauthorized".to_owned(),
        ),
        (
            &nobody,
            Method::GET,
            "/pods",
            403,
            denied("nobody", "get", "pods proxy"),
        ),
        (
            &nobody,
            Method::GET,
            "/healthz",
            403,
            denied("nobody", "get", "healthz proxy"),
        ),
        (
            &nobody,
            Method::GET,
            "/metrics",
            403,
            denied("nobody", "get", "metrics"),
        ),
        (
            &nobody,
            Method::GET,
            "/stats/summary",
            403,
            denied("nobody", "get", "stats"),
        ),
        (
            &nobody,
            Method::GET,
            "/containerLogs/default/p/c",
            403,
            denied("nobody", "get", "proxy"),
        ),
        (
            &nobody,
            Method::POST,
            exec,
            403,
            denied("nobody", "create", "proxy"),
        ),
        (
            &nobody,
            Method::DELETE,
            "/pods",
            403,
            denied("nobody", "delete", "pods proxy"),
        ),
        (
            &nobody,
            Method::GET,
            "/%70ods",
            403,
            denied("nobody", "get", "pods proxy"),
        ),
        (
            &nobody,
            Method::GET,
            "//pods",
            403,
            denied("nobody", "get", "proxy"),
        ),
        (
            &nobody,
            Method::GET,
            "/metrics%2F..%2Fpods",
            403,
            denied("nobody", "get", "metrics"),
        ),
        (&scraper, Method::GET, "/metrics", 200, "# EOF".to_owned()),
        (
            &scraper,
            Method::GET,
            "/metrics/cadvisor",
            200,
            "machine_memory_bytes ".to_owned(),
        ),
        (
            &nobody,
            Method::GET,
            "/metrics/cadvisor",
            403,
            denied("nobody", "get", "metrics"),
        ),
        (
            &scraper,
            Method::GET,
            "/pods",
            403,
            denied("scraper", "get", "pods proxy"),
        ),
        (
            &scraper,
            Method::GET,
            "/metrics/../pods",
            404,
            String::new(),
        ),
        (&lister, Method::GET, "/pods", 200, "PodList".to_owned()),
        (
            &lister,
            Method::GET,
            "/metrics",
            403,
            denied("lister", "get", "metrics"),
        ),
        (&reader, Method::GET, "/pods", 200, "PodList".to_owned()),
        (&reader, Method::GET, "/healthz", 200, "ok".to_owned()),
        (
            &reader,
            Method::GET,
            "/metrics",
            403,
            denied("reader", "get", "metrics"),
        ),
        (
            &reader,
            Method::POST,
            exec,
            403,
            denied("reader", "create", "proxy"),
        ),
        (&server, Method::GET, "/pods", 200, "PodList".to_owned()),
        (&server, Method::GET, "/metrics", 200, "# EOF".to_owned()),
        (
            &server,
            Method::GET,
            "/containerLogs/default/p/c",
            404,
            String::new(),
        ),
        (
            &masters,
            Method::GET,
            "/stats/summary",
            200,
            "nodeName".to_owned(),
        ),
        (
            &Credentials::Token(token),
            Method::GET,
            "/stats/summary",
            200,
            "nodeName".to_owned(),
        ),
        (
            &Credentials::Token(token),
            Method::GET,
            "/pods",
            403,
            denied("system:serviceaccount:default:bot", "get", "pods proxy"),
        ),
    ];
    for (credentials, method, path, code, text) in rows {
        let (found, body) = setup.request(credentials, method.clone(), path).await;
        assert_eq!(found, code, "{method} {path}: {body}");
        assert!(
            body.contains(&text),
            "{method} {path}: {body:?} has not {text:?}"
        );
    }
}

/// Waits until the node has read the client CA of the cluster.
async fn wait_for_client_ca(setup: &Setup) {
    let lister = Credentials::Certificate("lister", &[]);
    let found = async {
        // The node may still be asking for it.
        while setup.request(&lister, Method::GET, "/pods").await.0 == 401 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, found)
        .await
        .expect("found in time");
}

#[tokio::test]
async fn the_authority_of_clients_is_found_in_the_cluster() {
    let setup = Setup::start(true).await;
    setup.allow("lister", &["get"], "pods").await;
    wait_for_client_ca(&setup).await;
    let lister = Credentials::Certificate("lister", &[]);
    let (code, body) = setup.request(&lister, Method::GET, "/pods").await;
    assert_eq!(code, 200, "{body}");
}

/// An identity counted until the end of the connection: also when its certificate had expired, or its authority was trusted no
/// longer.
#[tokio::test]
async fn regression_a_connection_does_not_outlive_the_trust_in_its_certificate() {
    let setup = Setup::start(true).await;
    setup.allow("lister", &["get"], "pods").await;
    let identity = setup.authority.client("lister", &[]);
    wait_for_client_ca(&setup).await;
    let stream = setup.connect(Some(identity.expect("a certificate"))).await;
    let (mut client, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    assert_eq!(code(&mut client).await, 200);
    let other = Authority::generate("test").expect("an authority");
    let data = json!({"data": {"client-ca-file": other.certificate()}});
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let request = Request::patch(path).header("content-type", "application/merge-patch+json");
    let request = request.body(data.to_string().into_bytes());
    let patched = setup.client.request::<Value>(request.expect("a request"));
    patched.await.expect("another authority is published");
    let ended = async { while code(&mut client).await != 401 {} };
    let ended = tokio::time::timeout(PATIENCE, ended).await;
    ended.expect("the identity ends in time");
}

/// The code of an answer over a connection that stays open.
async fn code(client: &mut SendRequest<Empty<Bytes>>) -> u16 {
    client.ready().await.expect("the connection is open");
    let request = Request::get("/pods").header("host", "n1");
    let request = request.body(Empty::new()).expect("a request");
    let answer = client.send_request(request).await.expect("an answer");
    let code = answer.status().as_u16();
    answer.into_body().collect().await.expect("a body");
    code
}

/// Waits until the other side closes.
async fn wait_until_closed(stream: &mut TcpStream) {
    let mut byte = [0];
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut byte)).await;
    assert!(
        !matches!(read.expect("closed in time"), Ok(1..)),
        "bytes instead of the end"
    );
}

#[tokio::test]
async fn strangers_do_not_keep_connections() {
    let setup = Setup::start(false).await;
    setup.allow("lister", &["get"], "pods").await;
    // More than the node lets wait.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let most = (files.unwrap_or(1 << 20) / 8).clamp(4, 512) + 20;
    let mut strangers = Vec::new();
    for _ in 0..most {
        let stream = TcpStream::connect(setup.address).await;
        strangers.push(stream.expect("a connection"));
        let (code, body) = match strangers.len() % 50 {
            0 => {
                setup
                    .request(
                        &Credentials::Certificate("lister", &[]),
                        Method::GET,
                        "/pods",
                    )
                    .await
            }
            _ => continue,
        };
        assert_eq!(code, 200, "{body}");
    }
    let known = Credentials::Certificate("lister", &[]);
    let (code, body) = setup.request(&known, Method::GET, "/pods").await;
    assert_eq!(code, 200, "{body}");
    for stream in &mut strangers {
        wait_until_closed(stream).await;
    }
}

#[tokio::test]
async fn half_a_request_ends() {
    let setup = Setup::start(false).await;
    let identity = setup
        .authority
        .client("nobody", &[])
        .expect("a certificate");
    for sent in ["", "GET /pods HTTP/1.1\r\nhost: n1\r\n"] {
        let mut stream = setup.connect(Some(identity.clone())).await;
        stream.write_all(sent.as_bytes()).await.expect("written");
        stream.flush().await.expect("written");
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        ended.expect("closed in time").ok();
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.contains("200 OK"), "{answer}");
    }
}
