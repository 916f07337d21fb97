//! A cluster in one process that behaves like some release.

use std::sync::Arc;
use std::time::Duration;

use allot_apiserver::Server;
use allot_apiserver::config::Config;
use allot_apiserver::identity::User;
use allot_apiserver::registry::RuntimeConfig;
use allot_controllers::controller::metrics::Metrics;
use allot_model::features::{Features, Release};
use allot_testing::wait::PATIENCE;
use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::driver::{Driver, Model};

pub const DRIVER: &str = "test-driver.cdi.k8s.io";

pub struct Cluster {
    pub client: Client,
    /// Of the classic kinds.
    pub version: &'static str,
    stop: CancellationToken,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Cluster {
    /// A cluster of a release with its classic kinds, without nodes and drivers.
    pub async fn of(minor: u8) -> Self {
        let version = if minor == 26 { "v1alpha1" } else { "v1alpha2" };
        let mut features = Features::of(Release::new(minor));
        if minor < 34 {
            features
                .set("DynamicResourceAllocation=true")
                .expect("a gate");
        }
        let versions = format!("resource.k8s.io/{version}=true");
        let config = Config {
            runtime_config: RuntimeConfig::parse(&versions).expect("versions"),
            features: features.clone(),
            ..Config::default()
        };
        let store = allot_store::Embedded::in_memory(allot_store::Options::default());
        let server = Server::new(Arc::new(store), config);
        server.bootstrap().await.expect("bootstrap");
        let client = Client::new(server.client_service(User::admin()), "default");
        let stop = CancellationToken::new();
        let controllers = allot_controllers::run_with_metrics(
            client.clone(),
            allot_controllers::Config::embedded(),
            Metrics::new(),
            stop.clone(),
        );
        tokio::spawn(async move { controllers.await.expect("controllers run") });
        let scheduling = allot_scheduler::Config {
            features,
            ..allot_scheduler::Config::default()
        };
        let scheduler = allot_scheduler::run(client.clone(), scheduling, stop.clone());
        tokio::spawn(async move { scheduler.await.expect("scheduler runs") });
        Self {
            client,
            version,
            stop,
        }
    }

    /// Adds nodes `n0`, `n1`, …
    pub async fn nodes(&self, count: usize) {
        for n in 0..count {
            let name = format!("n{n}");
            let labels = json!({"kubernetes.io/hostname": name});
            let amounts = json!({"cpu": "8", "memory": "8Gi", "pods": "110"});
            let ready = json!([{"type": "Ready", "status": "True"}]);
            self.create(
                "/api/v1/nodes",
                json!({"metadata": {"name": name, "labels": labels}}),
            )
            .await;
            let status = json!({"status": {"allocatable": amounts, "capacity": amounts, "conditions": ready}});
            self.patch(&format!("/api/v1/nodes/{name}/status"), status)
                .await;
        }
    }

    /// Starts a driver.
    pub fn driver(&self, model: Model) -> Driver {
        Driver::start(
            self.client.clone(),
            self.version,
            model,
            self.stop.child_token(),
        )
    }

    /// Creates a class.
    pub async fn class(&self, name: &str, driver: &str, more: Value) {
        let mut class = json!({"metadata": {"name": name}, "driverName": driver});
        merge(&mut class, &more);
        self.create(&self.path("", "resourceclasses"), class).await;
    }

    /// Path of a collection of classic kinds in the default namespace, or of cluster-scoped ones.
    pub fn path(&self, namespace: &str, plural: &str) -> String {
        let root = format!("/apis/resource.k8s.io/{}", self.version);
        if namespace.is_empty() {
            format!("{root}/{plural}")
        } else {
            format!("{root}/namespaces/{namespace}/{plural}")
        }
    }

    pub fn claims(&self) -> String {
        self.path("default", "resourceclaims")
    }

    pub fn schedulings(&self) -> String {
        let plural = match self.version {
            "v1alpha1" => "podschedulings",
            _ => "podschedulingcontexts",
        };
        self.path("default", plural)
    }

    pub async fn claim(&self, name: &str, spec: Value) {
        self.create(
            &self.claims(),
            json!({"metadata": {"name": name}, "spec": spec}),
        )
        .await;
    }

    pub async fn template(&self, name: &str, spec: Value) {
        let template = json!({"metadata": {"name": name}, "spec": {"spec": spec}});
        self.create(&self.path("default", "resourceclaimtemplates"), template)
            .await;
    }

    /// Creates a pod with claims: name in the pod, and where it comes from.
    pub async fn pod(&self, name: &str, claims: Value, more: Value) {
        let names: Vec<Value> = claims
            .as_array()
            .into_iter()
            .flatten()
            .map(|c| json!({"name": c["name"]}))
            .collect();
        let mut pod = json!({
            "metadata": {"name": name},
            "spec": {
                "automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "i", "resources": {"claims": names}}],
                "resourceClaims": claims,
            },
        });
        merge(&mut pod, &more);
        // The account that pods run as comes with the namespace.
        self.until("a service account", || async {
            let accounts = "/api/v1/namespaces/default/serviceaccounts/default";
            self.get(accounts).await.map(|_| ())
        })
        .await;
        self.create("/api/v1/namespaces/default/pods", pod).await;
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, kube::Error> {
        let content = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .body(body.map(|b| b.to_string().into_bytes()).unwrap_or_default())
            .expect("a request");
        self.client.request(request).await
    }

    pub async fn create(&self, path: &str, body: Value) -> Value {
        let created = self.call(Method::POST, path, Some(&body)).await;
        created.unwrap_or_else(|error| panic!("create in {path}: {error}"))
    }

    pub async fn patch(&self, path: &str, body: Value) -> Value {
        let patched = self.call(Method::PATCH, path, Some(&body)).await;
        patched.unwrap_or_else(|error| panic!("patch {path}: {error}"))
    }

    pub async fn delete(&self, path: &str) {
        let body = json!({"gracePeriodSeconds": 0});
        let deleted = self.call(Method::DELETE, path, Some(&body)).await;
        deleted.unwrap_or_else(|error| panic!("delete {path}: {error}"));
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

    /// Asks until there is an answer.
    pub async fn until<T, F>(&self, what: &str, ask: impl Fn() -> F) -> T
    where
        F: Future<Output = Option<T>>,
    {
        let started = tokio::time::Instant::now();
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "waited too long for {what}\n{}",
                self.dump().await
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the pod is bound; says to which node.
    pub async fn bound(&self, pod: &str) -> String {
        let path = format!("/api/v1/namespaces/default/pods/{pod}");
        self.until(&format!("{pod} to be bound"), || async {
            let pod = self.get(&path).await?;
            pod["spec"]["nodeName"].as_str().map(str::to_owned)
        })
        .await
    }

    /// Waits until the pod's condition says why it is not scheduled.
    pub async fn rejected(&self, pod: &str, why: &str) {
        let path = format!("/api/v1/namespaces/default/pods/{pod}");
        self.until(&format!("{pod} to be rejected: {why}"), || async {
            let pod = self.get(&path).await?;
            let conditions = pod["status"]["conditions"].as_array()?.clone();
            let scheduled = conditions.iter().find(|c| c["type"] == "PodScheduled")?;
            scheduled["message"].as_str()?.contains(why).then_some(())
        })
        .await;
    }

    /// Everything that matters, for a failed test.
    pub async fn dump(&self) -> String {
        let mut text = String::new();
        for path in [
            "/api/v1/namespaces/default/pods".to_owned(),
            self.claims(),
            self.schedulings(),
        ] {
            for object in self.list(&path).await {
                let meta = &object["metadata"];
                text.push_str(&format!(
                    "{path} {} {:?} finalizers {} spec {} status {}\n",
                    meta["name"],
                    meta["deletionTimestamp"],
                    meta["finalizers"],
                    object["spec"],
                    object["status"]
                ));
            }
        }
        text
    }
}

/// JSON merge.
pub fn merge(target: &mut Value, patch: &Value) {
    match patch {
        Value::Object(map) => {
            for (key, value) in map {
                merge(&mut target[key], value);
            }
        }
        other => *target = other.clone(),
    }
}
