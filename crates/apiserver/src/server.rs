//! The server: one cloneable service, and what a request passes through.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use allot_store::{Backend, Embedded};
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::BodyExt;

use crate::auth::{Authenticator, Authorizer, Impersonation, certificate, credential};
use crate::body::Body;
use crate::config::Config;
use crate::error::{ApiError, Result};
use crate::identity::User;
use crate::negotiate::{Media, Offer, negotiate};
use crate::registry::{self, Registry};
use crate::request::{Query, RequestInfo, check_duration};
use crate::{discovery, health, panics, rest};

/// Largest request body, as in kube-apiserver.
pub const MAX_BODY: usize = 3 << 20;

/// What all requests share.
pub struct Core {
    /// Where objects are kept.
    pub backend: Arc<dyn Backend>,
    /// Which resources there are.
    pub registry: ArcSwap<Registry>,
    /// How identities are proven.
    pub authenticator: Authenticator,
    /// How identities act as others.
    pub impersonation: Impersonation,
    /// What identities may do.
    pub authorizer: Authorizer,
    /// Options.
    pub config: Config,
    /// Policies and webhooks that users have installed.
    pub dynamic: Arc<crate::admission::dynamic::Dynamic>,
    /// Counts and times of requests.
    pub metrics: crate::metrics::Metrics,
    /// Documents that have been made.
    pub openapi: crate::openapi::Cache,
    /// Services that have been given addresses and ports and are not stored yet.
    pub(crate) services: crate::services::Pending,
    /// Ends watches and other streams when the server stops.
    pub shutdown: tokio_util::sync::CancellationToken,
}

/// The API server. Cloning is cheap.
#[derive(Clone)]
pub struct Server(pub(crate) Arc<Core>);

impl Server {
    /// A server over a backend. [`Server::bootstrap`] has to run before the first request.
    pub fn new(backend: Arc<dyn Backend>, config: Config) -> Self {
        let registry = registry::builtin(&config.runtime_config, config.features.release());
        let dynamic = Arc::default();
        Server(Arc::new(Core {
            backend: crate::admission::dynamic::watched(backend, Arc::clone(&dynamic)),
            dynamic,
            registry: ArcSwap::from_pointee(registry),
            authenticator: Authenticator::new(&config),
            impersonation: Impersonation::default(),
            authorizer: Authorizer::new(&config),
            config,
            metrics: crate::metrics::Metrics::default(),
            openapi: crate::openapi::Cache::default(),
            services: crate::services::Pending::default(),
            shutdown: tokio_util::sync::CancellationToken::new(),
        }))
    }

    /// A server in memory with default options, ready for requests: for tests.
    ///
    /// # Errors
    /// None in practice; those of [`Server::bootstrap`].
    pub async fn in_memory() -> Result<Self> {
        let backend = Arc::new(Embedded::in_memory(allot_store::Options::default()));
        let server = Server::new(backend, Config::default());
        server.bootstrap().await?;
        Ok(server)
    }

    /// Makes what every cluster has: system namespaces, default roles, priority classes.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn bootstrap(&self) -> Result<()> {
        crate::bootstrap::run(self).await
    }

    /// Checks from now on the expressions of ValidatingAdmissionPolicies against the types that they are about, and writes
    /// what is found into their status. A controller upstream: who runs the server without controllers leaves it out.
    pub fn check_policy_types(&self) {
        crate::admission::dynamic::check_types(self);
    }

    /// Ends all streams; requests that are under way are answered.
    pub fn shutdown(&self) {
        self.0.shutdown.cancel();
    }

    /// The server as a service for one identity, as `kube::Client::new` wants it: no socket, no TLS.
    ///
    /// ```ignore
    /// let client = kube::Client::new(server.client_service(User::admin()), "default");
    /// ```
    pub fn client_service(&self, user: User) -> ClientService {
        ClientService {
            server: self.clone(),
            user: Arc::new(user),
            agent: None,
        }
    }

    /// Answers one request; `user` is an identity that has been proven already (in process, or by TLS).
    pub async fn handle<B>(&self, request: Request<B>, user: Option<User>) -> Response<Body>
    where
        B: HttpBody + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let (mut parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query());
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        let upgrade = parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
        let mut request = Incoming {
            method: parts.method,
            uri: parts.uri,
            headers: parts.headers,
            query,
            info,
            user: User::anonymous(),
            upgrade: parking_lot::Mutex::new(upgrade),
            warnings: Warnings::default(),
            in_process: parts.extensions.remove::<InProcess>().is_some(),
        };
        let started = std::time::Instant::now();
        let info = request.info.clone();
        let streams = is_stream(&info);
        let answer = async {
            let answer = Box::pin(self.answer(&mut request, body, user));
            panics::caught(&info, answer).await.unwrap_or_else(|| {
                self.0.metrics.panicked();
                Ok(text_response(500, panics::ANSWER))
            })
        };
        let result = if streams {
            answer.await
        } else {
            let limit = self.0.config.request_timeout;
            tokio::time::timeout(limit, answer)
                .await
                .unwrap_or_else(|_| {
                    let message = "Timeout: request did not complete within the allotted timeout";
                    Err(allot_apimachinery::Status::failure(504, "Timeout", message).into())
                })
        };
        let mut response = match result {
            Ok(response) => response,
            Err(error) => error_response(&error, &request),
        };
        let known = info.is_resource
            && self
                .0
                .registry
                .load()
                .get(&info.group, &info.resource)
                .is_some();
        self.0
            .metrics
            .answered(&info, known, response.status().as_u16(), started.elapsed());
        request.warnings.write_to(response.headers_mut());
        response.headers_mut().insert(
            http::header::CACHE_CONTROL,
            http::HeaderValue::from_static("no-cache, private"),
        );
        response
    }

    /// As [`Server::handle`] for a connection from outside. As in kube-apiserver a client certificate comes before a bearer
    /// token, and one that can not be read is a failed authentication unless a token proves something else.
    pub(crate) async fn handle_remote<B>(
        &self,
        request: Request<B>,
        certificate: Result<Option<User>, certificate::SubjectError>,
    ) -> Response<Body>
    where
        B: HttpBody + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        match certificate {
            Ok(user) => self.handle(request, user).await,
            Err(_) if matches!(credential::bearer(request.headers()), Ok(Some(_))) => {
                self.handle(request, None).await
            }
            Err(_) => {
                let status = allot_apimachinery::Status::unauthorized("Unauthorized");
                crate::encode::value_response(401, &status.to_json(), Media::JSON)
            }
        }
    }

    async fn answer<B>(
        &self,
        request: &mut Incoming,
        body: B,
        user: Option<User>,
    ) -> Result<Response<Body>>
    where
        B: HttpBody + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let core = &self.0;
        if let Some(timeout) = request.query.text("timeout")
            && !is_stream(&request.info)
        {
            check_duration(timeout).map_err(|error| {
                ApiError::bad_request(format!(
                    "invalid timeout specified in the request URL - {error}"
                ))
            })?;
        }
        request.user = match user {
            Some(user) => user,
            None => {
                core.authenticator
                    .authenticate(core, &mut request.headers)
                    .await?
            }
        };
        core.impersonation.replace_user(core, request).await?;
        core.authorizer.check_request(core, request).await?;
        if !request.info.is_resource {
            return self.other_path(request).await;
        }
        let body = read_body(body, &request.headers).await?;
        rest::dispatch(core, request, body).await
    }

    async fn other_path(&self, request: &Incoming) -> Result<Response<Body>> {
        if let Some(response) = health::answer(&self.0, request)? {
            return Ok(response);
        }
        if let Some(response) = crate::openapi::answer(&self.0, request) {
            return Ok(response);
        }
        discovery::answer(&self.0, request)
    }
}

