//! Clients of an API server behind a socket.

use std::path::Path;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use allot_apimachinery::suggest;
use anyhow::Context;
use futures::future::BoxFuture;
use http::header::{HeaderValue, UPGRADE, USER_AGENT};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client as Http, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tower::retry::RetryLayer;
use tower::{BoxError, Service, ServiceBuilder};

use super::requests;

#[cfg(test)]
mod tests;
mod trust;

/// A connection that is idle for this long is pinged; as client-go does.
const PING_AFTER: Duration = Duration::from_secs(30);
/// Time limit for the answer to the ping; as client-go.
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// A write without an answer is abandoned after this time: longer than a server's own limit (60 s), so that only a
/// frozen server is affected, whose kernel still acknowledges.
const WRITE_TIMEOUT: Duration = Duration::from_secs(75);
/// Limit of concurrent writes; the others wait. As many as an HTTP/2 connection would carry.
const WRITES: usize = 100;
/// A connection without requests is closed after so long, before the server does it (90 s) while one is on its way.
const IDLE: Duration = Duration::from_secs(60);

/// A client for the API server of a kubeconfig file, or of the environment. `agent` is the name of the component: the
/// server shows it as the manager of fields.
pub async fn client(kubeconfig: Option<&Path>, agent: &str) -> anyhow::Result<kube::Client> {
    connect(config(kubeconfig).await?, agent, Watches::Apart)
}

/// Connections of watches and writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Watches {
    /// Watches on separate connections, writes with a time limit.
    ///
    /// A server allows a hundred streams or so on a connection, and hyper opens no second one: watches would use them
    /// up and then hold up everything else.
    Apart,
    /// Beside the other requests on the same HTTP/2 connection; the caller counts them.
    Beside,
}

/// A client for the API server of `config`.
///
/// kube's own client supports HTTP/1.1 only and leaves Nagle's algorithm on, so that small requests wait for
/// acknowledgements which the other side delays by 40 ms. This one works like Go's clients, except for writes: they
/// dominate the cost of a pod, and on HTTP/1.1 a server written in Go spends a tenth less on them. With a configured
/// proxy or exec credential plugin it falls back to kube's client.
///
/// # Errors
/// Certificates and tokens of the configuration that cannot be used.
pub fn connect(
    mut config: kube::Config,
    agent: &str,
    watches: Watches,
) -> anyhow::Result<kube::Client> {
    let version = env!("CARGO_PKG_VERSION");
    let agent = format!(
        "{agent}/{version} ({}/{})",
        std::env::consts::OS,
        std::env::consts::ARCH
    );
    config
        .headers
        .push((USER_AGENT, HeaderValue::try_from(agent)?));
    if config.proxy_url.is_some() || config.auth_info.exec.is_some() {
        trust::forget_expired(&mut config);
        return Ok(kube::Client::try_from(config)?);
    }
    let server = config.cluster_url.to_string();
    let server = server.trim_end_matches('/').to_owned();
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(RetryLayer::new(patient()?))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(move |error: BoxError| {
            BoxError::from(format!("{server}: {}", with_causes(&*error)))
        })
        .service(Transport::new(&config, watches)?);
    Ok(kube::Client::new(service, config.default_namespace))
}

/// How requests that the server rejects for overload (429, 503, 504) are repeated: after the time that the server
/// names, as client-go does. kube's own policy doubles the pause each time without limit, so that some requests wait
/// for minutes on a server that is merely busy.
fn patient() -> anyhow::Result<RetryPolicy> {
    const FIRST: Duration = Duration::from_millis(5);
    const LONGEST: Duration = Duration::from_secs(2);
    const REPEATS: u32 = 15;
    Ok(RetryPolicy::new(FIRST, LONGEST, REPEATS, true)?)
}

