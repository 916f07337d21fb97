//! The server: one cloneable service, and what a request passes through.

use std::sync::Arc;

use allot_apimachinery::Status;
use allot_apimachinery::quote::quote;
use allot_store::Backend;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body::Body as HttpBody;
use tokio::time::Instant;

use crate::audit::RequestAudit;
use crate::auth::token_use::TokenUse;
use crate::auth::{authorizer_attributes, certificate, credential, selected, undecided};
use crate::body::{Body, text_response};
use crate::config::Config;
use crate::connections::InFlight;
use crate::context::Core;
use crate::error::{ApiError, Result};
use crate::flow::{Classified, Seat, is_mutating};
use crate::identity::User;
use crate::limits::{CHUNK, let_work_end, timed_out, tree_size, until};
use crate::request::{Annotations, Incoming, Query, RequestInfo, Warnings, is_long_running};
use crate::shares::owner;
use crate::upload::Upload;
use crate::{discovery, health, openapi, panics, rest};

mod client;
mod finish;
mod head;
mod page;
mod receive;
mod reload;

use client::InProcess;
pub use client::{ClientService, RemoteService};
use head::{ambiguous, fronted, reads_body, time_limit};
pub use reload::{ReloadError, ReloadableConfig};

/// The API server. Cloning is cheap.
#[derive(Clone)]
pub struct Server(pub(crate) Arc<Core>);

impl Server {
    /// A server over a backend. [`Server::bootstrap`] has to run before the first request.
    pub fn new(backend: Arc<dyn Backend>, config: Config) -> Self {
        let_work_end();
        Server(Arc::new(Core::new(backend, config)))
    }

    /// Ends all streams; requests that are under way are answered.
    pub fn shutdown(&self) {
        self.0.shutdown.cancel();
    }

