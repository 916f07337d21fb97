//! Reaching a webhook: over HTTPS, by URL or through a service.

mod reviewer;

use std::sync::Arc;

use allot_store::Backend;
use base64::Engine as _;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::Builder;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::config::{Credentials, WebhookUser};
use crate::dial::head::{self, Sender};
use crate::dial::{self, Reach};
use crate::limits::MAX_BODY;
use crate::object::text;
use crate::remote;

pub(crate) use reviewer::{ReviewError, Reviewer};

/// The port of a webhook that names none.
const PORT: u16 = 443;
/// How much of a webhook's error is returned to the client, in bytes; upstream's client has this bound for answers that are
/// no Status.
const MAX_EXCERPT: usize = 2048;
/// The maximum number of idle connections, as in client-go.
const MAX_IDLE: usize = 25;

type Connection = Sender<Full<Bytes>>;

/// The client of a webhook: its address and open connections.
pub(crate) struct Client {
    host: String,
    port: u16,
    path: String,
    /// Namespace and name of the service behind the host.
    service: Option<(String, String)>,
    /// The certificates that are trusted.
    bundle: Vec<u8>,
    /// What a connection begins with, unless the client has a certificate of its own. None: without TLS.
    tls: Result<Option<Arc<ClientConfig>>, String>,
    /// The name in the webhook's certificate.
    server_name: String,
    /// As whom the server calls it.
    user: Option<Arc<WebhookUser>>,
    agent: &'static str,
    idle: Mutex<Vec<Connection>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Client").field(&self.address()).finish()
    }
}

impl Client {
    /// Of `clientConfig`, which has been validated. The webhook is called as the user that the credentials have for it.
    pub fn new(config: &Value, credentials: &Credentials) -> Self {
        let service = &config["service"];
        let (host, port, path, service) = if service.is_object() {
            let name = text(service, &["name"]).to_owned();
            let namespace = text(service, &["namespace"]).to_owned();
            let port = service["port"].as_u64().and_then(|it| it.try_into().ok());
            let host = format!("{name}.{namespace}.svc");
            let path = text(service, &["path"]).to_owned();
            (host, port, path, Some((namespace, name)))
        } else {
            // An invalid URL is reported when it is called.
            let uri: Uri = text(config, &["url"]).parse().unwrap_or_default();
            let host = uri.host().unwrap_or_default().to_owned();
            (host, uri.port_u16(), uri.path().to_owned(), None)
        };
        let bundle = base64::engine::general_purpose::STANDARD
            .decode(text(config, &["caBundle"]))
            .unwrap_or_default();
        let port = port.unwrap_or(PORT);
        Client {
            user: credentials.user(&format!("{host}:{port}")),
            server_name: host.clone(),
            host,
            port,
            path: if path.starts_with('/') {
                path
            } else {
                format!("/{path}")
            },
            service,
            tls: remote::tls(&bundle, None).map(Some),
            bundle,
            agent: "kube-apiserver-admission",
            idle: Mutex::default(),
        }
    }

    fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The headers that prove the server to the webhook.
    ///
    /// # Errors
    /// They cannot be made: a file cannot be read.
    pub fn headers(&self) -> Result<HeaderMap, String> {
        let headers = self.user.as_ref().map(|user| user.headers());
        Ok(headers.transpose()?.unwrap_or_default())
    }

    /// Sends a review with these headers and reads the answer.
    ///
    /// # Errors
    /// The error, with Go's wording if available.
    pub async fn post(
        &self,
        backend: &dyn Backend,
        review: &Value,
        timeout: std::time::Duration,
        headers: &HeaderMap,
    ) -> Result<Value, String> {
        let timeout = crate::limits::for_call(timeout);
        let target = format!("{}?timeout={}s", self.path, timeout.as_secs());
        let shown = match (&self.service, self.port) {
            (None, PORT) => format!("https://{}{target}", self.host),
            _ => format!("https://{}{target}", self.address()),
        };
        let failed = |why: &dyn std::fmt::Display| format!("Post \"{shown}\": {why}");
        let body = Bytes::from(review.to_string());
        let exchange = async {
            let (code, body) = self
                .exchange(backend, &target, headers, body)
                .await
                .map_err(|it| failed(&it.text))?;
            answer(code, &body)
        };
        tokio::time::timeout(timeout, exchange)
            .await
            .unwrap_or_else(|_| Err(failed(&"context deadline exceeded")))
    }

