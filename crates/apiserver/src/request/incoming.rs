//! A request before it is handled.

use std::sync::Arc;

use http::{HeaderMap, Method};
use tokio::time::Instant;

use super::{Annotations, Query, RequestInfo, Warnings};
use crate::identity::User;

/// Whether the request is long-running, as defined by kube-apiserver.
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
    /// The request target as sent by the client.
    pub uri: http::Uri,
    /// The headers, without the credentials of the user.
    pub headers: HeaderMap,
    /// Query parameters.
    pub query: Query,
    /// The request attributes: verb, resource and object.
    pub info: Arc<RequestInfo>,
    /// The authenticated user.
    pub user: User,
    /// The connection upgrade, for exec and similar subresources.
    pub upgrade: parking_lot::Mutex<Option<hyper::upgrade::OnUpgrade>>,
    /// Warnings for the client.
    pub warnings: Warnings,
    /// What admission notes for the audit log.
    pub annotations: Annotations,
    /// Whether the request comes from a component in this process.
    pub in_process: bool,
    /// The deadline of the response, unless the request is long-running.
    pub deadline: Option<Instant>,
    /// The remote address of the connection, if the request came over one.
    pub peer: Option<std::net::SocketAddr>,
}
