//! The server as the components of the same process use it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{HeaderValue, USER_AGENT};
use http::{Request, Response};
use http_body::Body as HttpBody;

use super::Server;
use crate::body::Body;
use crate::identity::User;

/// Marks a request of [`ClientService`]; a request over a socket cannot carry it.
#[derive(Clone, Copy)]
pub(super) struct InProcess;

/// The server for one proven identity; see [`Server::client_service`].
#[derive(Clone)]
pub struct ClientService {
    pub(super) server: Server,
    pub(super) user: Arc<User>,
    pub(super) agent: Option<HeaderValue>,
}

impl ClientService {
    /// Names the client in its requests: the manager of the fields it writes.
    #[must_use]
    pub fn with_agent(mut self, agent: &'static str) -> Self {
        self.agent = Some(HeaderValue::from_static(agent));
        self
    }
}

impl<B> tower::Service<Request<B>> for ClientService
where
    B: HttpBody + Send + 'static,
    B::Data: Send,
    B::Error: std::fmt::Display,
{
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(InProcess);
        if let Some(agent) = &self.agent {
            let headers = request.headers_mut();
            headers.entry(USER_AGENT).or_insert_with(|| agent.clone());
        }
        let (server, user) = (self.server.clone(), self.user.clone());
        Box::pin(async move { Ok(server.handle(request, Some((*user).clone())).await) })
    }
}

/// The server for requests with credentials of their own; see [`Server::remote_service`].
#[derive(Clone)]
pub struct RemoteService(pub(crate) Server);

impl<B> tower::Service<Request<B>> for RemoteService
where
    B: HttpBody + Send + 'static,
    B::Data: Send,
    B::Error: std::fmt::Display,
{
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.0.clone();
        Box::pin(async move { Ok(server.handle(request, None).await) })
    }
}
