//! What commands that run one component have in common.

mod client;
mod failure;
mod requests;
mod serving;

use std::time::Duration;

use allot_apimachinery::exposition;
use allot_model::features::Features;
use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

pub use client::{Watches, client, config, connect, of_context, read_kubeconfig, throttle};
pub use failure::failure;
pub use serving::SecureServing;

/// While all threads are busy, one looks after so many turns of tasks which connections have input. Turns that encrypt a piece
/// of a large answer are long, and requests of others wait unseen meanwhile.
const INPUT_AFTER: u32 = 16;

/// Runs a component until it ends or the process is told to stop; a second signal ends it without waiting.
pub fn block_on<F, T>(component: impl FnOnce(CancellationToken) -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .event_interval(INPUT_AFTER)
        .build()?;
    let result = runtime.block_on(async {
        let shutdown = CancellationToken::new();
        let stopped = shutdown.clone();
        let mut signals = Signals::catch()?;
        let again = tokio::spawn(async move {
            signals.next().await;
            stopped.cancel();
            signals.next().await;
        });
        tokio::select! {
            result = component(shutdown) => result,
            _ = again => anyhow::bail!("stopped at once by a second signal"),
        }
    });
    // Streams that ignore the end of a component must not hold up the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// The error of a command that was asked to stop before it had its answer.
pub const INTERRUPTED: &str = "interrupted";

/// Runs a command that only reads, until it has its answer or the process is told to stop.
pub fn read<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    block_on(async move |shutdown| {
        tokio::select! {
            done = work => done,
            () = shutdown.cancelled() => anyhow::bail!(INTERRUPTED),
        }
    })
}

/// SIGINT and SIGTERM, which are caught from now on.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn catch() -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Completes on the next of them.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// A page of metrics: the component's (OpenMetrics 1.0), and those of every process.
fn metrics_page(own: &str) -> String {
    exposition::prometheus_text(own) + &allot_apiserver::process_metrics() + &requests::metrics()
}

/// Default path of metrics.
pub const METRICS: &str = "/metrics";

/// Connections to the metrics at the same time.
const SCRAPERS: usize = 100;

/// For the head of a request for metrics; an idle connection ends after the same time.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a connection may live: a scraper that does not read its answer has its place only so long. Others connect again.
const SCRAPE_AGE: Duration = Duration::from_secs(600);

/// Begins to serve metrics at [`METRICS`] on an address.
///
/// # Errors
/// The address cannot be listened on.
pub async fn start_metrics(
    address: std::net::SocketAddr,
    metrics: impl Fn() -> String + Clone + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))?;
    tokio::spawn(serve_metrics(listener, METRICS, metrics));
    Ok(())
}

/// Serves metrics at a path, and health, over plain HTTP, without end.
pub async fn serve_metrics(
    listener: tokio::net::TcpListener,
    path: impl Into<std::sync::Arc<str>>,
    metrics: impl Fn() -> String + Clone + Send + Sync + 'static,
) {
    use http_body_util::Full;
    use hyper::body::{Bytes, Incoming};
    use hyper::service::service_fn;
    use hyper::{Request, Response};

    let path = path.into();
    let open = std::sync::Arc::new(tokio::sync::Semaphore::new(SCRAPERS));
    loop {
        // At the limit the next connection waits until another has closed.
        let Ok(place) = open.clone().acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (metrics, path) = (metrics.clone(), path.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let (metrics, path) = (metrics.clone(), path.clone());
                async move {
                    let (status, body) = match request.uri().path() {
                        asked if asked == &*path => (200, metrics_page(&metrics())),
                        "/healthz" | "/livez" | "/readyz" => (200, "ok".to_owned()),
                        _ => (404, "not found\n".to_owned()),
                    };
                    Response::builder()
                        .status(status)
                        .header("content-type", exposition::CONTENT_TYPE)
                        .body(Full::new(Bytes::from(body)))
                }
            });
            let io = hyper_util::rt::TokioIo::new(stream);
            // Errors of a scraper are ignored, and an idle one is disconnected.
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(hyper_util::rt::TokioTimer::new())
                .header_read_timeout(SCRAPE_TIMEOUT)
                .serve_connection(io, service);
            let _ended = tokio::time::timeout(SCRAPE_AGE, connection).await;
            drop(place);
        });
    }
}

/// Changes feature gates by the values of `--feature-gates`, all at once: one may need another that comes later.
pub fn set_feature_gates(mut features: Features, gates: &[String]) -> anyhow::Result<Features> {
    // Those that a cluster reported are taken as they are.
    if !gates.is_empty() {
        features.set(&gates.join(",")).context("--feature-gates")?;
    }
    Ok(features)
}

/// Reads a KubeSchedulerConfiguration file.
pub fn read_scheduler_config(
    file: Option<&std::path::Path>,
    features: Features,
) -> anyhow::Result<allot_scheduler::Config> {
    let Some(file) = file else {
        return Ok(allot_scheduler::Config {
            features,
            ..allot_scheduler::Config::default()
        });
    };
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    allot_scheduler::config::parse(&text, features).with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use allot_model::features::{Feature, Features, Release};

    use super::set_feature_gates;

    /// A cluster of 1.33 can report the gate on whose dependency is off: to explain its pods failed.
    #[test]
    fn regression_gates_that_a_cluster_reports_are_taken_as_they_are() {
        let reported = Features::of(Release::new(33))
            .with(Feature::DRAAdminAccess, true)
            .with(Feature::DynamicResourceAllocation, false);
        let features = set_feature_gates(reported.clone(), &[]).expect("no gate is set");
        assert_eq!(features, reported);
    }
}