    /// The server as a service for one identity, for `kube::Client::new`: no socket, no TLS.
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
        let in_flight = parts.extensions.remove::<Arc<InFlight>>();
        let mut upload = Upload::new(body, &parts.headers);
        let request = Incoming {
            method: parts.method,
            uri: parts.uri,
            headers: parts.headers,
            query,
            info: Arc::new(info),
            user: User::anonymous(),
            upgrade: parking_lot::Mutex::new(upgrade),
            warnings: Warnings::default(),
            annotations: Annotations::default(),
            in_process: parts.extensions.remove::<InProcess>().is_some(),
            deadline: None,
            peer: in_flight.as_ref().map(|it| it.connection.peer),
        };
        let distrusted = parts.extensions.remove::<Distrusted>().is_some();
        let mut exchange = Exchange {
            request,
            distrusted,
            denied: false,
            in_flight,
            flow: None,
            seat: None,
            audit: None,
        };
        let started = Instant::now();
        let result = self
            .answer_in_time(&mut exchange, &mut upload, user, started)
            .await;
        upload.discard(&self.0.discards);
        self.finish(exchange, result, started).await
    }

    /// The answer, or 504 when the time that the request has is over.
    async fn answer_in_time<B>(
        &self,
        exchange: &mut Exchange,
        upload: &mut Upload<B>,
        user: Option<User>,
        started: Instant,
    ) -> Result<Response<Body>>
    where
        B: HttpBody + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let info = Arc::clone(&exchange.request.info);
        let _in_flight =
            (!is_long_running(&info)).then(|| self.0.metrics.in_flight(is_mutating(&info.verb)));
        let limit = time_limit(&exchange.request, self.0.config.limits.request_timeout);
        if info.is_cut {
            return Ok(cut(&exchange.request));
        }
        let Some(limit) = limit? else {
            return self.caught(exchange, upload, user).await;
        };
        let deadline = started + limit;
        exchange.request.deadline = Some(deadline);
        let answer = until(deadline, self.caught(exchange, upload, user));
        match tokio::time::timeout_at(deadline, answer).await {
            // An error because of the end of the time, such as that of a call, may be seen first.
            Ok(Err(_)) if Instant::now() >= deadline => Ok(out_of_time()),
            Ok(answered) => answered,
            Err(_) => Ok(out_of_time()),
        }
    }

    /// Answers a request of a connection: of the API, or of the page beside it. As in kube-apiserver a client certificate
    /// takes precedence over a bearer token, and one that is not trusted or cannot be read is a failed authentication
    /// unless a token succeeds. The audit log has that as well. `proxy` is the common name of a front proxy that the
    /// certificate proves: the headers of an allowed one name the user, before all other credentials.
    pub(crate) async fn handle_remote(
        &self,
        mut request: Request<hyper::body::Incoming>,
        certificate: Result<Option<User>, certificate::SubjectError>,
        proxy: Option<String>,
        in_flight: &Arc<InFlight>,
    ) -> Response<Body> {
        if let Some(why) = ambiguous(&request) {
            let mut response = text_response(400, format!("400 Bad Request: {why}"));
            let close = http::HeaderValue::from_static("close");
            response
                .headers_mut()
                .insert(http::header::CONNECTION, close);
            return response;
        }
        if let Some(handler) = self.mounted(request.uri().path()) {
            return self.page(&handler, request, in_flight).await;
        }
        request.extensions_mut().insert(in_flight.clone());
        let user = match fronted(&self.0.config, proxy.as_deref(), request.headers()) {
            Ok(Some(user)) => Ok(Some(user)),
            Ok(None) => certificate.map_err(drop),
            Err(_) => Err(()),
        };
        let user = user.unwrap_or_else(|()| {
            request.extensions_mut().insert(Distrusted);
            None
        });
        self.handle(request, user).await
    }

    /// The answer, or 500 after a panic, which ends only this request.
    async fn caught<B>(
        &self,
        exchange: &mut Exchange,
        upload: &mut Upload<B>,
        user: Option<User>,
    ) -> Result<Response<Body>>
    where
        B: HttpBody + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let info = Arc::clone(&exchange.request.info);
        let answer = Box::pin(crate::raw::scope(self.boxed_answer(exchange, upload, user)));
        panics::caught(&info, answer).await.unwrap_or_else(|| {
            self.0.metrics.panicked();
            Ok(text_response(500, panics::ANSWER))
        })
    }

    /// The future of [`Server::answer`] is large: it is made here, and not in each of the frames below it.
    fn boxed_answer<'a, B>(
        &'a self,
        exchange: &'a mut Exchange,
        upload: &'a mut Upload<B>,
        user: Option<User>,
    ) -> BoxFuture<'a, Result<Response<Body>>>
    where
        B: HttpBody + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        Box::pin(self.answer(exchange, upload, user))
    }

    async fn answer<B>(
        &self,
        exchange: &mut Exchange,
        upload: &mut Upload<B>,
        user: Option<User>,
    ) -> Result<Response<Body>>
    where
        B: HttpBody + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let core = &self.0;
        let Exchange {
            request,
            distrusted,
            denied,
            in_flight,
            flow,
            seat,
            audit,
        } = &mut *exchange;
        let mut told = TokenUse::default();
        let proven = authenticated(core, request, user, *distrusted, &mut told).await;
        let (user, refused) = match proven {
            Ok(user) => (user, None),
            Err(error) => (User::default(), Some(error)),
        };
        request.user = user;
        // A request that proves no identity does not take its connection out of another user's share.
        if let (Some(in_flight), None) = (in_flight, &refused) {
            in_flight.belongs_to(owner(&request.user));
        }
        if let Some(log) = &core.config.audit {
            *audit = log.begin(request, jiff::Timestamp::now());
            if let Some(trail) = audit {
                request.annotations.begin(trail.has_bodies());
            }
        }
        told.tell(request);
        if let Some(error) = refused {
            return Err(error);
        }
        let impersonation = &core.impersonation;
        let mode = impersonation
            .replace_user(core, &core.authorizer, request)
            .await
            .inspect_err(|_| *denied = true)?;
        if let (Some(trail), Some(mode)) = (&mut *audit, mode) {
            trail.impersonates(&request.user, mode.verb());
        }
        match core.flow.enter(core, request, flow).await {
            Ok(given) => *seat = Some(given),
            Err(refused) => return Ok(refused),
        }
        let selectors = selected(request);
        let access = authorizer_attributes(request, &selectors);
        let decision = core.authorizer.decide(core, &access).await?;
        if let (false, Some(error)) = (decision.allowed(), decision.error()) {
            if let Some(trail) = audit {
                trail.undecided();
            }
            return Err(undecided(&access, &error));
        }
        if let Some(trail) = audit {
            trail.decided(decision.allowed(), decision.reason());
        }
        decision.required(&access).inspect_err(|_| *denied = true)?;
        let extension = core.extensions.of(&request.info);
        if let Some(extension) = extension.or_else(|| openapi::served_by(core, request)) {
            return self.by_extension(exchange, upload, &extension).await;
        }
        if let Some(verbosity) = crate::debug_flags::set_by(core, request) {
            let body = self.receive(exchange, upload).await?;
            return Ok(body.map_or_else(
                |refused| refused,
                |body| crate::debug_flags::set(verbosity, &body),
            ));
        }
        if !request.info.is_resource {
            return self.other_path(request).await;
        }
        let body = match reads_body(&request.info) {
            true => match self.receive(exchange, upload).await? {
                Ok(body) => body,
                Err(refused) => return Ok(refused),
            },
            // The body is not read. A watch must not keep its seat until it has arrived, which may be never.
            false => Bytes::new(),
        };
        let Exchange { request, audit, .. } = exchange;
        if let Some(trail) = audit {
            trail.sent(&body);
        }
        let _share = match body.len() {
            0..=CHUNK => None,
            _ => Some(core.decoding.reserve_all(tree_size(&body)).await?),
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
        if let Some(response) = crate::zpages::answer(&self.0, request) {
            return Ok(response);
        }
        if let Some(response) = crate::debug_flags::answer(&self.0, request) {
            return Ok(response);
        }
        if let Some(response) = openapi::answer(&self.0, &self.0.openapi, request).await {
            return Ok(response);
        }
        discovery::answer(&self.0, request)
    }
}

