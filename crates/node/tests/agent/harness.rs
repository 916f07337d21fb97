//! A cluster in memory with one node agent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use allot_apiserver::Server;
use allot_apiserver::identity::{NODES, User};
use allot_apiserver::registry::RuntimeConfig;
use allot_driver::{Plugin, Pool, Resources};
use allot_model::features::{Feature, Features, Release};
use allot_node::Config;
use allot_store::Embedded;
use allot_testing::wait::{PATIENCE, until, until_true};
use http::{Method, Request};
use k8s_openapi::api::resource::v1::Device;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::recording::{Calls, Recording};

pub const DRIVER: &str = "test.example.com";

pub struct Cluster {
    pub client: Client,
    directory: tempfile::TempDir,
    /// Image settings of the next agent.
    pub images: allot_node::Images,
    /// CRI socket of the next agent; without one it runs containers itself.
    pub runtime: Option<PathBuf>,
    /// Network settings of the next agent.
    pub network: allot_node::NetworkSettings,
    /// Manifest directory for static pods of the next agent.
    pub manifests: Option<PathBuf>,
    /// Capacity of the next agent's node, where it differs from the machine's.
    pub capacity: BTreeMap<String, String>,
    /// Changes the configuration of the next agent.
    pub adjust: fn(&mut Config),
    agent: Option<(CancellationToken, JoinHandle<Result<(), allot_node::Error>>)>,
    _server: Server,
}

impl Cluster {
    /// An API server with a node.
    pub async fn start() -> Self {
        Self::with_images(allot_node::Images::default()).await
    }

    /// An API server with a node that has these image settings.
    pub async fn with_images(images: allot_node::Images) -> Self {
        let server = Server::in_memory().await.expect("a server in memory");
        Self::on(server, images).await
    }

    /// The API server of a release that serves a version of the classic kinds, with a node.
    pub async fn of_release(minor: u8, version: &str) -> Self {
        let mut features = Features::of(Release::new(minor));
        if minor < 34 {
            features
                .set("DynamicResourceAllocation=true")
                .expect("a gate");
        }
        let served = format!("resource.k8s.io/{version}=true");
        let config = allot_apiserver::config::Config {
            runtime_config: RuntimeConfig::parse(&served).expect("a version"),
            features,
            ..Default::default()
        };
        let backend = Arc::new(Embedded::in_memory(allot_store::Options::default()));
        let server = Server::new(backend, config);
        server.bootstrap().await.expect("a server in memory");
        Self::on(server, allot_node::Images::default()).await
    }

    /// An API server with these features and the kinds of certificates, with a node that has the permissions of a node.
    pub async fn with_certificates(features: &[Feature]) -> Self {
        let mut config = allot_apiserver::config::Config {
            runtime_config: RuntimeConfig::parse("certificates.k8s.io/v1beta1=true")
                .expect("a version"),
            ..Default::default()
        };
        for feature in features {
            config.features = config.features.with(*feature, true);
        }
        let backend = Arc::new(Embedded::in_memory(allot_store::Options::default()));
        let server = Server::new(backend, config);
        server.bootstrap().await.expect("a server in memory");
        let mut this = Self::bare(server, allot_node::Images::default()).await;
        this.start_agent_as_node().await;
        this
    }

    /// Starts an agent as the user of its node, not as administrator.
    pub async fn start_agent_as_node(&mut self) {
        let user = User::new("system:node:n1", [NODES]);
        let client = Client::new(self._server.client_service(user), "default");
        self.start_agent_of(client, false);
        self.wait_until_ready().await;
    }

    /// An API server with a node that uses the CRI runtime at a socket.
    pub async fn with_runtime(socket: PathBuf) -> Self {
        let server = Server::in_memory().await.expect("a server in memory");
        let mut this = Self::bare(server, allot_node::Images::default()).await;
        this.runtime = Some(socket);
        this.start_agent().await;
        this
    }

    /// An API server with a node that has these network settings.
    pub async fn with_network(network: allot_node::NetworkSettings) -> Self {
        let server = Server::in_memory().await.expect("a server in memory");
        let mut this = Self::bare(server, allot_node::Images::default()).await;
        this.network = network;
        this.start_agent().await;
        this
    }

    async fn on(server: Server, images: allot_node::Images) -> Self {
        let mut this = Self::bare(server, images).await;
        this.start_agent().await;
        this
    }

