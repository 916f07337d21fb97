//! The server as clients see it, in process and over TLS.

mod api {
    pub mod access;
    pub mod answers;
    pub mod authorizers;
    pub mod behind_tls;
    pub mod bootstrap;
    pub mod certificates;
    pub mod clients;
    pub mod conformance;
    pub mod debug_flags;
    pub mod definitions;
    pub mod extensions;
    pub mod families;
    pub mod faults;
    pub mod hostile;
    pub mod impersonation;
    pub mod inside;
    pub mod issuers;
    pub mod limits;
    pub mod manifests;
    pub mod media;
    pub mod metrics;
    pub mod plugins;
    pub mod policies;
    pub mod policy_versions;
    pub mod raw;
    pub mod release_37;
    pub mod remote;
    pub mod webhooks;
    pub mod writes;
}

use std::sync::Arc;

use allot_apiserver::identity::User;
use allot_apiserver::{Config, Server};
use allot_store::{Embedded, Options};
use http_body_util::{BodyExt, Full};
use serde_json::Value;

/// A server with this configuration, whose store is empty.
pub async fn with_config(config: Config) -> Server {
    let backend = Arc::new(Embedded::in_memory(Options::default()));
    let server = Server::new(backend, config);
    server.bootstrap().await.unwrap();
    server
}

/// Sends a request as a user; returns code and body.
pub async fn send(
    server: &Server,
    user: User,
    method: &str,
    path: &str,
    kind: &str,
    body: &[u8],
) -> (u16, Value) {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(Full::new(bytes::Bytes::copy_from_slice(body)))
        .unwrap();
    let response = server.handle(request, Some(user)).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let value = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into()));
    (code, value)
}

/// Sends JSON as the administrator.
pub async fn admin(server: &Server, method: &str, path: &str, body: Value) -> (u16, Value) {
    send_json(server, User::admin(), method, path, &body).await
}

/// Sends JSON as a user.
pub async fn send_json(
    server: &Server,
    user: User,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let text = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let kind = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    send(server, user, method, path, kind, &text).await
}
