//! Connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::answer::ForReader;
use crate::{Dashboard, api};

/// Limit of open connections. For a further one the oldest is closed that has not proven to be a reader's; it waits if there
/// is none.
const CONNECTIONS: usize = 128;
/// For a TLS handshake, and for the head of a request; a connection without requests ends after the same time.
const HEAD: Duration = Duration::from_secs(20);
/// The largest head of a request: a token, and a query of twenty pods.
const LARGEST_HEAD: usize = 64 * 1024;
/// How long a connection may live: longer than a stream of watches.
const AGE: Duration = Duration::from_secs(1200);
/// After the system refused to accept.
const PAUSE: Duration = Duration::from_millis(100);

/// The connections that have not proven to be a reader's, the oldest first: programs that reach the port could otherwise keep
/// the readers out.
#[derive(Default)]
struct Strangers(Mutex<BTreeMap<u64, CancellationToken>>);

impl Strangers {
    /// Ends the oldest one, if there is one.
    fn end_oldest(&self) {
        if let Some((_, end)) = self.0.lock().pop_first() {
            end.cancel();
        }
    }
}

/// A connection among the strangers, until it proves to be a reader's or ends.
#[derive(Clone)]
struct Stranger(Arc<Known>);

struct Known {
    number: u64,
    among: Arc<Strangers>,
}

impl Stranger {
    fn new(number: u64, among: &Arc<Strangers>, end: CancellationToken) -> Self {
        among.0.lock().insert(number, end);
        let among = among.clone();
        Self(Arc::new(Known { number, among }))
    }

    /// An answer went to a reader.
    fn is_reader(&self) {
        self.0.among.0.lock().remove(&self.0.number);
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        self.among.0.lock().remove(&self.number);
    }
}

/// Serves until `stop`, without TLS: for this machine alone, or behind a server that speaks TLS.
pub async fn serve(dashboard: Arc<Dashboard>, listener: TcpListener, stop: CancellationToken) {
    accept(listener, stop, move |stream, stranger| {
        connection(dashboard.clone(), stream, stranger)
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
    accept(listener, stop, move |stream, stranger| {
        let (handshake, dashboard) = (handshake(stream), dashboard.clone());
        async move {
            if let Ok(Some(stream)) = tokio::time::timeout(HEAD, handshake).await {
                connection(dashboard, stream, stranger).await;
            }
        }
    })
    .await;
}

async fn accept<F>(
    listener: TcpListener,
    stop: CancellationToken,
    serve: impl Fn(TcpStream, Stranger) -> F + Send,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let open = Arc::new(Semaphore::new(CONNECTIONS));
    let strangers = Arc::new(Strangers::default());
    // Dropped at the end, and all connections with it.
    let mut connections = JoinSet::new();
    for number in 0.. {
        let accepted = async {
            let accepted = listener.accept().await;
            if open.available_permits() == 0 {
                strangers.end_oldest();
            }
            (accepted, open.clone().acquire_owned().await)
        };
        let mut accepted = std::pin::pin!(accepted);
        let (accepted, permit) = loop {
            tokio::select! {
                () = stop.cancelled() => return,
                accepted = accepted.as_mut() => break accepted,
                _ = connections.join_next(), if !connections.is_empty() => {}
            }
        };
        match (accepted, permit) {
            (_, Err(_)) => return,
            (Ok((stream, _)), Ok(permit)) => {
                let end = CancellationToken::new();
                let connection = serve(stream, Stranger::new(number, &strangers, end.clone()));
                connections.spawn(async move {
                    tokio::select! {
                        () = end.cancelled() => {}
                        _ended = tokio::time::timeout(AGE, connection) => {}
                    }
                    drop(permit);
                });
            }
            (Err(error), _) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(
    dashboard: Arc<Dashboard>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    stranger: Stranger,
) {
    let service = service_fn(move |request| {
        let answer = api::answer(dashboard.clone(), request);
        let stranger = stranger.clone();
        async move {
            let answer = answer.await;
            if answer.extensions().get::<ForReader>().is_some() {
                stranger.is_reader();
            }
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    // A browser that hangs up has its reasons.
    let _ended = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

#[cfg(test)]
mod tests;
