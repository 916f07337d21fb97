//! The cluster of the tables: two nodes, their pods and what those need, and tenants of a namespace.
//!
//! | actor | who that is |
//! |---|---|
//! | `n1`, `n2`, `n3` | agents of nodes; the Node `n3` does not exist yet |
//! | `lost` | in the group of nodes, and says of no node that it is its agent |
//! | `fake` | has the name of n1's agent, and is not in the group of nodes |
//! | `viewer`, `editor`, `owner` | have the roles view, edit and admin in the namespace team |
//! | `mallory` | has proven who they are, and has no roles |
//! | `sa` | the service account team/builder |
//! | `anonymous`, `admin` | |
//!
//! In the namespace team, pod `p1` runs on n1 and `p2` on n2, `p0` is not scheduled, and `m1` is a mirror pod of n1.

use allot_apiserver::Server;
use allot_apiserver::identity::{NODES, User};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::objects::{
    certificate_request, deployment, merge, named, path_of, pod, pod_with_everything, slice,
};

const TEAM: &str = "/api/v1/namespaces/team";
pub const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MIRROR: &str = "kubernetes.io/config.mirror";

pub struct Cluster {
    server: Server,
    /// UIDs by name.
    uids: BTreeMap<String, String>,
    /// What of the cluster could not be made.
    faults: RefCell<Vec<String>>,
}

impl Cluster {
    pub async fn start() -> Self {
        let server = Server::in_memory().await.unwrap();
        let mut this = Self {
            server,
            uids: BTreeMap::new(),
            faults: RefCell::default(),
        };
        this.fill().await;
        let faults = this.faults.take();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        this
    }

    /// Creates an object as the administrator.
    async fn create(&mut self, path: &str, object: Value) {
        let (code, body) = self.send("admin", "POST", path, &object).await;
        if code != 201 {
            return self.faults.borrow_mut().push(format!("{path}: {body}"));
        }
        let text = |key: &str| body["metadata"][key].as_str().unwrap().to_owned();
        self.uids.insert(text("name"), text("uid"));
    }

    async fn patch(&self, path: &str, patch: Value) {
        let (code, body) = self.send("admin", "PATCH", path, &patch).await;
        if code != 200 {
            self.faults.borrow_mut().push(format!("{path}: {body}"));
        }
    }

