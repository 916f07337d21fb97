//! Access control of a node's HTTPS API, and limits of its connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use allot_apiserver::pki::{Authority, Identity};
use allot_node::{Config, RuntimeKind};
use http::{Method, Request};
use kube::Client;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Waits are bounded by this; they end as soon as the condition holds.
const PATIENCE: Duration = Duration::from_secs(60);

/// An API server and a node whose HTTPS API is asked.
pub(super) struct Setup {
    pub(super) client: Client,
    pub(super) authority: Authority,
    address: SocketAddr,
    _stop: DropGuard,
    _directory: tempfile::TempDir,
    _server: Server,
}

impl Setup {
    /// `finds` says that the node has to find the authority of clients in the cluster.
    async fn start(finds: bool) -> Self {
        Self::with(RuntimeKind::Simulated, finds).await
    }

    pub(super) async fn with(runtime: RuntimeKind, finds: bool) -> Self {
        let server = Server::in_memory().await.expect("a server in memory");
        let client = Client::new(server.client_service(User::admin()), "default");
        let authority = Authority::generate("test").expect("an authority");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut config = Config::new("n1", directory.path());
        config.runtime = runtime;
        config.shim = vec![env!("CARGO_BIN_EXE_allot-node-shim").into()];
        let localhost = Ipv4Addr::LOCALHOST.into();
        let serving = authority.server("n1", &["localhost".to_owned()], &[localhost]);
        let serving = serving.expect("a certificate");
        config.tls.cert_pem = Some(serving.certificate.into_bytes());
        config.tls.key_pem = Some(serving.key.into_bytes());
        let ca = authority.certificate();
        if finds {
            let map = json!({
                "metadata": {"name": "extension-apiserver-authentication"}, "data": {"client-ca-file": ca},
            });
            post(&client, "/api/v1/namespaces/kube-system/configmaps", map).await;
        } else {
            config.tls.client_ca_pem = Some(ca.as_bytes().to_vec());
        }
        let registered = Arc::clone(&config.registered);
        let stop = CancellationToken::new();
        let work = allot_node::run(client.clone(), config, stop.clone());
        tokio::spawn(async move { work.await.expect("the agent runs") });
        tokio::time::timeout(PATIENCE, registered.wait())
            .await
            .expect("the node registers");
        let request = Request::get("/api/v1/nodes/n1").body(Vec::new());
        let node: Value = client
            .request(request.expect("a request"))
            .await
            .expect("the node");
        let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
        let port = u16::try_from(port.expect("a port")).expect("a port");
        Self {
            client,
            authority,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            _stop: stop.drop_guard(),
            _directory: directory,
            _server: server,
        }
    }

    /// Lets a user do something with a subresource of nodes.
    pub(super) async fn allow(&self, user: &str, verbs: &[&str], subresource: &str) {
        let name = format!("{user}-{subresource}");
        let rule = json!({"apiGroups": [""], "resources": [format!("nodes/{subresource}")], "verbs": verbs});
        let role = json!({"metadata": {"name": name}, "rules": [rule]});
        post(
            &self.client,
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            role,
        )
        .await;
        self.bind(user, &name).await;
    }

