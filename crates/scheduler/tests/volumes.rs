//! Pods with volumes on a real API server. The test plays the volume controller and provisioner of a cluster.

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use allot_scheduler::{Config, run};
use allot_testing::wait::until;
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

struct Cluster {
    client: Client,
    stop: CancellationToken,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Cluster {
    /// An API server with the nodes `a` and `b`, and a scheduler.
    async fn start() -> Self {
        let server = Server::in_memory().await.expect("a server in memory");
        let client = Client::new(server.client_service(User::admin()), "default");
        let cluster = Self {
            client,
            stop: CancellationToken::new(),
        };
        for node in ["a", "b"] {
            let amounts = json!({"cpu": "4", "memory": "4Gi", "pods": "20"});
            let object = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": node, "labels": {"host": node}},
                "status": {"allocatable": amounts, "capacity": amounts},
            });
            cluster.create("/api/v1/nodes", object).await;
        }
        let (client, stop) = (cluster.client.clone(), cluster.stop.clone());
        tokio::spawn(async move {
            run(client, Config::default(), stop)
                .await
                .expect("schedules")
        });
        cluster
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: Value) -> Value {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(match body {
                Value::Null => Vec::new(),
                body => body.to_string().into_bytes(),
            })
            .expect("a valid request");
        let answer: Result<Value, _> = self.client.request(request).await;
        answer.unwrap_or_else(|e| panic!("{method} {path}: {e}"))
    }

    async fn create(&self, path: &str, object: Value) {
        self.send("POST", path, "application/json", object).await;
    }

    async fn patch(&self, path: &str, patch: Value) {
        let kind = "application/merge-patch+json";
        self.send("PATCH", path, kind, patch).await;
    }

    async fn class(&self, name: &str, provisioner: &str) {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
        });
        self.create(CLASSES, class).await;
    }

    /// A free volume `v` on a node.
    async fn volume(&self, class: &str, node: &str) {
        let on = json!({"key": "host", "operator": "In", "values": [node]});
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "2Gi"},
                "storageClassName": class,
                "local": {"path": "/mnt"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on]}]}},
            },
        });
        self.create(VOLUMES, volume).await;
        let free = json!({"status": {"phase": "Available"}});
        self.patch(&format!("{VOLUMES}/v/status"), free).await;
    }

    /// A claim `data`.
    async fn claim(&self, class: &str, mode: &str) {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
            "spec": {
                "accessModes": [mode],
                "storageClassName": class,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        self.create(CLAIMS, claim).await;
    }

    /// The claim gets the volume, as a controller would do it.
    async fn bind(&self) {
        let done = json!({"pv.kubernetes.io/bind-completed": "yes"});
        let patch = json!({"metadata": {"annotations": done}, "spec": {"volumeName": "v"}});
        self.patch(&format!("{CLAIMS}/data"), patch).await;
    }

    async fn pod(&self, name: &str) {
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
        // No kubelet reports for the nodes, so they are tainted.
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "tolerations": [{"operator": "Exists"}],
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "example.com/c:1"}],
                "volumes": [volume],
            },
        });
        self.create(PODS, pod).await;
    }

    /// Waits until a field of an object has a text in it.
    async fn until(&self, path: &str, pointer: &str, text: &str) {
        until(&format!("{text:?} is at {pointer} of {path}"), || async {
            let object = self
                .send("GET", path, "application/json", Value::Null)
                .await;
            let found = object.pointer(pointer).and_then(Value::as_str);
            if found.is_some_and(|found| found.contains(text)) {
                Ok(())
            } else {
                Err(object)
            }
        })
        .await;
    }

    async fn until_on(&self, pod: &str, node: &str) {
        self.until(&format!("{PODS}/{pod}"), "/spec/nodeName", node)
            .await;
    }

    async fn until_refused(&self, pod: &str, message: &str) {
        self.until(
            &format!("{PODS}/{pod}"),
            "/status/conditions/0/message",
            message,
        )
        .await;
    }

    async fn is_pending(&self, pod: &str) {
        let path = format!("{PODS}/{pod}");
        let pod = self
            .send("GET", &path, "application/json", Value::Null)
            .await;
        assert!(pod["spec"]["nodeName"].is_null(), "{pod:#}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_waits_for_a_volume_and_goes_where_it_is() {
    let cluster = Cluster::start().await;
    cluster.claim("", "ReadWriteOnce").await;
    cluster.pod("p").await;
    cluster
        .until_refused("p", "pod has unbound immediate PersistentVolumeClaims")
        .await;
    cluster.volume("", "b").await;
    cluster.bind().await;
    cluster.until_on("p", "b").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_chosen_with_the_node() {
    let cluster = Cluster::start().await;
    cluster.class("local", "kubernetes.io/no-provisioner").await;
    cluster.claim("local", "ReadWriteOnce").await;
    cluster.pod("p").await;
    cluster
        .until_refused(
            "p",
            "node(s) didn't find available persistent volumes to bind",
        )
        .await;
    cluster.volume("local", "b").await;
    let volume = format!("{VOLUMES}/v");
    cluster.until(&volume, "/spec/claimRef/name", "data").await;
    let by = "/metadata/annotations/pv.kubernetes.io~1bound-by-controller";
    cluster.until(&volume, by, "yes").await;
    cluster.is_pending("p").await;
    cluster.bind().await;
    cluster.until_on("p", "b").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_provisioned_for_the_node() {
    let cluster = Cluster::start().await;
    cluster.class("made", "csi.example.com").await;
    cluster.claim("made", "ReadWriteOnce").await;
    cluster.pod("p").await;
    let claim = format!("{CLAIMS}/data");
    let annotation = "/metadata/annotations/volume.kubernetes.io~1selected-node";
    cluster.until(&claim, annotation, "").await;
    cluster.is_pending("p").await;
    let path = "application/json";
    let object = cluster.send("GET", &claim, path, Value::Null).await;
    let node = object.pointer(annotation).and_then(Value::as_str);
    let node = node.expect("a node").to_owned();
    cluster.volume("made", &node).await;
    cluster.bind().await;
    cluster.until_on("p", &node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_for_one_pod_is_used_by_one_at_a_time() {
    let cluster = Cluster::start().await;
    cluster.volume("", "a").await;
    cluster.claim("", "ReadWriteOncePod").await;
    cluster.bind().await;
    cluster.pod("p").await;
    cluster.until_on("p", "a").await;
    cluster.pod("q").await;
    let reason = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
    cluster.until_refused("q", reason).await;
    let delete = json!({"gracePeriodSeconds": 0});
    cluster
        .send("DELETE", &format!("{PODS}/p"), "application/json", delete)
        .await;
    cluster.until_on("q", "a").await;
}
