//! A read-only web page about the devices of a cluster, and the server behind it.
//!
//! The page (`web/` in the repository, built and embedded) shows every device as a tile, pods that wait for devices,
//! the life of claims, and utilisation over time. It lists and watches through this server, which calls the API server
//! with the permissions of the reader: those of a kubeconfig ([`Login::Link`]), or those of the bearer token that the
//! page sends ([`Login::Token`]).
//!
//! A browser runs pages of other sites beside this one, so the server is built for hostile requests:
//!
//! - There is no proxy. The page names one of five [`Kind`]s and no path, and of its input only a checked namespace,
//!   name, resource version and continue token become part of a request to the API server. Secrets, exec and writes
//!   cannot be requested.
//! - [`guard`] rejects foreign Host and Origin headers, requests of other sites, and requests without the cookie or the
//!   token. `page` sends a Content-Security-Policy that permits this server's own files only.
//! - Of pods, only what the page shows leaves the server ([`Kind::Pods`]): no environment, no command, no annotation.
//! - Requests, bodies, lines, connections and streams are bounded, and every wait has a deadline.

#![forbid(unsafe_code)]

mod answer;
mod api;
mod assets;
mod classes;
mod filter;
pub mod guard;
mod kind;
mod list;
mod query;
mod serve;
mod upstream;
mod watch;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::Semaphore;

pub use answer::Body;
pub use guard::Login;
pub use kind::Kind;
pub use serve::{serve, serve_tls};

use guard::Guard;
use kind::Versions;

/// Explains why pods have no devices, with the permissions of `client`: one answer for each pod, given as namespace and
/// name.
///
/// A function of the caller, because the answer comes from the scheduler, which is not a dependency of this crate.
pub type Explain = Arc<
    dyn Fn(kube::Client, Vec<(String, String)>) -> BoxFuture<'static, Result<Vec<Value>, String>>
        + Send
        + Sync,
>;

/// Explanations under way at once: each reads the whole cluster.
const EXPLANATIONS: usize = 2;
/// Lists and filters under way at once: each holds pages of objects in memory.
const READS: usize = 8;
/// Streams of watches at once: a page has one.
const STREAMS: usize = 64;

/// What a dashboard needs to serve.
pub struct Config {
    /// How readers authenticate.
    pub login: Login,
    /// Host names of the server, as in the Host header: `127.0.0.1:4000`. Requests for other names are rejected, so
    /// that a page of another site cannot reach the server by its own name (DNS rebinding).
    pub hosts: Vec<String>,
    /// The folder of the page for [`Login::Token`], with a slash at both ends; [`Login::Link`] has a random one.
    pub path: &'static str,
    /// A client of the API server: with the reader's credentials for [`Login::Link`], without any for [`Login::Token`].
    pub client: kube::Client,
    /// The explainer.
    pub explain: Explain,
    /// The name of the cluster as the page shows it.
    pub cluster: String,
}

/// The state that all connections share.
pub struct Dashboard {
    guard: Guard,
    client: kube::Client,
    explain: Explain,
    cluster: String,
    versions: Versions,
    explanations: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

impl Dashboard {
    /// A dashboard that is ready to serve.
    pub fn new(config: Config) -> Self {
        Self {
            guard: Guard::new(config.login, config.hosts, config.path),
            client: config.client,
            explain: config.explain,
            cluster: config.cluster,
            versions: Versions::default(),
            explanations: Arc::new(Semaphore::new(EXPLANATIONS)),
            reads: Arc::new(Semaphore::new(READS)),
            streams: Arc::new(Semaphore::new(STREAMS)),
        }
    }

    /// The path and query of the login link; just the folder if readers have tokens of the cluster.
    pub fn link(&self) -> String {
        self.guard.link()
    }

    /// Answers a request of another server's connection, which bounds its head and its connections.
    pub async fn answer<B>(self: Arc<Self>, request: http::Request<B>) -> http::Response<Body>
    where
        B: http_body::Body<Data = bytes::Bytes> + Send,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        api::answer(self, request).await
    }
}