    async fn bind(&self, user: &str, role: &str) {
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "metadata": {"name": format!("{user}-{role}")},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        });
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        post(&self.client, path, binding).await;
    }

    /// Sends a request as a user; returns code and body.
    pub(super) async fn ask(&self, who: &Who<'_>, method: Method, path: &str) -> (u16, String) {
        let identity = match who {
            Who::Certificate(user, groups) => {
                Some(self.authority.client(user, groups).expect("a certificate"))
            }
            _ => None,
        };
        let mut stream = self.connect(identity).await;
        let token = match who {
            Who::Token(token) => format!("authorization: Bearer {token}\r\n"),
            _ => String::new(),
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: n1\r\n{token}connection: close\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut answer = Vec::new();
        // A peer that does not say goodbye has said everything all the same.
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer))
            .await
            .expect("an answer in time");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        (
            code.unwrap_or_else(|| panic!("no answer: {answer:?}")),
            body.to_owned(),
        )
    }

    pub(super) async fn connect(
        &self,
        identity: Option<Identity>,
    ) -> tokio_rustls::client::TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        let ca = self.authority.certificate().as_bytes();
        let ca = CertificateDer::from_pem_slice(ca).expect("a certificate");
        roots.add(ca).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS versions")
            .with_root_certificates(roots);
        let config = match identity {
            Some(identity) => {
                let chain = CertificateDer::from_pem_slice(identity.certificate.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes());
                builder
                    .with_client_auth_cert(vec![chain.expect("PEM")], key.expect("PEM"))
                    .expect("a client certificate")
            }
            None => builder.with_no_client_auth(),
        };
        let stream = TcpStream::connect(self.address)
            .await
            .expect("a connection");
        let name = ServerName::try_from("localhost").expect("a name");
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
        tokio::time::timeout(PATIENCE, connecting)
            .await
            .expect("a handshake in time")
            .expect("a handshake")
    }
}

pub(super) async fn post(client: &Client, path: &str, body: Value) -> Value {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())
        .expect("a request");
    let answer = client.request(request).await;
    answer.unwrap_or_else(|error| panic!("post {path}: {error}"))
}

/// How a client authenticates.
pub(super) enum Who<'a> {
    Nobody,
    Certificate(&'a str, &'a [&'a str]),
    Token(&'a str),
}

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

    let server = Who::Certificate("kube-apiserver-kubelet-client", &[]);
    let nobody = Who::Certificate("nobody", &[]);
    let (scraper, lister) = (
        Who::Certificate("scraper", &[]),
        Who::Certificate("lister", &[]),
    );
    let reader = Who::Certificate("reader", &[]);
    let masters = Who::Certificate("somebody", &["system:masters"]);
    let denied = |user: &str, verb: &str, subresources: &str| {
        format!(
            "Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{subresources}])\n"
        )
    };
    let exec = "/exec/default/p/c?command=id&output=1";
    let rows = [
        (
            &Who::Nobody,
            Method::GET,
            "/pods",
            401,
            "Unauthorized".to_owned(),
        ),
        (
            &Who::Nobody,
            Method::GET,
            "/healthz",
            401,
            "Unauthorized".to_owned(),
        ),
        (
            &Who::Token("wrong"),
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
            &Who::Token(token),
            Method::GET,
            "/stats/summary",
            200,
            "nodeName".to_owned(),
        ),
        (
            &Who::Token(token),
            Method::GET,
            "/pods",
            403,
            denied("system:serviceaccount:default:bot", "get", "pods proxy"),
        ),
    ];
    for (who, method, path, code, text) in rows {
        let (found, body) = setup.ask(who, method.clone(), path).await;
        assert_eq!(found, code, "{method} {path}: {body}");
        assert!(
            body.contains(&text),
            "{method} {path}: {body:?} has not {text:?}"
        );
    }
}

#[tokio::test]
async fn the_authority_of_clients_is_found_in_the_cluster() {
    let setup = Setup::start(true).await;
    setup.allow("lister", &["get"], "pods").await;
    let ask = async || {
        setup
            .ask(&Who::Certificate("lister", &[]), Method::GET, "/pods")
            .await
    };
    let found = async {
        // The node may still be asking for it.
        while ask().await.0 == 401 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, found)
        .await
        .expect("found in time");
    let (code, body) = ask().await;
    assert_eq!(code, 200, "{body}");
}

/// Waits until the other side closes.
async fn closed(stream: &mut TcpStream) {
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
                    .ask(&Who::Certificate("lister", &[]), Method::GET, "/pods")
                    .await
            }
            _ => continue,
        };
        assert_eq!(code, 200, "{body}");
    }
    let known = Who::Certificate("lister", &[]);
    let (code, body) = setup.ask(&known, Method::GET, "/pods").await;
    assert_eq!(code, 200, "{body}");
    for stream in &mut strangers {
        closed(stream).await;
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
