//! What commands that run one component have in common.

mod client;
mod process;
mod serving;

use std::time::Duration;

use allot_apimachinery::exposition;
use tokio_util::sync::CancellationToken;

pub use client::{Watches, client, config, connect, throttle};
pub use serving::SecureServing;

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

/// Where metrics are unless a flag says otherwise.
pub const METRICS: &str = "/metrics";

/// Serves metrics at a path, and health, over plain HTTP, forever.
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
    loop {
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
                        asked if asked == &*path => (
                            200,
                            exposition::prometheus_text(&metrics()) + &process::metrics(),
                        ),
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
            // A scraper that hangs up is its own problem.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(io, service)
                .await;
        });
    }
}
