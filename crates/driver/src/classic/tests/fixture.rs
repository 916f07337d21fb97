//! The fixtures of the tests.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use allot_apiserver::Server;
use allot_apiserver::config::Config;
use allot_apiserver::identity::User;
use allot_apiserver::registry::RuntimeConfig;
use allot_model::features::{Features, Release};
use allot_store::Embedded;
use futures::future::BoxFuture;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::{self, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::super::*;

pub const DRIVER: &str = "cats.example.com";

/// Waits are bounded by this; they end as soon as the condition holds.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn is_null(value: &Value) -> bool {
    value.is_null()
}

/// What there is to allocate, and what was asked of it.
#[derive(Default)]
pub struct Hardware {
    /// Node by UID of the claim.
    allocated: Mutex<HashMap<String, String>>,
    refused: Mutex<Vec<String>>,
    /// Nodes that were asked about.
    asked: Mutex<Vec<String>>,
    held: Arc<tokio::sync::Mutex<()>>,
    changed: Notify,
}

impl Hardware {
    pub fn driver(self: &Arc<Self>) -> Cats {
        Cats(Arc::clone(self))
    }

    pub fn count(&self) -> usize {
        self.allocated.lock().len()
    }

    pub fn on(&self, node: &str) -> usize {
        self.allocated
            .lock()
            .values()
            .filter(|other| *other == node)
            .count()
    }

    pub fn has(&self, uid: &str) -> bool {
        self.allocated.lock().contains_key(uid)
    }

    pub fn refuse(&self, node: &str) {
        self.refused.lock().push(node.to_owned());
    }

    /// Allocations take until the guard is dropped.
    pub async fn hold(&self) -> tokio::sync::OwnedMutexGuard<()> {
        Arc::clone(&self.held).lock_owned().await
    }

    /// Waits until the driver was asked about a node.
    pub async fn until_asked(&self, node: &str) {
        let asked = async {
            loop {
                let changed = self.changed.notified();
                if self.asked.lock().iter().any(|other| other == node) {
                    return;
                }
                let _ = tokio::time::timeout(Duration::from_millis(20), changed).await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("asked");
    }
}

/// A driver of cats.
pub struct Cats(Arc<Hardware>);

impl Driver for Cats {
    type ClassParameters = ();
    type ClaimParameters = String;

    async fn class_parameters(&self, _: &Class) -> Result<(), Failure> {
        Ok(())
    }

    async fn claim_parameters(&self, _: &Claim, _: &Class, _: &()) -> Result<String, Failure> {
        Ok("tabby".into())
    }

    async fn allocate(
        &self,
        claims: &[Wanted<Self>],
        node: Option<&str>,
    ) -> Vec<Result<Allocation, Failure>> {
        let _held = self.0.held.lock().await;
        let node = node.unwrap_or("n1");
        let one = |one: &Wanted<Self>| {
            let uid = one.claim.uid().to_owned();
            self.0.allocated.lock().insert(uid, node.to_owned());
            Ok(Allocation::opaque(DRIVER, &one.claim_parameters).on_node(node))
        };
        claims.iter().map(one).collect()
    }

    async fn deallocate(&self, claim: &Claim) -> Result<(), Failure> {
        self.0.allocated.lock().remove(claim.uid());
        Ok(())
    }

    async fn unsuitable_nodes(
        &self,
        _: &Pod,
        claims: &[Wanted<Self>],
        nodes: &[String],
    ) -> Result<Vec<Vec<String>>, Failure> {
        self.0.asked.lock().extend_from_slice(nodes);
        self.0.changed.notify_waiters();
        let refused = self.0.refused.lock();
        let unsuitable = nodes.iter().filter(|node| refused.contains(node));
        Ok(vec![unsuitable.cloned().collect(); claims.len()])
    }
}

/// A running controller, like a separate process: when it is killed nothing of it continues.
pub struct Running {
    pub stop: CancellationToken,
    task: JoinHandle<Result<(), super::super::Error>>,
    runtime: Option<Runtime>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Running {
    pub async fn stop(mut self) {
        self.stop.cancel();
        let ended = (&mut self.task).await;
        ended.expect("no panic").expect("it ran");
    }

    /// Waits for an end that was caused elsewhere.
    pub async fn ended(&mut self) {
        tokio::time::timeout(PATIENCE, self.stop.cancelled())
            .await
            .expect("killed");
        self.end().await;
    }

    pub async fn kill(mut self) {
        self.end().await;
    }

    /// Waits for its threads: a task that is only aborted may be in the middle of something, and finish it.
    async fn end(&mut self) {
        let runtime = self.runtime.take();
        let ended = tokio::task::spawn_blocking(|| drop(runtime));
        ended.await.expect("no panic");
    }
}

/// A client that stops at a certain write to a claim.
#[derive(Clone)]
struct Fatal {
    client: Client,
    left: Arc<Mutex<usize>>,
    after: bool,
    killed: CancellationToken,
}

impl tower::Service<http::Request<Body>> for Fatal {
    type Response = http::Response<Body>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let write =
                request.method() != http::Method::GET && request.uri().path().contains("claims");
            let fatal = write && {
                let mut left = this.left.lock();
                let fatal = *left == 0;
                *left = left.wrapping_sub(1);
                fatal
            };
            if fatal && !this.after {
                this.killed.cancel();
                return std::future::pending().await;
            }
            let answer = this.client.send(request).await;
            if fatal {
                this.killed.cancel();
                return std::future::pending().await;
            }
            Ok(answer?)
        })
    }
}