/// An error and its causes, in one line: "client error (Connect)" alone is not helpful.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Connections to one server: HTTP/2 for reads, if the server supports it, and HTTP/1.1 for writes (unless all share a
/// connection) and for upgrades (exec), which need it.
#[derive(Clone)]
struct Transport {
    reads: Http<Connector, Body>,
    /// One connection for each request at a time.
    single: Http<Connector, Body>,
    watches: Watches,
    /// The number of connections for writes.
    writes: Arc<Semaphore>,
    /// How long one waits for the whole answer to a write.
    limit: Duration,
}

/// An answer: streamed, or complete.
type Answer = Response<Either<Full<Bytes>, Incoming>>;

type Connector = hyper_rustls::HttpsConnector<HttpConnector>;

impl Transport {
    fn new(config: &kube::Config, watches: Watches) -> anyhow::Result<Self> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // A watch has no pings.
        tcp.set_keepalive(Some(PING_AFTER));
        tcp.set_keepalive_interval(Some(PING_TIMEOUT));
        tcp.set_keepalive_retries(Some(3));
        tcp.set_connect_timeout(config.connect_timeout);
        let https = || {
            let builder = hyper_rustls::HttpsConnectorBuilder::new()
                .with_tls_config(trust::tls(config)?)
                .https_or_http();
            anyhow::Ok(match config.tls_server_name.clone() {
                None => builder,
                Some(name) => {
                    let name = name
                        .try_into()
                        .context("tls-server-name of the kubeconfig")?;
                    builder
                        .with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name))
                }
            })
        };
        let mut builder = Http::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .timer(TokioTimer::new());
        let single = builder.build(https()?.enable_http1().wrap_connector(tcp.clone()));
        builder
            .http2_keep_alive_interval(PING_AFTER)
            .http2_keep_alive_timeout(PING_TIMEOUT);
        let reads = builder.build(https()?.enable_all_versions().wrap_connector(tcp));
        Ok(Self {
            reads,
            single,
            watches,
            writes: Arc::new(Semaphore::new(WRITES)),
            limit: WRITE_TIMEOUT,
        })
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.method().clone();
        let authority = request.uri().authority();
        let host = authority.map(ToString::to_string).unwrap_or_default();
        let answer = self.send(request);
        Box::pin(async move {
            let sent = std::time::Instant::now();
            let answer = answer.await;
            let code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            requests::count(&host, &method, code, sent.elapsed());
            answer
        })
    }
}

impl Transport {
    /// Sends a request on a connection of its kind.
    fn send(&self, request: Request<Body>) -> BoxFuture<'static, Result<Answer, BoxError>> {
        match traffic(&request) {
            Traffic::Write if self.watches == Watches::Apart => {
                let (client, writes, limit) =
                    (self.single.clone(), self.writes.clone(), self.limit);
                Box::pin(async move {
                    let _permit = writes.acquire_owned().await?;
                    let answer = tokio::time::timeout(limit, whole(client.request(request)));
                    let answer = answer.await;
                    answer.map_err(|_| format!("no answer within {limit:?}"))?
                })
            }
            Traffic::Upgrade => stream(&self.single, request),
            Traffic::Watch if self.watches == Watches::Apart => stream(&self.single, request),
            _ => stream(&self.reads, request),
        }
    }
}

fn stream(
    connections: &Http<Connector, Body>,
    request: Request<Body>,
) -> BoxFuture<'static, Result<Answer, BoxError>> {
    let answer = connections.request(request);
    Box::pin(async { Ok(answer.await?.map(Either::Right)) })
}

/// The answer with all of its body.
async fn whole(answer: ResponseFuture) -> Result<Answer, BoxError> {
    let (head, body) = answer.await?.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Response::from_parts(head, Either::Left(Full::new(body))))
}

/// The kind of a request's traffic.
#[derive(Debug, PartialEq, Eq)]
enum Traffic {
    /// One answer, soon.
    Read,
    /// One answer, when the server has stored the object.
    Write,
    /// An endless response.
    Watch,
    /// The connection itself.
    Upgrade,
}