    async fn fill(&mut self) {
        for name in ["team", "other", "vault"] {
            self.create("/api/v1/namespaces", named(name)).await;
        }
        for name in ["n1", "n2"] {
            self.create("/api/v1/nodes", named(name)).await;
            let csi = json!({"metadata": {"name": name}, "spec": {"drivers": []}});
            self.create("/apis/storage.k8s.io/v1/csinodes", csi).await;
            let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
            self.create(leases, named(name)).await;
            let attachment = json!({
                "metadata": {"name": format!("va-{name}")},
                "spec": {"attacher": "csi.example.com", "nodeName": name, "source": {"persistentVolumeName": "pv1"}},
            });
            let attachments = "/apis/storage.k8s.io/v1/volumeattachments";
            self.create(attachments, attachment).await;
            let mut slice = slice(name);
            slice["metadata"]["name"] = format!("slice-{name}").into();
            self.create("/apis/resource.k8s.io/v1/resourceslices", slice)
                .await;
            // The UIDs that count are those of the nodes.
            let (_, node) = self
                .send(
                    "admin",
                    "GET",
                    &format!("/api/v1/nodes/{name}"),
                    &Value::Null,
                )
                .await;
            let uid = node["metadata"]["uid"].as_str().unwrap().to_owned();
            self.uids.insert(name.to_owned(), uid);
        }
        let mut all = slice("n1");
        all["metadata"]["name"] = "slice-all".into();
        all["spec"]["pool"]["name"] = "all".into();
        all["spec"]["allNodes"] = true.into();
        all["spec"].as_object_mut().unwrap().remove("nodeName");
        self.create("/apis/resource.k8s.io/v1/resourceslices", all)
            .await;
        self.create(
            "/apis/coordination.k8s.io/v1/namespaces/team/leases",
            named("n1"),
        )
        .await;
        let (_, node) = self
            .send("admin", "GET", "/api/v1/nodes/n1", &Value::Null)
            .await;
        let uid = node["metadata"]["uid"].as_str().unwrap().to_owned();
        self.uids.insert("n1".to_owned(), uid);
        for name in ["default", "builder", "others"] {
            self.create(&format!("{TEAM}/serviceaccounts"), named(name))
                .await;
        }
        for name in [
            "s-vol", "s-proj", "s-csi", "s-key", "s-from", "s-init", "s-pull", "s-none", "s-p2",
            "s-p0",
        ] {
            self.create(&format!("{TEAM}/secrets"), named(name)).await;
        }
        for name in ["s-pv", "s-ctrl"] {
            self.create("/api/v1/namespaces/vault/secrets", named(name))
                .await;
        }
        for name in [
            "c-vol", "c-proj", "c-key", "c-from", "c-debug", "c-none", "c-mirror",
        ] {
            self.create(&format!("{TEAM}/configmaps"), named(name))
                .await;
        }
        let driver = json!({
            "metadata": {"name": "csi.example.com"},
            "spec": {"tokenRequests": [{"audience": "for-csi"}], "volumeLifecycleModes": ["Persistent", "Ephemeral"]},
        });
        self.create("/apis/storage.k8s.io/v1/csidrivers", driver)
            .await;
        let driver = json!({
            "metadata": {"name": "inline.example.com"},
            "spec": {"tokenRequests": [{"audience": "for-inline"}], "volumeLifecycleModes": ["Ephemeral"]},
        });
        self.create("/apis/storage.k8s.io/v1/csidrivers", driver)
            .await;
        let claim = |name: &str, volume: &str| {
            json!({
                "metadata": {"name": name},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                    "storageClassName": "", "volumeName": volume,
                },
            })
        };
        for (name, volume) in [("data", "pv1"), ("p1-scratch", "pv3"), ("lonely", "pv2")] {
            let claims = format!("{TEAM}/persistentvolumeclaims");
            self.create(&claims, claim(name, volume)).await;
        }
        let volume = |name: &str, claim: &str| {
            let secret = |name: &str| json!({"namespace": "vault", "name": name});
            json!({
                "metadata": {"name": name},
                "spec": {
                    "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                    "claimRef": {"namespace": "team", "name": claim},
                    "csi": {
                        "driver": "csi.example.com", "volumeHandle": name,
                        "nodePublishSecretRef": secret("s-pv"), "controllerPublishSecretRef": secret("s-ctrl"),
                    },
                },
            })
        };
        for (name, of) in [("pv1", "data"), ("pv2", "lonely"), ("pv3", "p1-scratch")] {
            self.create("/api/v1/persistentvolumes", volume(name, of))
                .await;
        }
        let claims = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims";
        for name in ["rc", "rc-made", "rc-ext", "rc-none"] {
            let request = json!({"name": "r", "exactly": {"deviceClassName": "c"}});
            let claim =
                json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}});
            self.create(claims, claim).await;
        }
        self.create(&format!("{TEAM}/pods"), pod_with_everything())
            .await;
        let mut other = pod("p2", "n2");
        other["spec"]["volumes"] = json!([{"name": "s", "secret": {"secretName": "s-p2"}}]);
        self.create(&format!("{TEAM}/pods"), other).await;
        let mut waiting = pod("p0", "");
        waiting["spec"]["volumes"] = json!([{"name": "s", "secret": {"secretName": "s-p0"}}]);
        self.create(&format!("{TEAM}/pods"), waiting).await;
        let mut mirror = pod("m1", "n1");
        mirror["metadata"]["annotations"] = json!({MIRROR: "x"});
        mirror["spec"]["serviceAccountName"] = Value::Null;
        mirror["spec"]["volumes"] = json!([{"name": "c", "configMap": {"name": "c-mirror"}}]);
        self.create(&format!("{TEAM}/pods"), mirror).await;
        let debugger = json!({
            "name": "debug", "image": "i",
            "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c-debug", "key": "k"}}}],
        });
        self.patch(
            &format!("{TEAM}/pods/p1/ephemeralcontainers"),
            json!({"spec": {"ephemeralContainers": [debugger]}}),
        )
        .await;
        self.patch(
            &format!("{TEAM}/pods/p1/status"),
            json!({"status": {
                "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "rc-made"}],
                "extendedResourceClaimStatus": {
                    "resourceClaimName": "rc-ext",
                    "requestMappings": [{"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}],
                },
            }}),
        )
        .await;
        self.create(
            &format!("{TEAM}/services"),
            json!({"metadata": {"name": "svc"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}),
        )
        .await;
        self.create(&format!("{TEAM}/endpoints"), named("svc"))
            .await;
        self.create(&format!("{TEAM}/configmaps"), named("thing"))
            .await;
        self.create(&format!("{TEAM}/secrets"), named("thing"))
            .await;
        self.create("/api/v1/namespaces/other/configmaps", named("thing"))
            .await;
        self.create(&format!("{TEAM}/pods"), pod("thing", "")).await;
        self.create(
            "/apis/apps/v1/namespaces/team/deployments",
            deployment("thing"),
        )
        .await;
        self.create(&format!("{RBAC}/namespaces/team/roles"), named("thing"))
            .await;
        let mut request = self.body("n1", "certificatesigningrequests", "");
        request["metadata"]["name"] = "request".into();
        self.create(
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            request,
        )
        .await;
        for (user, role) in [("viewer", "view"), ("editor", "edit"), ("owner", "admin")] {
            let binding = json!({
                "metadata": {"name": user},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
            });
            self.create(&format!("{RBAC}/namespaces/team/rolebindings"), binding)
                .await;
        }
    }

    /// Sends the request of a row as its actor; returns the code, and the message of an error.
    pub async fn send_as(&self, actor: &str, request: &str, body: &str) -> (u16, String) {
        let mut words = request.split_whitespace();
        let (verb, resource) = (words.next().unwrap(), words.next().unwrap());
        let (target, query) = words
            .next()
            .unwrap_or_default()
            .split_once('?')
            .unwrap_or_else(|| (request.split_whitespace().nth(2).unwrap_or_default(), ""));
        let mut path = path_of(resource, target);
        let method = match verb {
            "get" | "list" | "watch" => "GET",
            "create" => "POST",
            "update" => "PUT",
            "patch" => "PATCH",
            "delete" | "deletecollection" => "DELETE",
            other => panic!("no verb: {other}"),
        };
        let sent = match verb {
            "update" => {
                let whole = match resource.split_once('/') {
                    Some((plural, part)) if part != "scale" => path_of(plural, target),
                    _ => path.clone(),
                };
                let (code, mut object) = self.send("admin", "GET", &whole, &Value::Null).await;
                match code {
                    200 => {}
                    // What is not there can be refused nevertheless.
                    404 => object = named(target.rsplit('/').next().unwrap_or_default()),
                    _ => panic!("{request}: {code} {object}"),
                }
                merge(&mut object, &self.parsed(body));
                object
            }
            "patch" => self.parsed(body),
            "create" => {
                // What another one would send.
                let sender = query.strip_prefix("as=").unwrap_or(actor);
                let mut object = self.body(sender, resource, target);
                merge(&mut object, &self.parsed(body));
                object
            }
            _ => Value::Null,
        };
        let mut queries: Vec<&str> = query.split('&').collect();
        queries.retain(|it| !it.is_empty() && !it.starts_with("as="));
        if method != "GET" {
            queries.push("dryRun=All");
        }
        if verb == "watch" {
            queries.push("watch=true");
        }
        if !queries.is_empty() {
            path = format!("{path}?{}", queries.join("&"));
        }
        let (code, body) = self.send(actor, method, &path, &sent).await;
        let message = match body["message"].as_str() {
            Some(message) => message.to_owned(),
            None if code < 300 => String::new(),
            None => body.to_string(),
        };
        (code, message)
    }

    /// The body of a row.
    fn parsed(&self, body: &str) -> Value {
        let mut body = body.to_owned();
        for (name, uid) in &self.uids {
            body = body.replace(&format!("$({name})"), uid);
        }
        match body.as_str() {
            "" => json!({}),
            text => serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}")),
        }
    }

    /// What an actor would ordinarily create: a node agent what is its own.
    fn body(&self, actor: &str, resource: &str, target: &str) -> Value {
        let node = match actor {
            "n1" | "n2" | "n3" => actor,
            _ => "n1",
        };
        let uid = |name: &str| self.uids.get(name).cloned().unwrap_or_default();
        let of_path = target.rsplit('/').next().unwrap_or_default();
        match resource {
            "pods" if matches!(actor, "n1" | "n2" | "n3") => json!({
                "metadata": {
                    "name": "new", "annotations": {MIRROR: "x"},
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid(node), "controller": true},
                    ],
                },
                "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
            }),
            "pods" => pod("new", ""),
            "nodes" | "leases" => named(node),
            "csinodes" => json!({"metadata": {"name": node}, "spec": {"drivers": []}}),
            "resourceslices" => slice(node),
            "pods/eviction" => named(of_path),
            "pods/binding" => {
                json!({"metadata": {"name": of_path}, "target": {"kind": "Node", "name": node}})
            }
            "serviceaccounts/token" => {
                let pod = if node == "n2" { "p2" } else { "p1" };
                let bound =
                    json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid(pod)});
                json!({"spec": {"audiences": ["vault"], "boundObjectRef": bound}})
            }
            "certificatesigningrequests" => json!({
                "metadata": {"name": "new"},
                "spec": {
                    "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                    "request": certificate_request(&format!("system:node:{node}")),
                    "usages": ["digital signature", "client auth"],
                },
            }),
            "events" => {
                let namespace = target;
                json!({
                    "metadata": {"name": "new"},
                    "involvedObject": {"kind": "Pod", "namespace": namespace, "name": "p1"},
                })
            }
            "deployments" => deployment("new"),
            "persistentvolumeclaims" => json!({
                "metadata": {"name": "new"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }),
            "tokenreviews" => json!({"spec": {"token": "x"}}),
            "subjectaccessreviews" | "localsubjectaccessreviews" | "selfsubjectaccessreviews" => {
                let attributes = json!({"verb": "get", "resource": "pods", "namespace": "team"});
                let mut spec = json!({"resourceAttributes": attributes});
                if resource != "selfsubjectaccessreviews" {
                    spec["user"] = "jane".into();
                }
                json!({"spec": spec})
            }
            "selfsubjectrulesreviews" => json!({"spec": {"namespace": "team"}}),
            "selfsubjectreviews" => json!({}),
            "rolebindings" => json!({
                "metadata": {"name": "new"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
                "subjects": [{"kind": "User", "name": "x", "apiGroup": "rbac.authorization.k8s.io"}],
            }),
            _ => named("new"),
        }
    }

    async fn send(&self, actor: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(Full::new(bytes::Bytes::from(body)))
            .unwrap();
        let response = self.server.handle(request, Some(user(actor))).await;
        let code = response.status().as_u16();
        if path.contains("watch=true") && code == 200 {
            return (code, Value::Null);
        }
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let value = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into()));
        (code, value)
    }
}

fn user(actor: &str) -> User {
    match actor {
        "n1" | "n2" | "n3" => User::new(format!("system:node:{actor}"), [NODES]),
        "lost" => User::new("system:node:", [NODES]),
        "fake" => User::new("system:node:n1", Vec::<String>::new()),
        "sa" => User::new(
            "system:serviceaccount:team:builder",
            ["system:serviceaccounts", "system:serviceaccounts:team"],
        ),
        "anonymous" => User::anonymous(),
        "admin" => User::admin(),
        name => User::new(name, Vec::<String>::new()),
    }
}