/// The user that a request comes from: proven already by its connection, by its token, or anonymous.
async fn authenticated(
    core: &Core,
    request: &mut Incoming,
    user: Option<User>,
    distrusted: bool,
    told: &mut TokenUse,
) -> Result<User> {
    match user {
        Some(user) => Ok(user),
        // It is not anonymous either; only a token can prove an identity now.
        None if distrusted && !matches!(credential::bearer(&request.headers), Ok(Some(_))) => {
            Err(Status::unauthorized("Unauthorized").into())
        }
        None => {
            core.authenticator
                .authenticate(core, &request.info.path, &mut request.headers, told)
                .await
        }
    }
}

/// The answer to a path that ends where its resource would begin. It is taken apart before its sender is known.
fn cut(request: &Incoming) -> Response<Body> {
    let url = request.uri.path_and_query().map_or("", |url| url.as_str());
    let why = "failed to create RequestInfo: unable to determine kind and namespace from url,";
    let text = format!("Internal Server Error: {}: {why} {url}", quote(url));
    text_response(500, crate::auth::without_markup(&text) + "\n")
}

/// The answer to a request whose time is over while it is handled. As kube-apiserver's it is a Status without a kind,
/// as text, so that clients do not take it for an answer of the API.
fn out_of_time() -> Response<Body> {
    let error = timed_out();
    let answer = format!(
        "{{\"metadata\":{{}},\"status\":\"Failure\",\"message\":\"{}\",\"reason\":\"{}\",\"details\":{{}},\"code\":504}}\n",
        error.0.message, error.0.reason
    );
    text_response(504, answer)
}

/// Marks a request of a connection whose client certificate is not trusted or cannot be read.
#[derive(Clone, Copy)]
pub(crate) struct Distrusted;

/// A request in the server, with data that is not passed to its handler.
struct Exchange {
    request: Incoming,
    /// The client certificate of its connection is not trusted or cannot be read.
    distrusted: bool,
    /// Impersonation or authorization refused the request: upstream's filters answer with one more header than its
    /// handlers.
    denied: bool,
    /// Its place on the connection that it came on, with the user that its answer counts for: the caller, whatever user it
    /// acts as.
    in_flight: Option<Arc<InFlight>>,
    /// The flow schema and priority level of the request.
    flow: Option<Classified>,
    /// Its right to be served.
    seat: Option<Seat>,
    /// What the audit log says about it.
    audit: Option<RequestAudit>,
}