pub struct Fixture {
    pub client: Client,
    pub hardware: Arc<Hardware>,
    version: &'static str,
    _server: Server,
}

impl Fixture {
    /// An API server of a release, with its classic kinds and a class.
    pub async fn start(minor: u8) -> Self {
        let version = if minor == 26 { "v1alpha1" } else { "v1alpha2" };
        let fixture = Self::bare(minor, version).await;
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        fixture
            .post("/api/v1/namespaces/default/serviceaccounts", account)
            .await;
        fixture
            .create("resourceclasses", "cats", json!({"driverName": DRIVER}))
            .await;
        fixture
    }

    pub async fn bare(minor: u8, version: &'static str) -> Self {
        let backend = Arc::new(Embedded::in_memory(allot_store::Options::default()));
        let mut features = Features::of(Release::new(minor));
        if minor < 34 {
            features
                .set("DynamicResourceAllocation=true")
                .expect("a gate");
        }
        let versions = match version {
            "" => String::new(),
            version => format!("resource.k8s.io/{version}=true"),
        };
        let config = Config {
            runtime_config: RuntimeConfig::parse(&versions).expect("a version"),
            features,
            ..Config::default()
        };
        let server = Server::new(backend, config);
        server.bootstrap().await.expect("a server");
        Self {
            client: Client::new(server.client_service(User::admin()), "default"),
            hardware: Arc::default(),
            version,
            _server: server,
        }
    }

    /// Starts a controller that ends with `shutdown`.
    fn run(&self, client: Client, stop: CancellationToken, shutdown: CancellationToken) -> Running {
        let controller = Controller::new(DRIVER, self.hardware.driver(), client);
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let runtime = runtime.expect("threads");
        let task = runtime.spawn(controller.run(shutdown));
        let runtime = Some(runtime);
        Running {
            stop,
            task,
            runtime,
        }
    }

    pub fn controller(&self) -> Running {
        let stop = CancellationToken::new();
        self.run(self.client.clone(), stop.clone(), stop)
    }

    /// A controller that is killed at its n-th write to a claim, before or after the write is carried out.
    pub fn killed_at(&self, write: usize, after: bool) -> Running {
        let killed = CancellationToken::new();
        let fatal = Fatal {
            client: self.client.clone(),
            left: Arc::new(Mutex::new(write)),
            after,
            killed: killed.clone(),
        };
        let client = Client::new(fatal, "default");
        self.run(client, killed, CancellationToken::new())
    }

