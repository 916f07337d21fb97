//! Connections.

use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{Dashboard, api};

/// Limit of open connections; further ones wait to be accepted.
const CONNECTIONS: usize = 128;
/// For a TLS handshake, and for the head of a request; a connection without requests ends after the same time.
const HEAD: Duration = Duration::from_secs(20);
/// The largest head of a request: a token, and a query of twenty pods.
const LARGEST_HEAD: usize = 64 * 1024;
/// How long a connection may live: longer than a stream of watches.
const AGE: Duration = Duration::from_secs(1200);
/// After the system refused to accept.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`, without TLS: for this machine alone, or behind a server that speaks TLS.
pub async fn serve(dashboard: Arc<Dashboard>, listener: TcpListener, stop: CancellationToken) {
    accept(listener, stop, move |stream| {
        connection(dashboard.clone(), stream)
    })
    .await;
}

/// Serves with TLS until `stop`; `handshake` gives `None` for a client with which it fails.
pub async fn serve_tls<S, F>(
    dashboard: Arc<Dashboard>,
    listener: TcpListener,
    handshake: impl Fn(TcpStream) -> F + Send,
    stop: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Option<S>> + Send + 'static,
{
    accept(listener, stop, move |stream| {
        let (handshake, dashboard) = (handshake(stream), dashboard.clone());
        async move {
            if let Ok(Some(stream)) = tokio::time::timeout(HEAD, handshake).await {
                connection(dashboard, stream).await;
            }
        }
    })
    .await;
}

async fn accept<F>(
    listener: TcpListener,
    stop: CancellationToken,
    serve: impl Fn(TcpStream) -> F + Send,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let open = Arc::new(Semaphore::new(CONNECTIONS));
    // Dropped at the end, and all connections with it.
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            let permit = open.clone().acquire_owned().await.ok()?;
            Some((listener.accept().await, permit))
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = accepted => accepted,
            _ = connections.join_next(), if !connections.is_empty() => continue,
        };
        match accepted {
            None => return,
            Some((Ok((stream, _)), permit)) => {
                let connection = serve(stream);
                connections.spawn(async move {
                    let _ended = tokio::time::timeout(AGE, connection).await;
                    drop(permit);
                });
            }
            Some((Err(error), _)) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(
    dashboard: Arc<Dashboard>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) {
    let service = service_fn(move |request| {
        let answer = api::answer(dashboard.clone(), request);
        async move { Ok::<_, std::convert::Infallible>(answer.await) }
    });
    // A browser that hangs up has its reasons.
    let _ended = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
