//! Connections to the service of an extension.

use std::sync::Arc;
use std::time::Duration;

use allot_store::Backend;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, BodyStream, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::Builder;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;

use crate::body::Body;
use crate::dial::head;
use crate::{dial, remote};

/// The time for opening a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// The maximum number of idle connections.
const MAX_IDLE: usize = 16;
/// The most bytes in the head of an answer.
const MAX_HEAD: usize = 64 << 10;

type Sender = head::Sender<Full<Bytes>>;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The certificates cannot be used.
    Tls(String),
    /// The service has no endpoint.
    Unresolved(String),
    /// The endpoint does not answer; Go's wording if available.
    Exchange(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Failure::Tls(text) | Failure::Unresolved(text) | Failure::Exchange(text)) = self;
        f.write_str(text)
    }
}

/// The client of a service: its TLS configuration and its idle connections.
pub(crate) struct Client {
    service: (String, String),
    port: u16,
    tls: Result<Arc<ClientConfig>, String>,
    idle: Arc<Mutex<Vec<Sender>>>,
}

/// A connection with the answer to a request. It is used again when the answer has been read to its end.
pub(crate) struct Exchange {
    sender: Sender,
    idle: Arc<Mutex<Vec<Sender>>>,
}

impl Client {
    pub(super) fn new(
        service: (String, String),
        port: u16,
        tls: Result<Arc<ClientConfig>, String>,
    ) -> Self {
        Client {
            service,
            port,
            tls,
            idle: Arc::default(),
        }
    }

    /// The port of the service.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The name of the service, which its certificate has.
    fn host(&self) -> String {
        let (namespace, name) = &self.service;
        format!("{name}.{namespace}.svc")
    }

    /// The URL of a path, for errors.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}:{}{path}", self.host(), self.port)
    }

    /// Sends a request; the answer is read later.
    ///
    /// # Errors
    /// See [`Failure`].
    pub(crate) async fn send(
        &self,
        backend: &dyn Backend,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Exchange), Failure> {
        let host = format!("{}:{}", self.host(), self.port);
        if let Ok(host) = HeaderValue::from_str(&host) {
            request.headers_mut().insert(header::HOST, host);
        }
        // One that waits may have been closed meanwhile: then the service has not seen the request.
        loop {
            let waiting = self.idle.lock().pop();
            let Some(mut sender) = waiting else { break };
            if sender.ready().await.is_err() {
                continue;
            }
            match sender.send_request(request.clone()).await {
                Err(error) if error.is_canceled() => {}
                outcome => return self.exchange(sender, outcome),
            }
        }
        let connecting = tokio::time::timeout(CONNECT, self.connect(backend));
        let timed_out = |_| Failure::Exchange("i/o timeout".to_owned());
        let mut sender = connecting.await.map_err(timed_out)??;
        let outcome = sender.send_request(request).await;
        self.exchange(sender, outcome)
    }

    fn exchange(
        &self,
        sender: Sender,
        outcome: hyper::Result<Response<Incoming>>,
    ) -> Result<(Response<Incoming>, Exchange), Failure> {
        let response = outcome.map_err(|error| Failure::Exchange(error.to_string()))?;
        let idle = self.idle.clone();
        Ok((response, Exchange { sender, idle }))
    }

    async fn connect(&self, backend: &dyn Backend) -> Result<Sender, Failure> {
        let tls = self.tls.clone().map_err(Failure::Tls)?;
        let (namespace, name) = &self.service;
        let (host, port, reach) = remote::endpoint(backend, namespace, name, self.port)
            .await
            .map_err(Failure::Unresolved)?;
        let failed = |text: String| Failure::Exchange(text);
        let stream = dial::connect(&host, port, reach).await.map_err(|error| {
            let why = remote::in_go(&error);
            failed(format!("dial tcp {host}:{port}: connect: {why}"))
        })?;
        let name = ServerName::try_from(self.host()).map_err(|it| failed(it.to_string()))?;
        let stream = TlsConnector::from(tls)
            .connect(name, stream)
            .await
            .map_err(|error| failed(remote::in_go(&error)))?;
        let (sender, connection) = head::handshake(Builder::new().max_buf_size(MAX_HEAD), stream)
            .await
            .map_err(|error| failed(error.to_string()))?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "connection to an extension API server ended");
            }
        });
        Ok(sender)
    }
}

impl Exchange {
    /// The body of an answer as it arrives.
    pub(crate) fn stream(self, body: Incoming) -> Body {
        let mut exchange = Some(self);
        let data = BodyStream::new(body)
            .map(Some)
            .chain(futures::stream::once(async { None }));
        Body::stream(data.filter_map(move |frame| {
            let piece = match frame {
                Some(Ok(frame)) => frame.into_data().ok().map(Ok),
                Some(Err(error)) => {
                    exchange = None;
                    Some(Err(std::io::Error::other(error)))
                }
                None => {
                    if let Some(exchange) = exchange.take() {
                        exchange.over();
                    }
                    None
                }
            };
            async move { piece }
        }))
    }

    /// The whole body of an answer; `None` if it is longer than `most` or does not arrive.
    pub(crate) async fn whole(self, body: Incoming, most: usize) -> Option<Bytes> {
        let bytes = Limited::new(body, most).collect().await.ok()?.to_bytes();
        self.over();
        Some(bytes)
    }

    fn over(self) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(self.sender);
        }
    }
}
