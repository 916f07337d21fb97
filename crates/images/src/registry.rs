//! The pull half of the OCI distribution protocol, on one server.
//!
//! The server is hostile: every body is bounded, every wait has a deadline, redirects are counted and lose credentials,
//! and of the server's text only the error codes get into messages.

mod auth;
mod body;
mod reach;

use std::collections::HashMap;
use std::sync::Arc;

use allot_certificates::Trust;
use allot_certificates::roots::Roots;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, RANGE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use url::Url;

use crate::keyring::Credential;
use crate::manifest::{ACCEPTED, Descriptor};
use crate::registries::Endpoint;
use crate::{Digest, Error, Limits, Result, Timeouts};
pub use body::Body;
use reach::{Resolver, leads_here, names_metadata};

const AGENT: &str = concat!("allot/", env!("CARGO_PKG_VERSION"));
const MAX_REDIRECTS: usize = 5;
/// The longest head of an answer, and what is read at once: a registry can send informational answers without end, and as long
/// as hyper finds one in what has been read, a worker of the runtime does nothing else.
const LARGEST_HEAD: usize = 64 << 10;

type Connector = hyper_rustls::HttpsConnector<HttpConnector<Resolver>>;
type Http = Client<Connector, Empty<Bytes>>;

/// One server with one set of credentials, for one pull.
pub struct Registry {
    endpoint: Endpoint,
    /// The registry that is mirrored, for a mirror.
    namespace: Option<String>,
    http: Http,
    limits: Limits,
    timeouts: Timeouts,
    credential: Option<Credential>,
    /// Authorization by scope, once the server required it.
    tokens: tokio::sync::Mutex<HashMap<String, HeaderValue>>,
}

/// A manifest as it was sent.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The bytes of the manifest, unchanged: its digest depends on each of them.
    pub content: Bytes,
    /// Its type, from the answer's header.
    pub media_type: String,
    /// Its digest, computed.
    pub digest: Digest,
}

