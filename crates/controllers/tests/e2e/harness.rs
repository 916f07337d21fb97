//! A cluster in process: API server, controllers, and hands for what a kubelet would do.

use std::sync::{Arc, Mutex};

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use allot_apiserver::registry::RuntimeConfig;
use allot_controllers::{Config, run};
use allot_model::features::{Feature, Features};
use allot_store::Embedded;
use allot_testing::wait::until;
use futures::TryStreamExt as _;
use http::{Method, Request};
use kube::Client;
use kube::api::WatchEvent;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub struct Cluster {
    pub client: Client,
    controllers: Option<(CancellationToken, JoinHandle<()>)>,
}

impl Cluster {
    /// An API server without controllers.
    pub async fn bare() -> Self {
        Self::bare_with("", Features::default()).await
    }

    /// An API server without controllers that also serves what `--runtime-config` names.
    pub async fn bare_with(runtime_config: &str, features: Features) -> Self {
        let config = allot_apiserver::Config {
            runtime_config: RuntimeConfig::parse(runtime_config).expect("versions"),
            features,
            ..allot_apiserver::Config::default()
        };
        let store = Embedded::in_memory(allot_store::Options::default());
        let server = Server::new(Arc::new(store), config);
        server.bootstrap().await.expect("a server in memory");
        let client = Client::new(server.client_service(User::admin()), "default");
        Self {
            client,
            controllers: None,
        }
    }

    /// An API server with all controllers.
    pub async fn start() -> Self {
        let mut this = Self::bare().await;
        this.start_controllers(Config::embedded());
        this
    }

    /// With all controllers and PodGroups, as a server of 1.36 with its alpha API on.
    pub async fn start_with_groups() -> Self {
        let features = Features::default()
            .with(Feature::GenericWorkload, true)
            .with(Feature::DRAWorkloadResourceClaims, true);
        let mut this = Self::bare_with("scheduling.k8s.io/v1alpha2=true", features).await;
        this.start_controllers(Config::embedded());
        this
    }

    pub fn start_controllers(&mut self, config: Config) {
        let stop = CancellationToken::new();
        let work = run(self.client.clone(), config, stop.clone());
        let task = tokio::spawn(async move { work.await.expect("controllers run") });
        self.controllers = Some((stop, task));
    }

    /// Ends the controllers in the middle of whatever they do, as kill -9 would.
    pub fn kill_controllers(&mut self) {
        if let Some((stop, task)) = self.controllers.take() {
            task.abort();
            stop.cancel();
        }
    }

    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, kube::Error> {
        let content = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = body.map(|b| b.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .body(body)
            .expect("a valid request");
        self.client.request(request).await
    }

    pub async fn create(&self, path: &str, body: Value) -> Value {
        self.call(Method::POST, path, Some(&body))
            .await
            .unwrap_or_else(|e| panic!("create in {path}: {e}"))
    }

    pub async fn get(&self, path: &str) -> Option<Value> {
        match self.call(Method::GET, path, None).await {
            Ok(value) => Some(value),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("get {path}: {error}"),
        }
    }

    pub async fn list(&self, path: &str) -> Vec<Value> {
        let list = self.get(path).await.unwrap_or_default();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    pub async fn patch(&self, path: &str, body: Value) -> Value {
        self.call(Method::PATCH, path, Some(&body))
            .await
            .unwrap_or_else(|e| panic!("patch {path}: {e}"))
    }

    pub async fn delete(&self, path: &str) {
        self.call(Method::DELETE, path, None)
            .await
            .unwrap_or_else(|e| panic!("delete {path}: {e}"));
    }

    /// Deletes with options.
    pub async fn delete_with(&self, path: &str, options: Value) {
        self.call(Method::DELETE, path, Some(&options))
            .await
            .unwrap_or_else(|e| panic!("delete {path}: {e}"));
    }

    /// Waits until the condition holds for what is at `path` (null if nothing is).
    pub async fn until(&self, path: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        until(&format!("{path} is {what}"), || async {
            let value = self.get(path).await.unwrap_or_default();
            if holds(&value) { Ok(value) } else { Err(value) }
        })
        .await
    }

    pub async fn until_gone(&self, path: &str) {
        self.until(path, "gone", Value::is_null).await;
    }

    /// Waits until the collection has that many objects.
    pub async fn until_count(&self, path: &str, count: usize) -> Vec<Value> {
        let list = self
            .until(path, &format!("{count} objects"), |l| {
                l["items"].as_array().map_or(0, Vec::len) == count
            })
            .await;
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Follows a collection from now on.
    pub async fn history(&self, path: &str) -> History {
        let list = self.get(path).await.expect("a collection");
        let version = list["metadata"]["resourceVersion"].as_str().expect("one");
        let request = Request::get(format!("{path}?watch=true&resourceVersion={version}"))
            .body(Vec::new())
            .expect("a valid request");
        let events = self.client.request_events::<Value>(request).await;
        let mut events = Box::pin(events.expect("a watch"));
        let changes = Arc::new(Mutex::new(Vec::new()));
        let seen = changes.clone();
        let task = tokio::spawn(async move {
            while let Ok(Some(event)) = events.try_next().await {
                let change = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        Change::Written(object)
                    }
                    WatchEvent::Deleted(object) => Change::Deleted(object),
                    WatchEvent::Bookmark(_) | WatchEvent::Error(_) => continue,
                };
                seen.lock().expect("no panic").push(change);
            }
        });
        History { changes, task }
    }

    pub async fn namespace(&self, name: &str) {
        self.create("/api/v1/namespaces", json!({"metadata": {"name": name}}))
            .await;
    }

    pub async fn node(&self, name: &str) {
        let node = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {
                "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
                "capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        });
        self.create("/api/v1/nodes", node.clone()).await;
        self.patch(
            &format!("/api/v1/nodes/{name}/status"),
            json!({"status": node["status"]}),
        )
        .await;
    }

    pub async fn bind(&self, namespace: &str, pod: &str, node: &str) {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/binding");
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": pod},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        self.create(&path, binding).await;
    }

    /// Reports a pod as running and ready.
    pub async fn run_pod(&self, namespace: &str, pod: &str) {
        let status = json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]});
        self.pod_status(namespace, pod, status).await;
    }

    /// Reports a pod as finished.
    pub async fn finish_pod(&self, namespace: &str, pod: &str, phase: &str) {
        self.pod_status(namespace, pod, json!({"phase": phase}))
            .await;
    }

    pub async fn pod_status(&self, namespace: &str, pod: &str, status: Value) {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/status");
        self.patch(&path, json!({"status": status})).await;
    }
}

/// Something that happened to an object.
#[derive(Debug, Clone)]
pub enum Change {
    /// It was created or changed.
    Written(Value),
    /// It was deleted.
    Deleted(Value),
}

/// What happened to the objects of a collection, in order. That one thing never came before another shows here on a
/// machine of any speed, where a look after some time shows it only on one that is fast enough.
pub struct History {
    changes: Arc<Mutex<Vec<Change>>>,
    task: JoinHandle<()>,
}

impl History {
    /// Waits until a change came, and returns how many came before it.
    pub async fn position(&self, what: &str, is: impl Fn(&Change) -> bool) -> usize {
        until(what, || async {
            let changes = self.changes.lock().expect("no panic");
            changes.iter().position(&is).ok_or_else(|| changes.clone())
        })
        .await
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill_controllers();
    }
}

/// A pod template.
pub fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": "registry.invalid/main:1"}]},
    })
}

pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
