//! The API server of a run: in this process, or the one that a running driver uses already.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use allot_apiserver::config::Config;
use allot_apiserver::identity::{MASTERS, User};
use allot_apiserver::pki::Authority;
use allot_apiserver::{Server, serve};
use allot_store::Embedded;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{Method, Request};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Time limit of a request of the kit itself.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Api {
    client: Client,
    /// Whether answers reach the driver; `None` for a server of another process.
    open: Option<watch::Sender<bool>>,
    _stop: DropGuard,
}

/// The cause of a [`SetupError`].
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why the node of a case cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    /// A step failed for this reason; `subject` is a path or a component.
    #[error("{subject}: {source}")]
    Failed { subject: String, source: Cause },
    #[error("{}: no such directory", .0.display())]
    NoDirectory(PathBuf),
    #[error(transparent)]
    Request(#[from] ApiError),
}

impl SetupError {
    pub(crate) fn new(subject: impl std::fmt::Display, source: impl Into<Cause>) -> Self {
        Self::Failed {
            subject: subject.to_string(),
            source: source.into(),
        }
    }
}

/// Why a request failed, with its HTTP status code; 0 without an answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub(crate) struct ApiError {
    pub(crate) code: u16,
    text: String,
}

impl Api {
    /// A server in memory on a port of the loopback interface; writes its kubeconfig to `kubeconfig`.
    pub(crate) async fn start(kubeconfig: &Path) -> Result<Self, SetupError> {
        fn failed(error: impl Into<Cause>) -> SetupError {
            SetupError::new("API server", error)
        }
        let mut administrator = User::new("admin", [MASTERS]);
        administrator.uid = "admin".to_owned();
        let token = uuid::Uuid::new_v4().to_string();
        let mut config = Config::default();
        config.tokens.insert(token.clone(), administrator);
        let server = Server::new(
            Arc::new(Embedded::in_memory(allot_store::Options::default())),
            config,
        );
        server.bootstrap().await.map_err(failed)?;
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let bind = || async { TcpListener::bind((address, 0)).await };
        let behind = bind().await.map_err(failed)?;
        let front = bind().await.map_err(failed)?;
        let target = behind.local_addr().map_err(failed)?;
        let shown = front.local_addr().map_err(failed)?;
        let authority = Authority::generate("conformance").map_err(failed)?;
        let names = ["localhost".to_owned()];
        let identity = authority
            .server("kube-apiserver", &names, &[address])
            .map_err(failed)?;
        let tls = serve::tls(&identity, Some(authority.certificate())).map_err(failed)?;
        let ca = BASE64_STANDARD.encode(authority.certificate());
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster:\n    server: https://{shown}\n    \
             certificate-authority-data: {ca}\ncontexts:\n- name: c\n  context: {{cluster: c, user: u}}\nusers:\n- name: u\n  \
             user: {{token: {token}}}\n"
        );
        std::fs::write(kubeconfig, text).map_err(failed)?;
        let stop = CancellationToken::new();
        let client = Client::new(server.client_service(User::admin()), "default");
        tokio::spawn(serve::serve(server, behind, tls, stop.clone()));
        let (open, gate) = watch::channel(true);
        let ended = stop.clone();
        tokio::spawn(async move {
            let accept = forward(front, target, gate, ended.clone());
            ended.run_until_cancelled(accept).await;
        });
        Ok(Self {
            client,
            open: Some(open),
            _stop: stop.drop_guard(),
        })
    }

    /// The server of a kubeconfig.
    pub(crate) async fn connect(kubeconfig: &Path) -> Result<Self, SetupError> {
        let subject = kubeconfig.display();
        let file =
            Kubeconfig::read_from(kubeconfig).map_err(|error| SetupError::new(&subject, error))?;
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
            .await
            .map_err(|error| SetupError::new(&subject, error))?;
        let client = Client::try_from(config).map_err(|error| SetupError::new(&subject, error))?;
        Ok(Self {
            client,
            open: None,
            _stop: CancellationToken::new().drop_guard(),
        })
    }

    /// Requests of the driver are answered, also on new connections, but no answer arrives until [`Api::release`].
    pub(crate) fn hold(&self) {
        if let Some(open) = &self.open {
            open.send_replace(false);
        }
    }

    pub(crate) fn release(&self) {
        if let Some(open) = &self.open {
            open.send_replace(true);
        }
    }

    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ApiError> {
        let content = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let failed = |code, text: String| ApiError {
            code,
            text: format!("{method} {path}: {text}"),
        };
        let body = body
            .map(|body| body.to_string().into_bytes())
            .unwrap_or_default();
        let request = Request::builder()
            .method(&method)
            .uri(path)
            .header("content-type", content)
            .body(body);
        let request = request.map_err(|error| failed(0, error.to_string()))?;
        match tokio::time::timeout(PATIENCE, self.client.request::<Value>(request)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(kube::Error::Api(status))) => Err(failed(status.code, status.message.clone())),
            Ok(Err(error)) => Err(failed(0, error.to_string())),
            Err(_) => Err(failed(0, format!("no answer within {PATIENCE:?}"))),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.call(Method::GET, path, None).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<(), ApiError> {
        match self.call(Method::DELETE, path, None).await {
            Err(error) if error.code != 404 => Err(error),
            _ => Ok(()),
        }
    }

    /// Number of writes of ResourceSlices: all, and those that were rejected for their content.
    pub(crate) async fn slice_writes(&self) -> Result<Writes, ApiError> {
        Ok(count_writes(&self.metrics().await?))
    }

    /// Number of requests for ResourceClaims that were answered, those of the kit included.
    pub(crate) async fn claim_requests(&self) -> Result<u64, ApiError> {
        let metrics = self.metrics().await?;
        let of_claims =
            requests(&metrics).filter(|(line, _)| has(line, "resource", "resourceclaims"));
        Ok(of_claims.map(|(_, count)| count).sum())
    }

    async fn metrics(&self) -> Result<String, ApiError> {
        let request = Request::get("/metrics").body(Vec::new());
        let failed = |text: String| ApiError {
            code: 0,
            text: format!("GET /metrics: {text}"),
        };
        let request = request.map_err(|error| failed(error.to_string()))?;
        let text = tokio::time::timeout(PATIENCE, self.client.request_text(request)).await;
        text.map_err(|_| failed("no answer".into()))?
            .map_err(|error| failed(error.to_string()))
    }
}

