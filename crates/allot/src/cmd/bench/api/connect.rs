//! Connections to the server: HTTP/2 if it supports it.

use std::path::Path;

use anyhow::Context;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;

use crate::cmd::component::{self, Watches};

/// Streams on one connection: servers allow a hundred or more.
pub const STREAMS: usize = 90;
/// Connections for plain requests.
const PLAIN: usize = 2;

/// A few connections, used in turn.
pub struct Connections {
    config: kube::Config,
    plain: Vec<kube::Client>,
    next: std::sync::atomic::AtomicUsize,
}

impl Connections {
    /// Connects to the server of a kubeconfig.
    pub async fn open(kubeconfig: Option<&Path>) -> anyhow::Result<Self> {
        Self::to(component::config(kubeconfig).await?).await
    }

    async fn to(config: kube::Config) -> anyhow::Result<Self> {
        let mut plain = Vec::new();
        for _ in 0..PLAIN {
            plain.push(connect(&config).await?);
        }
        Ok(Self {
            config,
            plain,
            next: std::sync::atomic::AtomicUsize::new(0),
        })
    }

    /// The same server as another user, which has a bearer token.
    pub async fn with_token(&self, token: &str) -> anyhow::Result<Self> {
        let mut config = self.config.clone();
        config.auth_info = kube::config::AuthInfo {
            token: Some(token.to_owned().into()),
            ..kube::config::AuthInfo::default()
        };
        Self::to(config).await
    }

    /// Another connection, for up to [`STREAMS`] watches.
    pub async fn another(&self) -> anyhow::Result<kube::Client> {
        connect(&self.config).await
    }

    /// Sends a request and reads the whole answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let client = self.next();
        let response = request(&client, method, path, content_type, body).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    /// The connection whose turn it is.
    pub fn next(&self) -> kube::Client {
        let at = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.plain[at % self.plain.len()].clone()
    }
}

/// Sends a request without a body and reads the whole answer.
pub async fn whole(
    client: &kube::Client,
    method: Method,
    path: &str,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let response = request(client, method, path, "", Vec::new()).await?;
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

/// Sends a request; the body of the answer is not read.
pub async fn request(
    client: &kube::Client,
    method: Method,
    path: &str,
    content_type: &str,
    body: Vec<u8>,
) -> anyhow::Result<Response<Body>> {
    let mut request = Request::builder().method(method).uri(path);
    if !body.is_empty() {
        request = request.header(http::header::CONTENT_TYPE, content_type);
    }
    Ok(client.send(request.body(Body::from(body))?).await?)
}

/// A client with a separate connection, which is open when this returns: concurrent first requests would otherwise open
/// one each.
async fn connect(config: &kube::Config) -> anyhow::Result<kube::Client> {
    let client = component::connect(config.clone(), "allot-bench", Watches::Beside)?;
    let response = request(&client, Method::GET, "/version", "", Vec::new())
        .await
        .context("the server does not answer")?;
    response.into_body().collect().await?;
    Ok(client)
}
