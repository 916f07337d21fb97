//! Several gRPC services on one socket.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use tonic::body::Body;
use tonic::server::NamedService;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

use super::Incoming;

/// After a stop, calls in progress get this long to finish; streams never would.
const DRAIN: Duration = Duration::from_secs(2);

type Inner = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// A set of services, routed by the first segment of the path.
#[derive(Clone, Default)]
pub struct Services {
    by_name: Arc<HashMap<&'static str, Inner>>,
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl Services {
    /// No services; every call is answered with `UNIMPLEMENTED`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a generated server.
    #[must_use]
    pub fn with<S>(mut self, service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        let mut services = HashMap::clone(&self.by_name);
        services.insert(S::NAME, BoxCloneSyncService::new(service));
        self.by_name = Arc::new(services);
        self
    }

    /// Serves until `shutdown` completes; removes the socket file then.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(
        self,
        incoming: Incoming,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), tonic::transport::Error> {
        let (stopping, stopped) = tokio::sync::oneshot::channel();
        let signal = async move {
            shutdown.await;
            let _ = stopping.send(());
        };
        let limit = async move {
            // An error means that the server ended first; then the other branch is ready.
            match stopped.await {
                Ok(()) => tokio::time::sleep(DRAIN).await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            result = tonic::transport::Server::builder().serve_with_incoming_shutdown(self, incoming, signal) => result,
            () = limit => Ok(()),
        }
    }
}

impl Service<Request<Body>> for Services {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let name = request
            .uri()
            .path()
            .trim_start_matches('/')
            .split('/')
            .next()
            .unwrap_or_default();
        match self.by_name.get(name) {
            Some(service) => Box::pin(service.clone().oneshot(request)),
            None => {
                let status = tonic::Status::unimplemented(format!("unknown service {name}"));
                Box::pin(std::future::ready(Ok(status.into_http())))
            }
        }
    }
}
