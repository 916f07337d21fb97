//! What commands that run one component have in common.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Runs a component until it ends or the process is told to stop.
pub fn block_on<F>(component: impl FnOnce(CancellationToken) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let runtime = tokio::runtime::Runtime::new()?;
    let result = runtime.block_on(async {
        let shutdown = CancellationToken::new();
        let stopped = shutdown.clone();
        let signals = stop_signals()?;
        tokio::spawn(async move {
            signals.await;
            stopped.cancel();
        });
        component(shutdown).await
    });
    // Streams that ignore the end of a component must not hold up the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Completes on SIGINT or SIGTERM, which are caught from now on.
fn stop_signals() -> anyhow::Result<impl Future<Output = ()> + Send> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// A client for the API server of a kubeconfig file, or of the environment.
pub async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Client> {
    Ok(kube::Client::try_from(config(kubeconfig).await?)?)
}

/// How to reach the API server of a kubeconfig file, or of the environment.
pub async fn config(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Config> {
    Ok(match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("cannot read kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("cannot use kubeconfig {}", path.display()))?
        }
        None => kube::Config::infer()
            .await
            .context("no kubeconfig found; name one with --kubeconfig")?,
    })
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

/// Serves `/metrics` and health over plain HTTP, forever.
pub async fn serve_metrics(
    listener: tokio::net::TcpListener,
    metrics: impl Fn() -> String + Clone + Send + Sync + 'static,
) {
    use http_body_util::Full;
    use hyper::body::{Bytes, Incoming};
    use hyper::service::service_fn;
    use hyper::{Request, Response};

    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let metrics = metrics.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let metrics = metrics.clone();
                async move {
                    let (status, body) = match request.uri().path() {
                        "/metrics" => (200, metrics()),
                        "/healthz" | "/livez" | "/readyz" => (200, "ok".to_owned()),
                        _ => (404, "not found\n".to_owned()),
                    };
                    Response::builder()
                        .status(status)
                        .header("content-type", "text/plain; version=0.0.4; charset=utf-8")
                        .body(Full::new(Bytes::from(body)))
                }
            });
            let io = hyper_util::rt::TokioIo::new(stream);
            // A scraper that hangs up is its own problem.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(io, service)
                .await;
        });
    }
}