/// The answer goes on until somebody ends it.
fn is_stream(info: &RequestInfo) -> bool {
    const STREAMS: [&str; 5] = ["log", "exec", "attach", "portforward", "proxy"];
    info.verb == "watch" || STREAMS.contains(&info.subresource.as_str())
}

/// A request on its way.
pub struct Incoming {
    /// HTTP method.
    pub method: Method,
    /// Target as sent.
    pub uri: http::Uri,
    /// Headers.
    pub headers: HeaderMap,
    /// Query parameters.
    pub query: Query,
    /// What it asks for.
    pub info: RequestInfo,
    /// Who asks.
    pub user: User,
    /// The connection, for exec and the like.
    pub upgrade: parking_lot::Mutex<Option<hyper::upgrade::OnUpgrade>>,
    /// Warnings for the client.
    pub warnings: Warnings,
    /// It comes from a component of this process.
    pub in_process: bool,
}

/// `Warning` headers of an answer, each text once.
#[derive(Debug, Default)]
pub struct Warnings(parking_lot::Mutex<Vec<String>>);

impl Warnings {
    /// Adds a warning.
    pub fn add(&self, text: impl Into<String>) {
        let text = text.into();
        let mut texts = self.0.lock();
        if !text.is_empty() && !texts.contains(&text) {
            texts.push(text);
        }
    }

    fn write_to(&self, headers: &mut HeaderMap) {
        for text in self.0.lock().iter() {
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
            let clean: String = escaped
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect();
            if let Ok(value) = http::HeaderValue::from_str(&format!("299 - \"{clean}\"")) {
                headers.append(http::header::WARNING, value);
            }
        }
    }
}

/// Reads a body up to [`MAX_BODY`].
async fn read_body<B>(body: B, headers: &HeaderMap) -> Result<Bytes>
where
    B: HttpBody + Send + 'static,
    B::Error: std::fmt::Display,
{
    let too_large = || {
        ApiError::from(allot_apimachinery::Status::request_entity_too_large(
            &format!("limit is {MAX_BODY}"),
        ))
    };
    let announced = headers
        .get(http::header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<usize>().ok());
    if announced.is_some_and(|length| length > MAX_BODY) {
        return Err(too_large());
    }
    let mut body = std::pin::pin!(body);
    let mut whole: Vec<u8> = Vec::with_capacity(announced.unwrap_or(0));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::bad_request(error.to_string()))?;
        if let Ok(mut data) = frame.into_data() {
            use bytes::Buf;
            if whole.len() + data.remaining() > MAX_BODY {
                return Err(too_large());
            }
            whole.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        }
    }
    Ok(whole.into())
}

fn error_response(error: &ApiError, request: &Incoming) -> Response<Body> {
    let status = error.0.to_json();
    let media = negotiate(&request.headers, &request.query, Offer::Status).unwrap_or(Media::JSON);
    let mut response = crate::encode::value_response(error.code(), &status, media);
    if let Some(details) = &error.0.details
        && details.retry_after_seconds > 0
    {
        response.headers_mut().insert(
            http::header::RETRY_AFTER,
            details.retry_after_seconds.into(),
        );
    }
    response
}

/// A plain-text answer.
pub(crate) fn text_response(code: u16, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::whole(text));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response.headers_mut().insert(
        http::header::X_CONTENT_TYPE_OPTIONS,
        http::HeaderValue::from_static("nosniff"),
    );
    response
}

/// Marks a request of [`ClientService`]; nothing that comes over a socket can carry it.
#[derive(Clone, Copy)]
struct InProcess;

/// The server for one proven identity; see [`Server::client_service`].
#[derive(Clone)]
pub struct ClientService {
    server: Server,
    user: Arc<User>,
    agent: Option<HeaderValue>,
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