    fn path(&self, plural: &str, name: &str) -> String {
        let version = self.version;
        match plural {
            "pods" => format!("/api/v1/namespaces/default/pods/{name}"),
            "resourceclasses" => format!("/apis/resource.k8s.io/{version}/{plural}/{name}"),
            _ => format!("/apis/resource.k8s.io/{version}/namespaces/default/{plural}/{name}"),
        }
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, kube::Error> {
        let content = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path.trim_end_matches('/'))
            .header("content-type", content)
            .body(
                body.map(|body| body.to_string().into_bytes())
                    .unwrap_or_default(),
            );
        self.client.request(request.expect("a request")).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Value {
        let created = self.call("POST", path, Some(body)).await;
        created.unwrap_or_else(|error| panic!("post {path}: {error}"))
    }

    pub async fn create(&self, plural: &str, name: &str, mut object: Value) -> Value {
        let kind = match plural {
            "resourceclasses" => "ResourceClass",
            "resourceclaims" => "ResourceClaim",
            "podschedulings" => "PodScheduling",
            _ => "PodSchedulingContext",
        };
        object["apiVersion"] = json!(format!("resource.k8s.io/{}", self.version));
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!(name);
        self.post(&self.path(plural, ""), object).await
    }

    pub async fn get(&self, plural: &str, name: &str) -> Value {
        match self.call("GET", &self.path(plural, name), None).await {
            Ok(value) => value,
            Err(kube::Error::Api(status)) if status.code == 404 => Value::Null,
            Err(error) => panic!("get {plural} {name}: {error}"),
        }
    }

    pub async fn get_claim(&self, name: &str) -> Value {
        self.get("resourceclaims", name).await
    }

    pub async fn until(&self, plural: &str, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let value = self.get(plural, name).await;
            if holds(&value) {
                return value;
            }
            assert!(start.elapsed() < PATIENCE, "{plural} {name} is {value:#}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn until_claim(&self, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
        self.until("resourceclaims", name, holds).await
    }

    pub async fn until_event(&self, text: &str) {
        let start = Instant::now();
        loop {
            let events = self
                .call("GET", "/api/v1/namespaces/default/events", None)
                .await;
            let events = events.expect("events");
            let mut items = events["items"].as_array().into_iter().flatten();
            if items.any(|event| event["reason"] == "Failed" && event["message"] == text) {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "no event {text:?} in {events:#}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn try_delete(&self, plural: &str, name: &str) {
        let options = json!({"gracePeriodSeconds": 0});
        let _ = self
            .call("DELETE", &self.path(plural, name), Some(options))
            .await;
    }

    pub async fn delete(&self, plural: &str, name: &str) {
        let options = json!({"gracePeriodSeconds": 0});
        let deleted = self
            .call("DELETE", &self.path(plural, name), Some(options))
            .await;
        deleted.unwrap_or_else(|error| panic!("delete {plural} {name}: {error}"));
    }

    pub async fn patch(&self, plural: &str, name: &str, patch: Value) {
        let patched = self
            .call("PATCH", &self.path(plural, name), Some(patch))
            .await;
        patched.unwrap_or_else(|error| panic!("patch {plural} {name}: {error}"));
    }

    pub async fn try_patch_status(&self, plural: &str, name: &str, patch: Value) -> bool {
        let path = format!("{}/status", self.path(plural, name));
        self.call("PATCH", &path, Some(patch)).await.is_ok()
    }

    /// Replaces the status of a claim, as it is now.
    pub async fn put_status(&self, name: &str, status: &Value) {
        let start = Instant::now();
        loop {
            let mut claim = self.get_claim(name).await;
            claim["status"] = status.clone();
            let path = format!("{}/status", self.path("resourceclaims", name));
            match self.call("PUT", &path, Some(claim)).await {
                Ok(_) => return,
                Err(kube::Error::Api(error)) if error.code == 409 => {}
                Err(error) => panic!("put status of {name}: {error}"),
            }
            assert!(start.elapsed() < PATIENCE, "conflicts without end");
        }
    }

    pub async fn owner(&self, pod: &str) -> Value {
        let uid = self.get("pods", pod).await["metadata"]["uid"].clone();
        json!([{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid, "controller": true, "blockOwnerDeletion": true}])
    }

    /// A pod with its own claims, of the same names.
    pub async fn pod(&self, name: &str, claims: &[&str]) {
        let entry =
            |claim: &&str| json!({"name": claim, "source": {"resourceClaimTemplateName": "t"}});
        let entries: Vec<Value> = claims.iter().map(entry).collect();
        let spec =
            json!({"containers": [{"name": "c", "image": "none"}], "resourceClaims": entries});
        let pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        self.post("/api/v1/namespaces/default/pods", pod).await;
    }

    /// A claim of the class `cats`, owned by a pod unless its name is empty.
    pub async fn claim(&self, name: &str, pod: &str, mode: &str) {
        let mut claim = json!({"spec": {"resourceClassName": "cats", "allocationMode": mode}});
        if !pod.is_empty() {
            claim["metadata"]["ownerReferences"] = self.owner(pod).await;
        }
        self.create("resourceclaims", name, claim).await;
    }

    pub fn negotiations(&self) -> &'static str {
        match self.version {
            "v1alpha1" => "podschedulings",
            _ => "podschedulingcontexts",
        }
    }

    /// What the scheduler writes.
    pub async fn negotiate(&self, pod: &str, spec: Value) {
        let object = json!({"metadata": {"ownerReferences": self.owner(pod).await}, "spec": spec});
        self.create(self.negotiations(), pod, object).await;
    }

    /// The scheduler does not want an allocation now.
    pub async fn deselect(&self, pod: &str) {
        self.patch(
            self.negotiations(),
            pod,
            json!({"spec": {"selectedNode": null}}),
        )
        .await;
    }
}
