//! An API server in this process, on this thread, in memory.

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use anyhow::ensure;
use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use crate::cmd::bench::api::objects::Kind;

pub const JSON: &str = "application/json";
pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

/// The server and the thread's runtime.
pub struct Api {
    runtime: tokio::runtime::Runtime,
    pub server: Server,
    user: User,
}

impl Api {
    /// A server with the objects of a new cluster, and the service account that pods use.
    pub fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let server = runtime
            .block_on(Server::in_memory())
            .map_err(anyhow::Error::from)?;
        let api = Api {
            runtime,
            server,
            user: User::admin(),
        };
        let account = json!({"metadata": {"name": "default"}});
        api.create("/api/v1/namespaces/default/serviceaccounts", &account)?;
        Ok(api)
    }

    /// Sends a request and reads its answer, which must be a success.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: &Value,
    ) -> anyhow::Result<Bytes> {
        let text = match body {
            Value::Null => Bytes::new(),
            body => body.to_string().into(),
        };
        let kind = if text.is_empty() {
            ACCEPT
        } else {
            CONTENT_TYPE
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(USER_AGENT, "bench")
            .header(kind, media)
            .body(Full::new(text))?;
        let answer = async {
            let response = self.server.handle(request, Some(self.user.clone())).await;
            let code = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            anyhow::Ok((code, body))
        };
        let (code, body) = self.runtime.block_on(answer)?;
        ensure!(
            code.is_success(),
            "{method} {path}: {code}: {}",
            String::from_utf8_lossy(&body)
        );
        Ok(body)
    }

    pub fn create(&self, collection: &str, object: &Value) -> anyhow::Result<()> {
        self.send("POST", collection, JSON, object).map(drop)
    }

    pub fn get(&self, path: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_slice(&self.send(
            "GET",
            path,
            JSON,
            &Value::Null,
        )?)?)
    }

    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

/// The path of the pod with this number.
pub fn pod_path(number: usize) -> String {
    format!("{PODS}/{}", Kind::name_of(number))
}

/// The status of an allocated claim.
pub fn allocated(number: usize) -> Value {
    json!({"status": {
        "allocation": {
            "devices": {"results": [{
                "request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": format!("gpu-{number}"),
            }]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{
                "key": "metadata.name", "operator": "In", "values": ["node-1"],
            }]}]},
        },
        "reservedFor": [{
            "resource": "pods", "name": Kind::name_of(number), "uid": format!("11111111-1111-4111-8111-{number:012}"),
        }],
    }})
}
