//! A request on its way to its handler.

use http::{HeaderMap, Method};
use tokio::time::Instant;

use super::{Query, RequestInfo, Warnings};
use crate::identity::User;

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
    /// The other end of its connection, if it has one.
    pub peer: Option<std::net::SocketAddr>,
}
