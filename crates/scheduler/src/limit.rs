//! Client-side rate limit of requests, as set by `clientConnection`.
//!
//! Without `qps` there is no limit: upstream's defaults (50 per second, burst 100) are for API servers without priority
//! and fairness, and are the cause of most reports about slow schedulers.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::BoxError;

use crate::config::ClientConnection;

#[cfg(test)]
mod tests;

/// A client that respects the rate, if one is set.
pub fn limited(client: Client, connection: &ClientConnection) -> Client {
    let Some(qps) = connection.qps.filter(|q| *q > 0.0 && q.is_finite()) else {
        return client;
    };
    let namespace = client.default_namespace().to_owned();
    let rate = Rate::new(f64::from(qps), connection.burst.unwrap_or(1));
    let limited = Limited {
        client,
        rate: std::sync::Arc::new(Mutex::new(rate)),
    };
    Client::new(limited, namespace)
}

/// A bucket that fills with `qps` and holds `burst`.
#[derive(Debug)]
struct Rate {
    interval: Duration,
    /// How far ahead of the rate one may be.
    credit: Duration,
    /// When the bucket is full again, were every request evenly spaced.
    full: Option<Instant>,
}

impl Rate {
    fn new(qps: f64, burst: u32) -> Self {
        let interval = Duration::from_secs_f64(1.0 / qps);
        Self {
            interval,
            credit: interval.saturating_mul(burst.max(1) - 1),
            full: None,
        }
    }

    /// Takes the next token; returns how long to wait for it.
    fn take(&mut self, now: Instant) -> Duration {
        let from = self.full.filter(|at| *at > now).unwrap_or(now);
        self.full = Some(from + self.interval);
        from.saturating_duration_since(now)
            .saturating_sub(self.credit)
    }
}

#[derive(Clone)]
struct Limited {
    client: Client,
    rate: std::sync::Arc<Mutex<Rate>>,
}

impl tower::Service<http::Request<Body>> for Limited {
    type Response = http::Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let wait = self.rate.lock().take(Instant::now());
        let client = self.client.clone();
        Box::pin(async move {
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            client.send(request).await.map_err(Into::into)
        })
    }
}