    async fn bare(server: Server, images: allot_node::Images) -> Self {
        let client = Client::new(server.client_service(User::admin()), "default");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let this = Self {
            client,
            directory,
            images,
            runtime: None,
            network: allot_node::NetworkSettings::default(),
            manifests: None,
            capacity: BTreeMap::new(),
            adjust: |_| {},
            agent: None,
            _server: server,
        };
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        this.post(
            accounts,
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}),
        )
        .await;
        this
    }

    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    pub async fn start_agent(&mut self) {
        let config = self.config();
        let stop = CancellationToken::new();
        let work = allot_node::run(self.client.clone(), config, stop.clone());
        self.agent = Some((stop, tokio::spawn(work)));
        self.wait_until_ready().await;
    }

    async fn wait_until_ready(&self) {
        self.wait_until("/api/v1/nodes/n1", "ready", |node| {
            let conditions = node["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            conditions
                .iter()
                .any(|c| c["type"] == "Ready" && c["status"] == "True")
        })
        .await;
    }

    /// Starts an agent that cannot reach its API server.
    pub fn start_agent_alone(&mut self) {
        let nowhere = tower::service_fn(|_: Request<kube::client::Body>| async {
            let error = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            Err::<http::Response<kube::client::Body>, _>(error)
        });
        self.start_agent_of(Client::new(nowhere, "default"), false);
    }

    /// Starts an agent for another API server. An ephemeral agent leaves no containers.
    pub fn start_agent_of(&mut self, client: Client, ephemeral: bool) {
        let mut config = self.config();
        config.ephemeral = ephemeral;
        let stop = CancellationToken::new();
        let work = allot_node::run(client, config, stop.clone());
        self.agent = Some((stop, tokio::spawn(work)));
    }

    /// Waits until the agent ends by itself; returns why.
    pub async fn agent_error(&mut self) -> String {
        let (_, task) = self.agent.take().expect("an agent");
        let ended = tokio::time::timeout(PATIENCE, task).await;
        let ended = ended.expect("the agent ends").expect("no panic");
        ended.expect_err("an error").to_string()
    }

    /// The configuration of the next agent.
    fn config(&self) -> Config {
        let mut config = Config::new("n1", self.root());
        config.shim = vec![env!("CARGO_BIN_EXE_allot-node-shim").into()];
        config.images = self.images.clone();
        if let Some(socket) = &self.runtime {
            config.runtime = allot_node::RuntimeKind::Cri;
            config.cri_endpoint = format!("unix://{}", socket.display());
            config.cdi_dirs = vec![self.cdi()];
            config.logs.size = 100;
            config.logs.files = 3;
            config.logs.period = Duration::from_millis(100);
        }
        config.slice_grace = Duration::from_millis(200);
        config.sync_frequency = Duration::from_millis(100);
        config.pod_manifest_path.clone_from(&self.manifests);
        config.network = self.network.clone();
        config.capacity.clone_from(&self.capacity);
        (self.adjust)(&mut config);
        config
    }

    pub async fn stop_agent(&mut self) {
        if let Some((stop, task)) = self.agent.take() {
            stop.cancel();
            task.await.expect("the agent ends").expect("it runs");
        }
    }

    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, kube::Error> {
        let content = if method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let body = body
            .map(|body| body.to_string().into_bytes())
            .unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .body(body);
        self.client.request(request.expect("a valid request")).await
    }

    pub async fn get(&self, path: &str) -> Value {
        match self.call(Method::GET, path, None).await {
            Ok(value) => value,
            Err(kube::Error::Api(status)) if status.code == 404 => Value::Null,
            Err(error) => panic!("get {path}: {error}"),
        }
    }

    pub async fn post(&self, path: &str, body: Value) -> Value {
        self.call(Method::POST, path, Some(body))
            .await
            .unwrap_or_else(|error| panic!("post {path}: {error}"))
    }

    pub async fn delete(&self, path: &str) {
        self.call(Method::DELETE, path, None)
            .await
            .unwrap_or_else(|error| panic!("delete {path}: {error}"));
    }

    /// Polls an object until it satisfies a condition, and returns it; `what` describes the condition.
    pub async fn wait_until(
        &self,
        path: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        until(&format!("{path} is {what}"), || async {
            let value = self.get(path).await;
            if holds(&value) { Ok(value) } else { Err(value) }
        })
        .await
    }

    /// Waits until each of these containers of a pod has a log.
    pub async fn wait_for_logs(&self, pod: &str, containers: &[&str]) {
        until_true(&format!("{containers:?} of {pod} log"), || {
            containers
                .iter()
                .all(|container| !self.log(pod, container, 0).is_empty())
        })
        .await;
    }

    /// Creates a pod on the node and returns its UID; `spec` needs only the fields that matter for the test.
    pub async fn pod(&self, name: &str, mut spec: Value) -> String {
        spec["nodeName"] = json!("n1");
        spec["automountServiceAccountToken"] = json!(false);
        let metadata = json!({"name": name, "labels": {"app": "test"}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        let created = self.post("/api/v1/namespaces/default/pods", pod).await;
        created["metadata"]["uid"]
            .as_str()
            .expect("a UID")
            .to_owned()
    }

    pub async fn wait_for_phase(&self, name: &str, phase: &str) -> Value {
        self.wait_until(&pod_path(name), phase, |pod| {
            pod["status"]["phase"] == phase
        })
        .await
    }

    /// Waits until a pod no longer exists.
    pub async fn wait_until_gone(&self, pod: &str) {
        self.wait_until(&pod_path(pod), "gone", Value::is_null)
            .await;
    }

    /// Creates a claim that is allocated, but not reserved.
    pub async fn claim(&self, name: &str, device: &str) {
        let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
        let request = json!({"name": "r", "exactly": {"deviceClassName": "test"}});
        let body = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}});
        self.post(claims, body).await;
        let result = json!({"request": "r", "driver": DRIVER, "pool": "n1", "device": device});
        let status = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
        let path = format!("{claims}/{name}/status");
        self.call(Method::PATCH, &path, Some(status))
            .await
            .expect("an allocation");
    }

    /// Reserves a claim for a pod.
    pub async fn reserve(&self, claim: &str, pod: &str, uid: &str) {
        let path =
            format!("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{claim}/status");
        let status =
            json!({"status": {"reservedFor": [{"resource": "pods", "name": pod, "uid": uid}]}});
        self.call(Method::PATCH, &path, Some(status))
            .await
            .expect("a reservation");
    }

    /// The text of a container's log.
    pub fn log(&self, pod: &str, container: &str, attempt: u32) -> String {
        let logs = std::fs::read_dir(self.root().join("logs"))
            .into_iter()
            .flatten()
            .flatten();
        let prefix = format!("default_{pod}_");
        let directory = logs.map(|entry| entry.path()).find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
        });
        let file = directory.map(|path| path.join(container).join(format!("{attempt}.log")));
        let text = file
            .and_then(|file| std::fs::read_to_string(file).ok())
            .unwrap_or_default();
        text.lines()
            .filter_map(|line| line.splitn(4, ' ').nth(3))
            .map(|line| format!("{line}\n"))
            .collect()
    }

    /// Waits for an event of a pod with this reason, and returns its message.
    pub async fn wait_for_event(&self, pod: &str, reason: &str) -> String {
        let path = "/api/v1/namespaces/default/events";
        let of = |events: &Value| {
            let items = events["items"].as_array().cloned().unwrap_or_default();
            items
                .into_iter()
                .find(|event| event["reason"] == reason && event["involvedObject"]["name"] == pod)
        };
        let events = self
            .wait_until(path, reason, |events| of(events).is_some())
            .await;
        of(&events)
            .and_then(|event| event["message"].as_str().map(str::to_owned))
            .unwrap_or_default()
    }

    pub fn checkpoint(&self) -> String {
        std::fs::read_to_string(self.root().join("dra_manager_state")).unwrap_or_default()
    }

    /// Starts a driver with the devices `a` and `b`, and waits until the agent has registered it.
    pub async fn driver(&self) -> (Plugin, Arc<Calls>) {
        let calls = Arc::new(Calls::default());
        let plugin = Plugin::builder(DRIVER, Recording(Arc::clone(&calls)))
            .client(self.client.clone())
            .node_name("n1")
            .kubelet_dir(self.root())
            .cdi_dir(self.cdi())
            .cdi_kind("test.example.com/device")
            .device_metadata(true)
            .start()
            .await
            .expect("a driver");
        let devices = ["a", "b"].map(|name| Device {
            name: name.into(),
            ..Device::default()
        });
        plugin
            .publish(Resources::pool("n1", Pool::new(devices)))
            .expect("a node name");
        let mut status = plugin.registration();
        let registered =
            status.wait_for(|status| status.as_ref().is_some_and(|status| status.registered));
        tokio::time::timeout(PATIENCE, registered)
            .await
            .expect("a registration")
            .expect("a running plugin");
        (plugin, calls)
    }

    pub fn cdi(&self) -> PathBuf {
        self.root().join("cdi")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Containers outlive agents; these must not outlive the test, nor be started again.
        if let Some((stop, _)) = &self.agent {
            stop.cancel();
        }
        for entry in std::fs::read_dir(self.root().join("containers"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let state = std::fs::read(entry.path().join("state.json")).unwrap_or_default();
            let state: Value = serde_json::from_slice(&state).unwrap_or_default();
            let shim = state["shim"]
                .as_i64()
                .and_then(|pid| i32::try_from(pid).ok());
            if !entry.path().join("exit.json").exists()
                && let Some(pid) = shim.and_then(rustix::process::Pid::from_raw)
            {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

pub fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}")
}

/// A container that runs a shell script.
pub fn shell(script: &str) -> Value {
    json!({"name": "c", "image": "none", "command": ["sh", "-c", script]})
}

/// A container with another name and more fields.
pub fn with(mut container: Value, name: &str, more: Value) -> Value {
    container["name"] = json!(name);
    for (key, value) in more.as_object().into_iter().flatten() {
        container[key] = value.clone();
    }
    container
}

/// Whether containers are isolated on this machine; otherwise prints that the test is skipped.
pub async fn has_isolation(cluster: &Cluster) -> bool {
    let node = cluster.get("/api/v1/nodes/n1").await;
    let isolated = node["status"]["conditions"]
        .to_string()
        .contains("\"Applied\"");
    if !isolated {
        eprintln!("skipped: namespaces are not permitted here");
    }
    isolated
}

/// The status of one container in the status of a pod.
pub fn status<'a>(pod: &'a Value, container: &str) -> &'a Value {
    let lists = [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ];
    let all = lists
        .iter()
        .filter_map(|list| pod["status"][list].as_array());
    all.flatten()
        .find(|status| status["name"] == container)
        .unwrap_or(&Value::Null)
}