/// Numbers of writes of ResourceSlices by the driver: all, and those that the API server rejected as invalid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Writes {
    pub(crate) all: u64,
    pub(crate) invalid: u64,
}

/// The lines that count requests, and their counts.
fn requests(metrics: &str) -> impl Iterator<Item = (&str, u64)> {
    let lines = metrics.lines();
    let lines = lines.filter(|line| line.starts_with("apiserver_request_total{"));
    lines.filter_map(|line| Some((line, line.rsplit(' ').next()?.parse().ok()?)))
}

/// Whether a label of a line has a value.
fn has(line: &str, name: &str, value: &str) -> bool {
    line.contains(&format!("{name}=\"{value}\""))
}

fn count_writes(metrics: &str) -> Writes {
    let mut writes = Writes::default();
    for (line, count) in requests(metrics) {
        // The verbs of other servers may be in lower case, or those of the API.
        let verb = [
            "apply",
            "create",
            "update",
            "patch",
            "delete",
            "deletecollection",
            "post",
            "put",
        ];
        let is = |name: &str, value: &str| has(line, name, value);
        let written = verb
            .iter()
            .any(|verb| is("verb", &verb.to_uppercase()) || is("verb", verb));
        if written && is("resource", "resourceslices") {
            writes.all += count;
            if is("code", "422") || is("code", "400") {
                writes.invalid += count;
            }
        }
    }
    writes
}

async fn forward(
    front: TcpListener,
    target: std::net::SocketAddr,
    gate: watch::Receiver<bool>,
    stop: CancellationToken,
) {
    loop {
        let Ok((client, _)) = front.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (gate, stop) = (gate.clone(), stop.clone());
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(target).await else {
                return;
            };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let handshake = Handshake::default();
            let both = async {
                tokio::join!(
                    copy(from_client, to_server, &handshake, None),
                    copy(from_server, to_client, &handshake, Some(gate))
                )
            };
            stop.run_until_cancelled(both).await;
        });
    }
}

/// How far a connection is. What the server says first belongs to the TLS handshake: were it held, the client could not
/// even send a request.
#[derive(Debug, Default)]
struct Handshake {
    answered: AtomicBool,
    over: AtomicBool,
}

impl Handshake {
    fn client_speaks(&self) {
        if self.answered.load(Ordering::SeqCst) {
            self.over.store(true, Ordering::SeqCst);
        }
    }

    /// Whether it is an answer to a request.
    fn server_speaks(&self) -> bool {
        self.answered.store(true, Ordering::SeqCst);
        self.over.load(Ordering::SeqCst)
    }
}

/// Copies until the end what a client sends, or with a gate what its server does: answers to requests are held until the gate is
/// open.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    handshake: &Handshake,
    mut gate: Option<watch::Receiver<bool>>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        match &mut gate {
            None => handshake.client_speaks(),
            Some(gate) => {
                let holds = handshake.server_speaks();
                if holds && gate.wait_for(|open| *open).await.is_err() {
                    break;
                }
            }
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the driver had to make a connection first, its request came only after the release.
    #[tokio::test(flavor = "multi_thread")]
    async fn regression_requests_on_new_connections_come_while_answers_are_held() {
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        let api = Api::start(&kubeconfig).await.unwrap();
        let driver = Api::connect(&kubeconfig).await.unwrap();
        let before = api.claim_requests().await.unwrap();
        api.hold();
        let asked = tokio::spawn(async move {
            driver
                .get("/apis/resource.k8s.io/v1/resourceclaims")
                .await
                .map(drop)
        });
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while api.claim_requests().await.unwrap() == before {
            assert!(tokio::time::Instant::now() < deadline, "it is not asked");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(!asked.is_finished());
        api.release();
        asked.await.unwrap().unwrap();
    }

    #[test]
    fn writes_are_counted_by_verb_resource_and_code() {
        let line = |verb, resource, code, count| {
            format!(
                "apiserver_request_total{{verb=\"{verb}\",resource=\"{resource}\",code=\"{code}\"}} {count}\n"
            )
        };
        let text = line("CREATE", "resourceslices", 201, 2)
            + &line("UPDATE", "resourceslices", 422, 3)
            + &line("GET", "resourceslices", 200, 50)
            + &line("CREATE", "pods", 201, 70);
        assert_eq!(count_writes(&text), Writes { all: 5, invalid: 3 });
    }
}
