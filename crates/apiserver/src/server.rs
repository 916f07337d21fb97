//! The server: one cloneable service, and what a request passes through.

use std::sync::Arc;

use allot_apimachinery::Status;
use allot_store::{Backend, Embedded};
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use tokio::time::Instant;

use crate::answers::{Budget, Counters};
use crate::auth::{Authenticator, Authorizer, Impersonation, certificate, credential};
use crate::body::{Body, Pace};
use crate::config::Config;
use crate::connections::Connection;
use crate::error::{ApiError, Result};
use crate::flow::{Classified, FlowControl, Seat};
use crate::identity::User;
use crate::limits::{CHUNK, DISCARDS, TREE_FACTOR, until};
use crate::negotiate::{Media, Offer, negotiate};
use crate::registry::{self, Registry};
use crate::request::{Query, RequestInfo};
use crate::upload::Upload;
use crate::{discovery, health, panics, rest};

mod client;
mod head;
mod warnings;

pub use client::ClientService;
use client::InProcess;
use head::{ambiguous, reads_body, time_limit};
pub use warnings::Warnings;

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
    /// How many requests are served at the same time.
    pub flow: Arc<FlowControl>,
    /// What all large answers together may hold.
    pub answers: Budget,
    /// What decoding large bodies may take.
    pub(crate) decoding: Budget,
    /// Work on large bodies.
    turns: Arc<tokio::sync::Semaphore>,
    /// Counts of what was sent in pieces.
    pub counters: Arc<Counters>,
    /// Bodies that are read to be thrown away.
    discards: Arc<tokio::sync::Semaphore>,
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
        let metrics = crate::metrics::Metrics::default();
        let flow = FlowControl::new(&config.limits, metrics.flow.clone());
        let flows = Arc::clone(&flow.changes);
        Server(Arc::new(Core {
            backend: crate::admission::dynamic::watched(backend, Arc::clone(&dynamic), flows),
            dynamic,
            flow,
            registry: ArcSwap::from_pointee(registry),
            authenticator: Authenticator::new(&config),
            impersonation: Impersonation::default(),
            authorizer: Authorizer::new(&config),
            answers: Budget::new(config.limits.answer_bytes),
            decoding: Budget::new(config.limits.decode_bytes),
            turns: crate::large::turns(),
            counters: Arc::default(),
            discards: Arc::new(tokio::sync::Semaphore::new(DISCARDS)),
            config,
            metrics,
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
        let connection = parts.extensions.remove::<Arc<Connection>>();
        let mut upload = Upload::new(body, &parts.headers);
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
            deadline: None,
            flow: None,
            seat: None,
            peer: connection.as_ref().map(|connection| connection.peer),
            audit: None,
        };
        let started = Instant::now();
        let info = request.info.clone();
        let limits = &self.0.config.limits;
        let result = match time_limit(&request, limits.request_timeout) {
            Err(error) => Err(error),
            Ok(None) => self.caught(&mut request, &mut upload, user).await,
            Ok(Some(limit)) => {
                let deadline = started + limit;
                request.deadline = Some(deadline);
                let answer = until(deadline, self.caught(&mut request, &mut upload, user));
                tokio::time::timeout_at(deadline, answer)
                    .await
                    .unwrap_or_else(|_| Err(timed_out()))
            }
        };
        upload.discard(&self.0.discards);
        let mut response = match result {
            Ok(response) => response,
            Err(error) => error_response(&error, &request),
        };
        if let Some(trail) = request.audit.take() {
            crate::audit::write_id(response.headers_mut(), trail.id());
            trail.answered(&mut response);
        } else if !request.in_process {
            let id = crate::audit::id(&request.headers);
            crate::audit::write_id(response.headers_mut(), &id);
        }
        if let Some(classified) = &request.flow {
            classified.write_to(response.headers_mut());
        }
        // A watch has a seat until it has begun, a small answer until it is made, a large one until it has been sent.
        let seat = request.seat.take().filter(|_| info.verb != "watch");
        if response.status().is_success()
            && let Some(watching) = self.0.flow.watching(&request)
        {
            response.body_mut().hold(Box::new(watching));
        }
        if !request.in_process {
            response = self.paced(response, &request, connection, seat).await;
        }
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
        if let Some(directives) = &self.0.config.strict_transport_security {
            response
                .headers_mut()
                .insert(http::header::STRICT_TRANSPORT_SECURITY, directives.clone());
        }
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
        if let Some(why) = ambiguous(&request) {
            let mut response = text_response(400, format!("400 Bad Request: {why}"));
            let close = http::HeaderValue::from_static("close");
            response
                .headers_mut()
                .insert(http::header::CONNECTION, close);
            return response;
        }
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

    /// The answer with an eye on how fast its client takes it.
    async fn paced(
        &self,
        mut response: Response<Body>,
        request: &Incoming,
        connection: Option<Arc<Connection>>,
        seat: Option<Seat>,
    ) -> Response<Body> {
        let body = response.body();
        let whole = body.whole_size();
        if whole.is_some_and(|size| size <= CHUNK) {
            if let Some(connection) = connection {
                response.body_mut().hold(Box::new(connection.request()));
            }
            return response;
        }
        if let Some(size) = whole.filter(|_| !body.holds()) {
            match self.0.answers.reserve(size).await {
                Ok(share) => response.body_mut().hold(Box::new(share)),
                Err(error) => response = error_response(&error, request),
            }
        }
        if let Some(connection) = &connection {
            response.body_mut().hold(Box::new(connection.request()));
        }
        if let Some(seat) = seat {
            response.body_mut().hold(Box::new(seat));
        }
        let pace = Pace {
            stall: self.0.config.limits.stall_timeout,
            until: request.deadline,
            connection: connection.map(|connection| connection.abort.clone()),
            counters: self.0.counters.clone(),
        };
        response.map(|body| body.paced(pace))
    }

    /// The answer, or 500 where making it caused a panic: the panic ends this request and nothing else.
    async fn caught<B>(
        &self,
        request: &mut Incoming,
        upload: &mut Upload<B>,
        user: Option<User>,
    ) -> Result<Response<Body>>
    where
        B: HttpBody + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let info = request.info.clone();
        let answer = Box::pin(crate::raw::scope(self.answer(request, upload, user)));
        panics::caught(&info, answer).await.unwrap_or_else(|| {
            self.0.metrics.panicked();
            Ok(text_response(500, panics::ANSWER))
        })
    }

    async fn answer<B>(
        &self,
        request: &mut Incoming,
        upload: &mut Upload<B>,
        user: Option<User>,
    ) -> Result<Response<Body>>
    where
        B: HttpBody + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let core = &self.0;
        let user = match user {
            Some(user) => Ok(user),
            None => {
                core.authenticator
                    .authenticate(core, &mut request.headers)
                    .await
            }
        };
        let (user, refused) = match user {
            Ok(user) => (user, None),
            Err(error) => (User::default(), Some(error)),
        };
        request.user = user;
        if let Some(audit) = &core.config.audit {
            request.audit = audit.begin(request, jiff::Timestamp::now());
        }
        if let Some(error) = refused {
            return Err(error);
        }
        core.impersonation.replace_user(core, request).await?;
        if let Some(trail) = &mut request.audit
            && request.headers.contains_key("impersonate-user")
        {
            trail.impersonates(&request.user);
        }
        match core.flow.enter(core, request).await {
            Ok(seat) => request.seat = Some(seat),
            Err(refused) => return Ok(refused),
        }
        let allowed = core.authorizer.check_request(core, request).await;
        if let Some(mut trail) = request.audit.take() {
            trail.ask(core, request).await;
            request.audit = Some(trail);
        }
        allowed?;
        if !request.info.is_resource {
            return self.other_path(request).await;
        }
        let body = match reads_body(&request.info) {
            true => tokio::time::timeout(core.config.limits.request_timeout, upload.read())
                .await
                .unwrap_or_else(|_| Err(timed_out()))?,
            // The body is not read. A watch must not keep its seat until it has come, which may be never.
            false => Bytes::new(),
        };
        if let Some(trail) = &mut request.audit {
            trail.sent(&body);
        }
        let _share = match body.len() {
            0..=CHUNK => None,
            size => Some(core.decoding.reserve(size * TREE_FACTOR).await?),
        };
        let large = body.len() > CHUNK;
        let answer = rest::dispatch(core, request, body);
        match large {
            true => crate::large::aside(core.turns.clone(), answer).await,
            false => answer.await,
        }
    }

    async fn other_path(&self, request: &Incoming) -> Result<Response<Body>> {
        if request.method == Method::CONNECT {
            // It names a host and no path, and a success would promise a tunnel.
            return Err(ApiError::no_such_path());
        }
        if let Some(response) = health::answer(&self.0, request)? {
            return Ok(response);
        }
        if let Some(response) = crate::openapi::answer(&self.0, request) {
            return Ok(response);
        }
        discovery::answer(&self.0, request)
    }
}

fn timed_out() -> ApiError {
    let message = "Timeout: request did not complete within the allotted timeout";
    Status::failure(504, "Timeout", message).into()
}

/// The answer goes on until somebody ends it: kube-apiserver's list.
pub(crate) fn is_long_running(info: &RequestInfo) -> bool {
    const SUBRESOURCES: [&str; 5] = ["log", "exec", "attach", "portforward", "proxy"];
    info.is_resource
        && (matches!(info.verb.as_str(), "watch" | "proxy")
            || SUBRESOURCES.contains(&info.subresource.as_str()))
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
    /// When the answer must be there, unless the request is long-running.
    pub deadline: Option<Instant>,
    /// The flow schema and priority level of the request.
    pub flow: Option<Classified>,
    /// Its right to be served.
    pub seat: Option<Seat>,
    /// The other end of its connection, if it has one.
    pub peer: Option<std::net::SocketAddr>,
    /// What the audit log says about it.
    pub audit: Option<crate::audit::Trail>,
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
