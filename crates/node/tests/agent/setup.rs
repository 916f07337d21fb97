//! An API server and a node with its HTTPS API, and requests to it as different users.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use allot_apiserver::pki::{Authority, Identity};
use allot_node::{Config, RuntimeKind};
use allot_testing::wait::until;
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

use super::harness::pod_path;

/// Waits are bounded by this; they end as soon as the condition holds.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// An API server and a node whose HTTPS API is asked.
pub(super) struct Setup {
    pub(super) client: Client,
    pub(super) authority: Authority,
    pub(super) address: SocketAddr,
    _stop: DropGuard,
    _directory: tempfile::TempDir,
    _server: Server,
}

impl Setup {
    /// `finds` says that the node has to find the authority of clients in the cluster.
    pub(super) async fn start(finds: bool) -> Self {
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

    pub(super) async fn bind(&self, user: &str, role: &str) {
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "metadata": {"name": format!("{user}-{role}")},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        });
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        post(&self.client, path, binding).await;
    }

    /// An object of the API server; `None` if there is none.
    pub(super) async fn get(&self, path: &str) -> Option<Value> {
        let request = Request::get(path).body(Vec::new()).expect("a request");
        self.client.request(request).await.ok()
    }

    /// Creates the pod `p` with this container, on the node.
    pub(super) async fn create_pod(&self, container: Value) {
        let account = json!({"metadata": {"name": "default"}});
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        post(&self.client, accounts, account).await;
        let spec = json!({"nodeName": "n1", "automountServiceAccountToken": false, "containers": [container]});
        let pod = json!({"metadata": {"name": "p"}, "spec": spec});
        post(&self.client, "/api/v1/namespaces/default/pods", pod).await;
    }

    /// Deletes that pod, and waits until it is gone.
    pub(super) async fn delete_pod(&self) {
        let request = Request::delete(format!("{}?gracePeriodSeconds=1", pod_path("p")));
        let request = request.body(Vec::new()).expect("a request");
        let deleted = self.client.request::<Value>(request).await;
        deleted.expect("the pod is deleted");
        until("the pod is gone", || async {
            match self.get(&pod_path("p")).await {
                None => Ok(()),
                found => Err(found),
            }
        })
        .await;
    }

    /// Sends a request as a user; returns code and body.
    pub(super) async fn request(
        &self,
        credentials: &Credentials<'_>,
        method: Method,
        path: &str,
    ) -> (u16, String) {
        let identity = match credentials {
            Credentials::Certificate(user, groups) => {
                Some(self.authority.client(user, groups).expect("a certificate"))
            }
            _ => None,
        };
        let mut stream = self.connect(identity).await;
        let token = match credentials {
            Credentials::Token(token) => format!("authorization: Bearer {token}\r\n"),
            _ => String::new(),
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: n1\r\n{token}connection: close\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut answer = Vec::new();
        // A peer that does not say goodbye has said everything nevertheless.
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
pub(super) enum Credentials<'a> {
    /// No credentials.
    None,
    Certificate(&'a str, &'a [&'a str]),
    Token(&'a str),
}
