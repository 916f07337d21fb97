//! The check in front of every request that keeps a process without its Lease from writing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures::future::{BoxFuture, Either};
use kube::Client;
use kube::client::Body;
use tokio_util::sync::CancellationToken;

use crate::clock::Monotonic;

/// Whether a Lease is certain to be held.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) clock: Monotonic,
    /// The time (see [`Monotonic::millis`]) until which this process certainly holds the Lease.
    pub(crate) until: AtomicU64,
    pub(crate) lost: CancellationToken,
}

impl Held {
    pub(crate) fn is_valid(&self) -> bool {
        !self.lost.is_cancelled() && self.clock.millis() < self.until.load(Ordering::Acquire)
    }
}

/// A request was not sent because leadership is not certain.
#[derive(Debug, thiserror::Error)]
#[error("not sent: this process does not lead any more")]
pub struct NotLeading;

/// A client whose requests fail once leadership is not certain any longer.
#[derive(Clone)]
pub(super) struct Fence {
    pub(super) client: Client,
    pub(super) held: Arc<Held>,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl tower::Service<http::Request<Body>> for Fence {
    type Response = http::Response<Body>;
    type Error = BoxError;
    type Future = Either<
        std::future::Ready<Result<Self::Response, BoxError>>,
        BoxFuture<'static, Result<Self::Response, BoxError>>,
    >;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if !self.held.is_valid() {
            self.held.lost.cancel();
            return Either::Left(std::future::ready(Err(NotLeading.into())));
        }
        let client = self.client.clone();
        Either::Right(Box::pin(async move {
            client.send(request).await.map_err(Into::into)
        }))
    }
}
