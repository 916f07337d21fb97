//! Connections to the server: HTTP/2 where it speaks it.

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
        let config = component::config(kubeconfig).await?;
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
        let at = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let client = &self.plain[at % self.plain.len()];
        let response = request(client, method, path, content_type, body).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }
}

/// Sends a request; the body of the answer is still to come.
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

/// A client with a connection of its own, which is open when this returns: requests that come at the same time would
/// otherwise open one each.
async fn connect(config: &kube::Config) -> anyhow::Result<kube::Client> {
    let client = component::connect(config.clone(), "allot-bench", Watches::Beside)?;
    let response = request(&client, Method::GET, "/version", "", Vec::new())
        .await
        .context("the server does not answer")?;
    response.into_body().collect().await?;
    Ok(client)
}