fn traffic(request: &Request<Body>) -> Traffic {
    if request.headers().contains_key(UPGRADE) {
        return Traffic::Upgrade;
    }
    if request.method() != Method::GET {
        return Traffic::Write;
    }
    let endless = |part| matches!(part, "watch=true" | "watch=1" | "follow=true");
    match request.uri().query() {
        Some(query) if query.split('&').any(endless) => Traffic::Watch,
        _ => Traffic::Read,
    }
}

/// How to reach the API server of a kubeconfig file, or of the environment.
pub async fn config(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Config> {
    Ok(match kubeconfig {
        Some(path) => of_context(read_kubeconfig(path)?, None, &path.display().to_string()).await?,
        None => match kube::Config::infer().await {
            Ok(config) => config,
            // The library's account of each place that it searched does not help in the following cases.
            Err(error) => match Kubeconfig::read() {
                Ok(file) => of_context(file, None, "of $KUBECONFIG or ~/.kube/config").await?,
                Err(_) if is_anywhere() => {
                    return Err(error).context("cannot use the kubeconfig");
                }
                Err(_) => anyhow::bail!(
                    "no cluster found: there is no $KUBECONFIG, no ~/.kube/config and no service account of a pod; \
                     name a kubeconfig with --kubeconfig"
                ),
            },
        },
    })
}

/// The configuration of a context of a kubeconfig, by default the current one. `shown` describes the kubeconfig in errors.
///
/// # Errors
/// There is no such context, or what it names cannot be used.
pub async fn of_context(
    kubeconfig: Kubeconfig,
    context: Option<&str>,
    shown: &str,
) -> anyhow::Result<kube::Config> {
    let known: Vec<&str> = kubeconfig.contexts.iter().map(|c| &*c.name).collect();
    let all = match known.is_empty() {
        true => "it has none".to_owned(),
        false => format!("there are: {}", known.join(", ")),
    };
    let current = kubeconfig.current_context.as_deref();
    match (context, current.filter(|name| !name.is_empty())) {
        (Some(name), _) => anyhow::ensure!(
            known.contains(&name),
            "there is no context {name:?}{}; {all}",
            suggest::hint(name, known.iter().copied())
        ),
        (None, Some(name)) => anyhow::ensure!(
            known.contains(&name),
            "kubeconfig {shown}: the current context {name:?} does not exist; {all}"
        ),
        (None, None) => anyhow::bail!(
            "kubeconfig {shown} has no current context; {all}; select one with `kubectl config use-context`"
        ),
    }
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    config.with_context(|| format!("cannot use kubeconfig {shown}"))
}

/// Whether the environment names a cluster.
fn is_anywhere() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".kube/config"));
    is_set("KUBECONFIG")
        || is_set("KUBERNETES_SERVICE_HOST")
        || home.is_some_and(|file| file.exists())
}

/// A kubeconfig file.
///
/// # Errors
/// It cannot be read, or is no kubeconfig; the message names it.
pub fn read_kubeconfig(path: &Path) -> anyhow::Result<Kubeconfig> {
    let cannot = || format!("cannot read kubeconfig {}", path.display());
    // The library names the file again, and quotes it twice.
    std::fs::File::open(path).with_context(cannot)?;
    Kubeconfig::read_from(path).with_context(cannot)
}

/// The same client, with at most `qps` requests per second after the first `burst`; without a limit if `qps` is 0.
pub fn throttle(client: kube::Client, qps: f64, burst: u32) -> kube::Client {
    if qps <= 0.0 {
        return client;
    }
    let namespace = client.default_namespace().to_owned();
    let period = Duration::from_secs_f64(1.0 / qps);
    // When the bucket is full again.
    let full = std::sync::Arc::new(parking_lot::Mutex::new(Instant::now()));
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let client = client.clone();
        let wait = {
            let (mut full, now) = (full.lock(), Instant::now());
            *full = (*full).max(now) + period;
            (*full - now).saturating_sub(period * burst.max(1))
        };
        async move {
            tokio::time::sleep(wait).await;
            client.send(request).await
        }
    });
    kube::Client::new(service, namespace)
}
