//! Documents of issuers, over HTTPS: bounded in size and in time, and from the address that is named alone, as no redirect is
//! followed.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use allot_apimachinery::quote::quote;
use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1::Builder;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use crate::dial::{self, Reach, head};
use crate::remote;

/// For all of an answer, as upstream.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The size of a document in bytes.
const LARGEST: usize = 1 << 20;
const PORT: u16 = 443;

/// The document at this URL.
///
/// # Errors
/// Why there is none, in Go's words where it has them.
pub(super) async fn get(tls: &Arc<ClientConfig>, url: &str) -> Result<Bytes, String> {
    match ask(tls, url, "").await? {
        (StatusCode::OK, document) => Ok(document),
        (code, _) => Err(failed(url, &code)),
    }
}

/// The token with claims at this URL, which wants to see another token unless that is empty.
///
/// # Errors
/// As for [`get`].
pub(super) async fn claims(
    tls: &Arc<ClientConfig>,
    url: &str,
    access_token: &str,
) -> Result<Bytes, String> {
    let (code, token) = ask(tls, url, access_token).await?;
    // As upstream: up to 226 (IM Used).
    match code.as_u16() {
        200..=226 => Ok(token),
        _ => Err(format!("error while getting distributed claim JWT: {code}")),
    }
}

fn failed(url: &str, why: &dyn Display) -> String {
    format!("Get {}: {why}", quote(url))
}

async fn ask(
    tls: &Arc<ClientConfig>,
    url: &str,
    access_token: &str,
) -> Result<(StatusCode, Bytes), String> {
    match tokio::time::timeout(TIMEOUT, exchange(tls, url, access_token)).await {
        Ok(answer) => answer.map_err(|why| failed(url, &why)),
        Err(_) => Err(failed(url, &"context deadline exceeded")),
    }
}

async fn exchange(
    tls: &Arc<ClientConfig>,
    url: &str,
    access_token: &str,
) -> Result<(StatusCode, Bytes), String> {
    let uri: Uri = url.parse().map_err(said)?;
    if uri.scheme_str() != Some("https") {
        return Err("URL scheme must be https".to_owned());
    }
    let authority = uri.authority().ok_or("no Host in request URL")?;
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let port = authority.port_u16().unwrap_or(PORT);
    // The administrator has named the issuer, or the issuer the place, and its certificate proves what it is.
    let stream = dial::connect(&host, port, Reach::Host).await;
    let stream = stream
        .map_err(|error| format!("dial tcp {host}:{port}: connect: {}", remote::in_go(&error)))?;
    let name = ServerName::try_from(host).map_err(said)?;
    let stream = TlsConnector::from(Arc::clone(tls))
        .connect(name, stream)
        .await;
    let stream = stream.map_err(|error| remote::in_go(&error))?;
    let (mut sender, connection) = head::handshake(&Builder::new(), stream)
        .await
        .map_err(said)?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to an issuer of tokens ended");
        }
    }));
    let authority = authority.as_str();
    let authority = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let path = uri.path_and_query().map_or("/", |it| it.as_str());
    let mut request = Request::get(path)
        .header(header::HOST, authority)
        .header(header::USER_AGENT, "allot");
    request = match access_token {
        "" => request.header(header::ACCEPT, "application/json"),
        token => {
            let mut credentials = HeaderValue::try_from(format!("Bearer {token}")).map_err(said)?;
            credentials.set_sensitive(true);
            request.header(header::AUTHORIZATION, credentials)
        }
    };
    let request = request.body(Empty::<Bytes>::new());
    let response = sender
        .send_request(request.map_err(said)?)
        .await
        .map_err(said)?;
    let code = response.status();
    if !code.is_success() {
        return Ok((code, Bytes::new()));
    }
    let body = Limited::new(response.into_body(), LARGEST).collect().await;
    let body = body.map_err(|error| format!("unable to read response body: {error}"))?;
    Ok((code, body.to_bytes()))
}

fn said(error: impl Display) -> String {
    error.to_string()
}