impl Registry {
    /// A client for a server.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the file with authorities cannot be used.
    pub fn new(
        endpoint: Endpoint,
        domain: &str,
        credential: Option<Credential>,
        limits: Limits,
        timeouts: Timeouts,
    ) -> Result<Self> {
        let own = base(&endpoint, "")
            .map_err(|error| Error::Unreachable(endpoint.authority.clone(), error.to_string()))?;
        let mut connector = HttpConnector::new_with_resolver(Resolver::new(&own));
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(timeouts.connect));
        connector.set_nodelay(true);
        let https = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls(&endpoint)?)
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .wrap_connector(connector);
        let namespace = endpoint.mirror.then(|| domain.to_owned());
        Ok(Self {
            http: Client::builder(TokioExecutor::new())
                .http1_max_buf_size(LARGEST_HEAD)
                .build(https),
            endpoint,
            namespace,
            limits,
            timeouts,
            credential,
            tokens: tokio::sync::Mutex::default(),
        })
    }

    /// The server's host and port.
    pub fn authority(&self) -> &str {
        &self.endpoint.authority
    }

    fn url(&self, path: &str) -> Result<Url> {
        let mut url = base(&self.endpoint, path).map_err(|error| self.unreachable(error))?;
        if let Some(namespace) = &self.namespace {
            url.query_pairs_mut().append_pair("ns", namespace);
        }
        Ok(url)
    }

    /// Fetches a manifest or an index by tag or digest. A digest is checked.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`], [`Error::Unauthorized`], [`Error::Unreachable`], [`Error::Timeout`], [`Error::TooLarge`],
    /// [`Error::Corrupt`].
    pub async fn manifest(&self, repository: &str, wanted: &str) -> Result<Fetched> {
        let url = self.url(&format!("{repository}/manifests/{wanted}"))?;
        let what = format!("{}/{repository}:{wanted}", self.authority());
        let response = self
            .get(url, repository, &what, Some(ACCEPTED.join(", ")), None)
            .await?;
        let media_type = response.headers().get(CONTENT_TYPE);
        let media_type = media_type
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        let media_type = media_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned();
        let mut body = Body::new(response.into_body(), self.authority(), &self.timeouts);
        let content = body.collect(self.limits.manifest).await?;
        let expected = Digest::parse(wanted).ok();
        let mut hasher = expected
            .as_ref()
            .map_or_else(crate::Hasher::sha256, Digest::hasher);
        hasher.update(&content);
        let digest = hasher.finish();
        match expected {
            Some(expected) if expected != digest => Err(Error::Corrupt {
                expected,
                actual: digest,
            }),
            _ => Ok(Fetched {
                content,
                media_type,
                digest,
            }),
        }
    }

    /// Starts to fetch a blob at an offset. The result contains the actual offset: servers may ignore the requested
    /// one.
    ///
    /// # Errors
    ///
    /// As [`Registry::manifest`].
    pub async fn blob(
        &self,
        repository: &str,
        blob: &Descriptor,
        offset: u64,
    ) -> Result<(u64, Body)> {
        let url = self.url(&format!("{repository}/blobs/{}", blob.digest))?;
        let what = format!("{}/{repository}@{}", self.authority(), blob.digest);
        let range = (offset > 0).then(|| format!("bytes={offset}-"));
        let response = self.get(url, repository, &what, None, range).await?;
        let offset = match response.status() {
            StatusCode::PARTIAL_CONTENT => offset,
            _ => 0,
        };
        Ok((
            offset,
            Body::new(response.into_body(), self.authority(), &self.timeouts),
        ))
    }

    /// Sends a request, and repeats it with authorization if the server requires it.
    async fn get(
        &self,
        url: Url,
        repository: &str,
        what: &str,
        accept: Option<String>,
        range: Option<String>,
    ) -> Result<Response<Incoming>> {
        let scope = format!("repository:{repository}:pull");
        let known = self.tokens.lock().await.get(&scope).cloned();
        let (mut response, own) = self.follow(&url, known.clone(), &accept, &range).await?;
        // The credentials are for the registry, not for another server that demands some.
        if response.status() == StatusCode::UNAUTHORIZED && own {
            // The server may speak of another scope, or the token has expired.
            let challenges = response.headers().get_all(WWW_AUTHENTICATE).iter();
            let challenges: Vec<String> = challenges
                .filter_map(|text| Some(text.to_str().ok()?.to_owned()))
                .collect();
            drop(response);
            let token = self.authorize(&challenges, &scope, what).await?;
            self.tokens.lock().await.insert(scope, token.clone());
            (response, _) = self.follow(&url, Some(token), &accept, &range).await?;
        }
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let mut body = Body::new(response.into_body(), self.authority(), &self.timeouts);
        let codes = body.error_codes().await;
        Err(match status {
            StatusCode::NOT_FOUND => Error::NotFound(what.to_owned()),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Error::Unauthorized(what.to_owned(), status_text(status, &codes))
            }
            _ => Error::Status(what.to_owned(), status_text(status, &codes)),
        })
    }

    /// Sends a request and follows redirects, which servers use for blobs. Credentials are sent only to the server
    /// itself. Returns also whether the answer is that server's.
    async fn follow(
        &self,
        url: &Url,
        authorization: Option<HeaderValue>,
        accept: &Option<String>,
        range: &Option<String>,
    ) -> Result<(Response<Incoming>, bool)> {
        let mut url = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let mut headers = Vec::new();
            let own = self.url("")?;
            let same = url.scheme() == own.scheme() && authority(&url) == authority(&own);
            if let Some(value) = authorization.clone().filter(|_| same) {
                headers.push((AUTHORIZATION, value));
            }
            for (name, value) in [(ACCEPT, accept), (RANGE, range)] {
                let value = value.as_deref().map(HeaderValue::from_str);
                if let Some(Ok(value)) = value {
                    headers.push((name, value));
                }
            }
            let response = self.send(&url, headers).await?;
            if !response.status().is_redirection() {
                return Ok((response, same));
            }
            let target = response
                .headers()
                .get(LOCATION)
                .and_then(|target| target.to_str().ok());
            let next = target.and_then(|target| url.join(target).ok());
            let next = next.ok_or_else(|| self.unreachable("it redirects to no address"))?;
            self.permit(&url, &next)?;
            url = next;
        }
        Err(self.unreachable("it redirects too often"))
    }

    /// A redirect may not take the connection's protection away, nor lead into this machine from outside.
    fn permit(&self, from: &Url, to: &Url) -> Result<()> {
        if !matches!(
            (from.scheme(), to.scheme()),
            (_, "https") | ("http", "http")
        ) {
            return Err(self.unreachable("it redirects to an address without TLS"));
        }
        if leads_here(to) && !leads_here(from) {
            return Err(self.unreachable("it redirects to an address of this machine"));
        }
        Ok(())
    }

    async fn send(
        &self,
        url: &Url,
        headers: Vec<(http::HeaderName, HeaderValue)>,
    ) -> Result<Response<Incoming>> {
        // Whatever names it: the image, a redirect or a token server.
        if names_metadata(url) {
            return Err(
                self.unreachable("requests are not sent to the address of a metadata service")
            );
        }
        let uri: Uri = url
            .as_str()
            .parse()
            .map_err(|error| self.unreachable(error))?;
        let mut request = Request::builder().method(Method::GET).uri(uri);
        request = request.header(http::header::USER_AGENT, AGENT);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request
            .body(Empty::new())
            .map_err(|error| self.unreachable(error))?;
        let deadline = self.timeouts.connect + self.timeouts.response;
        match tokio::time::timeout(deadline, self.http.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(self.unreachable(innermost(&error))),
            Err(_) => Err(Error::Timeout(
                format!("registry {} does not answer", authority(url)),
                deadline,
            )),
        }
    }

    fn unreachable(&self, reason: impl std::fmt::Display) -> Error {
        Error::Unreachable(self.endpoint.authority.clone(), reason.to_string())
    }
}

/// An address of the protocol on a server.
fn base(endpoint: &Endpoint, path: &str) -> std::result::Result<Url, url::ParseError> {
    let scheme = if endpoint.plain_http { "http" } else { "https" };
    Url::parse(&format!("{scheme}://{}/v2/{path}", endpoint.authority))
}

/// The last cause of an error, which is what the operating system or TLS said.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

fn status_text(status: StatusCode, codes: &[String]) -> String {
    match codes {
        [] => status.to_string(),
        codes => format!("{status} ({})", codes.join(", ")),
    }
}

fn tls(endpoint: &Endpoint) -> Result<rustls::ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Internal(error.to_string()))?;
    let mut roots = Roots::default();
    if let Some(file) = &endpoint.ca_file {
        let shown = file.display();
        let read = std::fs::read(file).map_err(|error| error.to_string());
        roots = read
            .and_then(|pem| Roots::read(&pem))
            .map_err(|error| Error::Config(format!("{shown}: {error}")))?;
    } else if !endpoint.plain_http {
        roots = Roots::readable(rustls_native_certs::load_native_certs().certs);
    }
    let trust = Arc::new(Trust::new(roots, provider));
    let builder = builder.dangerous().with_custom_certificate_verifier(trust);
    Ok(builder.with_no_client_auth())
}