    async fn exchange(
        &self,
        backend: &dyn Backend,
        target: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<(u16, Bytes), CallError> {
        // One that waits may have been closed meanwhile: then the webhook has not seen the request.
        loop {
            let waiting = self.idle.lock().pop();
            let Some(mut connection) = waiting else { break };
            if connection.ready().await.is_err() {
                continue;
            }
            match self.send(connection, target, headers, body.clone()).await {
                Err(error) if error.is_canceled() || error.is_closed() => {}
                outcome => return outcome.map_err(CallError::from),
            }
        }
        let connection = self.connect(backend).await?;
        let outcome = self.send(connection, target, headers, body).await;
        outcome.map_err(CallError::from)
    }

    async fn send(
        &self,
        mut connection: Connection,
        target: &str,
        proof: &HeaderMap,
        body: Bytes,
    ) -> Result<(u16, Bytes), hyper::Error> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = http::Method::POST;
        // The parts were read out of a URI, or are a path that has been validated.
        *request.uri_mut() = target.parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.clone_from(proof);
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        let accepted = HeaderValue::from_static("application/json, */*");
        headers.insert(header::ACCEPT, accepted);
        headers.insert(header::USER_AGENT, HeaderValue::from_static(self.agent));
        if let Ok(host) = HeaderValue::from_str(&self.address()) {
            headers.insert(header::HOST, host);
        }
        let response = connection.send_request(request).await?;
        let code = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        let Ok(body) = body else {
            // Larger than any object could be, or incomplete: no valid answer.
            return Ok((code, Bytes::new()));
        };
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
        Ok((code, body.to_bytes()))
    }

    async fn connect(&self, backend: &dyn Backend) -> Result<Connection, String> {
        let identity = self.user.as_ref().map(|user| user.identity());
        let tls = match identity.transpose()?.flatten() {
            Some(identity) => Some(remote::tls(&self.bundle, Some(&identity))?),
            None => self.tls.clone()?,
        };
        let (host, port, reach) = match &self.service {
            Some((namespace, name)) => {
                remote::endpoint(backend, namespace, name, self.port).await?
            }
            // A user that may configure webhooks may use one on the server's host; its certificate proves what it is.
            None => {
                let host = self.host.trim_matches(['[', ']']).to_owned();
                (host, self.port, Reach::Host)
            }
        };
        let stream = dial::connect(&host, port, reach).await.map_err(|error| {
            format!("dial tcp {host}:{port}: connect: {}", remote::in_go(&error))
        })?;
        let Some(tls) = tls else {
            return speak(stream).await;
        };
        let name = self.server_name.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(tls)
            .connect(name, stream)
            .await
            .map_err(|error| remote::in_go(&error))?;
        speak(stream).await
    }
}

/// Why a call got no answer.
struct CallError {
    text: String,
    /// The webhook has closed the connection: it may be about to start.
    is_reset: bool,
}

impl From<String> for CallError {
    fn from(text: String) -> Self {
        CallError {
            text,
            is_reset: false,
        }
    }
}

impl From<hyper::Error> for CallError {
    fn from(error: hyper::Error) -> Self {
        let source = std::error::Error::source(&error);
        let source = source.and_then(|it| it.downcast_ref::<std::io::Error>());
        CallError {
            is_reset: source.is_some_and(|it| it.kind() == std::io::ErrorKind::ConnectionReset),
            text: error.to_string(),
        }
    }
}

/// Begins HTTP on a stream.
async fn speak<S>(stream: S) -> Result<Connection, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = head::handshake(&Builder::new(), stream)
        .await
        .map_err(|error| error.to_string())?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to a webhook ended");
        }
    });
    Ok(sender)
}

/// The part of a text of a webhook that errors contain: the webhook can write texts of any length.
pub(crate) fn excerpt(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_EXCERPT)]
}

/// The body of a response, or an error for its status code.
fn answer(code: u16, body: &[u8]) -> Result<Value, String> {
    if let Some(error) = refusal(code, body) {
        return Err(error);
    }
    serde_json::from_slice(body)
        .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))
}

/// The error in a response, if its status code is one.
fn refusal(code: u16, body: &[u8]) -> Option<String> {
    if (200..=206).contains(&code) {
        return None;
    }
    let status = serde_json::from_slice::<Value>(body).unwrap_or_default();
    if status["kind"] == "Status" {
        let message = text(&status, &["message"]);
        return Some(excerpt(message).to_owned());
    }
    let beginning = &body[..body.len().min(MAX_EXCERPT)];
    let said = String::from_utf8_lossy(beginning).trim().to_owned();
    let said = if said.is_empty() {
        "unknown".to_owned()
    } else {
        said
    };
    Some(match code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => said,
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the \
                request"
            .to_owned(),
        500.. => format!("an error on the server ({said:?}) has prevented the request from succeeding"),
        _ => format!("the server responded with the status code {code} but did not return more information"),
    })
}

#[cfg(test)]
mod tests {
    use super::{MAX_EXCERPT, answer};

    /// The whole answer, up to 3 MiB, was told to the client and logged.
    #[test]
    fn regression_an_answer_with_a_long_error_is_told_in_part() {
        let text = "é".repeat(1 << 20);
        let status = serde_json::json!({"kind": "Status", "message": text}).to_string();
        for (code, body) in [(403, &text), (500, &text), (403, &status)] {
            let error = answer(code, body.as_bytes()).unwrap_err();
            assert!(error.len() < MAX_EXCERPT + 100, "{code}: {}", error.len());
        }
    }
}
