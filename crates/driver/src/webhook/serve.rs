//! Connections and requests.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::certificate::Certificate;
use super::{Checks, PATH, review};

/// Open connections. Further ones wait in the kernel's queue, which is bounded too.
const CONNECTIONS: usize = 128;
/// Reviews at the same time.
const REVIEWS: usize = 16;
/// Bodies at the same time that are larger than [`SMALL_BODY`].
const LARGE_BODIES: usize = 16;
/// Every connection may have a body of this size in memory.
const SMALL_BODY: usize = 64 * 1024;
/// A review has an object and its predecessor. API servers store objects of at most 1.5 MiB.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// Time limit of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time limit for reading the head of a request; an idle connection is closed after that.
const HEAD: Duration = Duration::from_secs(30);
/// Time limit for reading the body of a review.
const BODY: Duration = Duration::from_secs(5);
/// Time limit of a review with its body, the default that API servers wait.
const REVIEW: Duration = Duration::from_secs(10);
/// How long a connection may live. API servers connect again, and see a renewed certificate then.
const AGE: Duration = Duration::from_secs(600);
/// How long requests in progress may take when the server stops.
const END: Duration = Duration::from_secs(10);
/// After the system refused to accept: most often file descriptors have run out, and others may end meanwhile.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Shared {
    checks: Checks,
    reviews: Arc<Semaphore>,
    large_bodies: Arc<Semaphore>,
}

impl Shared {
    pub(super) fn new(checks: Checks) -> Self {
        Self {
            checks,
            reviews: Arc::new(Semaphore::new(REVIEWS)),
            large_bodies: Arc::new(Semaphore::new(LARGE_BODIES)),
        }
    }
}

type Answer = Response<Full<Bytes>>;

pub(super) async fn serve(
    listener: TcpListener,
    certificate: Arc<Certificate>,
    shared: Arc<Shared>,
    shutdown: impl Future<Output = ()>,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let (ending, ended) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = async {
            let slot = Arc::clone(&slots).acquire_owned().await.ok()?;
            Some((listener.accept().await, slot))
        };
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accepted => accepted,
            _ = connections.join_next(), if !connections.is_empty() => continue,
        };
        match accepted {
            Some((Ok((stream, _)), slot)) => {
                let (certificate, shared) = (Arc::clone(&certificate), Arc::clone(&shared));
                let ended = ended.clone();
                connections.spawn(async move {
                    let _slot = slot;
                    connection(stream, certificate, shared, ended).await;
                });
            }
            Some((Err(error), _)) => {
                tracing::warn!(%error, "webhook: accept");
                tokio::time::sleep(PAUSE).await;
            }
            // The semaphore is never closed.
            None => break,
        }
    }
    drop((listener, ending));
    let rest = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(END, rest).await;
}

async fn connection(
    stream: TcpStream,
    certificate: Arc<Certificate>,
    shared: Arc<Shared>,
    mut ended: watch::Receiver<()>,
) {
    let handshake = tokio::time::timeout(HANDSHAKE, certificate.accept(stream));
    let Ok(Some(stream)) = handshake.await else {
        return;
    };
    let service = service_fn(|request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // Errors are the client's.
    tokio::select! {
        _ = &mut connection => return,
        // Fails when the server ends, which drops the sender.
        _ = ended.changed() => {}
        () = tokio::time::sleep(AGE) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(END, connection).await;
}

impl Shared {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        match (request.method(), request.uri().path()) {
            (&Method::GET | &Method::HEAD, "/healthz" | "/livez" | "/readyz") => {
                text(StatusCode::OK, "ok")
            }
            (&Method::POST, PATH) => self.review(request).await,
            (_, PATH) => text(StatusCode::METHOD_NOT_ALLOWED, "only POST is served"),
            _ => text(StatusCode::NOT_FOUND, "404 page not found"),
        }
    }

    async fn review(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|it| it.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().unwrap_or_default().trim() != "application/json" {
            let said = format!("contentType={kind}, expected application/json");
            return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, &said);
        }
        tokio::time::timeout(REVIEW, self.judge(request))
            .await
            .unwrap_or_else(|_| {
                tracing::warn!("a review was not answered within {REVIEW:?}");
                text(StatusCode::SERVICE_UNAVAILABLE, "the review took too long")
            })
    }

    async fn judge(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        // Before the review takes one of the slots: a client that sends slowly delays no other review.
        let body = tokio::time::timeout(BODY, self.read(request.into_body()));
        let (body, large) = match body.await {
            Ok(Ok(body)) => body,
            Ok(Err(answer)) => return answer,
            Err(_) => {
                let said = format!("the body was not received within {BODY:?}");
                return text(StatusCode::REQUEST_TIMEOUT, &said);
            }
        };
        let Ok(slot) = Arc::clone(&self.reviews).acquire_owned().await else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "the webhook ends");
        };
        let judged = tokio::task::spawn_blocking(move || {
            // Held until the driver's function returns, also when no caller waits for that any more.
            let _held = (slot, large);
            review::answer(&self.checks, &body)
        });
        match judged.await {
            Ok(Ok(review)) => page(StatusCode::OK, "application/json", review.to_string()),
            Ok(Err(reason)) => {
                tracing::warn!(reason, "a request is no review");
                text(StatusCode::BAD_REQUEST, &reason)
            }
            Err(panic) => {
                tracing::error!(%panic, "the driver's function for parameters panicked");
                let said = "the driver's function for parameters panicked";
                text(StatusCode::INTERNAL_SERVER_ERROR, said)
            }
        }
    }

    /// The whole body; a large one with its place among them, so that all bodies together are bounded.
    async fn read(
        &self,
        body: Incoming,
    ) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), Answer> {
        let too_large = || {
            let said = format!("a review has at most {MAX_BODY} bytes");
            text(StatusCode::PAYLOAD_TOO_LARGE, &said)
        };
        // Before anything of it is read.
        if body.size_hint().lower() > MAX_BODY as u64 {
            return Err(too_large());
        }
        let mut body = Limited::new(body, MAX_BODY);
        let (mut whole, mut large) = (Vec::new(), None);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
                true => too_large(),
                false => text(StatusCode::BAD_REQUEST, &error.to_string()),
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if large.is_none() && whole.len() + data.len() > SMALL_BODY {
                // The semaphore is never closed.
                large = Arc::clone(&self.large_bodies).acquire_owned().await.ok();
            }
            whole.extend_from_slice(&data);
        }
        Ok((whole, large))
    }
}

fn text(status: StatusCode, text: &str) -> Answer {
    page(status, "text/plain; charset=utf-8", format!("{text}\n"))
}

fn page(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
