//! The endpoint for probes and Prometheus: `/healthz`, `/readyz` and `/metrics`.
//!
//! It answers unauthenticated requests, exposes no names of claims or pods, and takes no input beyond the path.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::JoinSet;

use crate::checkpoint::Checkpoint;
use crate::metrics::Metrics;
use crate::registrar::RegistrationStatus;

#[cfg(test)]
mod tests;

/// Connections at the same time: a probe, Prometheus, and a person or two.
const CONNECTIONS: usize = 16;
/// How long a request's head may take to arrive.
const HEAD: Duration = Duration::from_secs(10);
/// How long a connection may last. Clients open another one.
const CONNECTION: Duration = Duration::from_secs(300);

#[derive(Clone)]
pub(crate) struct Diagnostics {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) registration: watch::Receiver<Option<RegistrationStatus>>,
    pub(crate) checkpoint: Arc<Mutex<Checkpoint>>,
}

impl Diagnostics {
    /// Serves for as long as it is polled.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        // Aborted together with this task.
        let mut connections = JoinSet::new();
        loop {
            // A connection beyond the bound waits in the kernel's queue, which is bounded too.
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                return;
            };
            while connections.try_join_next().is_some() {}
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "diagnostics: accept");
                    // Most often file descriptors have run out: others may end meanwhile.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
            };
            let this = self.clone();
            connections.spawn(async move {
                let _slot = slot;
                let service = service_fn(|request| {
                    let this = this.clone();
                    async move { Ok::<_, Infallible>(this.answer(&request).await) }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD)
                    .max_buf_size(16 * 1024)
                    .serve_connection(TokioIo::new(stream), service);
                // Errors are the client's.
                let _ = tokio::time::timeout(CONNECTION, connection).await;
            });
        }
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<String> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served\n");
        }
        match request.uri().path() {
            "/healthz" => text(StatusCode::OK, "ok\n"),
            "/readyz" => self.ready(),
            "/metrics" => self.exposition().await,
            _ => text(
                StatusCode::NOT_FOUND,
                "there are /healthz, /readyz and /metrics\n",
            ),
        }
    }

    /// Ready is a driver that a kubelet accepted: only then claims are prepared.
    fn ready(&self) -> Response<String> {
        match &*self.registration.borrow() {
            Some(status) if status.registered => text(StatusCode::OK, "ok\n"),
            Some(status) => {
                let reason = format!("the kubelet refused the driver: {}\n", status.error);
                text(StatusCode::SERVICE_UNAVAILABLE, &reason)
            }
            None => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "no kubelet has registered the driver yet\n",
            ),
        }
    }

    async fn exposition(&self) -> Response<String> {
        let registered = self
            .registration
            .borrow()
            .as_ref()
            .is_some_and(|s| s.registered);
        self.metrics.set_registered(registered);
        let claims = self.checkpoint.lock().await.entries().count();
        self.metrics.set_claims(claims);
        match self.metrics.text() {
            Ok(body) => {
                let mut response = Response::new(body);
                response.headers_mut().insert(
                    http::header::CONTENT_TYPE,
                    http::HeaderValue::from_static(
                        "application/openmetrics-text; version=1.0.0; charset=utf-8",
                    ),
                );
                response
            }
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
        }
    }
}

fn text(status: StatusCode, body: &str) -> Response<String> {
    let mut response = Response::new(body.to_owned());
    *response.status_mut() = status;
    response
}
