//! A driver's controller, reduced to what it writes. It looks at everything every few milliseconds instead of watching.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// How a driver behaves.
#[derive(Debug, Clone)]
pub struct Model {
    pub name: &'static str,
    /// Nodes on which it allocates nothing.
    pub refuses: BTreeSet<String>,
    /// Claims per node; no limit if not set.
    pub capacity: Option<usize>,
    /// Allocated claims can be used by several pods, everywhere.
    pub network: bool,
    /// Reserves for the pod in the write that allocates.
    pub reserves: bool,
}

impl Model {
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            refuses: BTreeSet::new(),
            capacity: None,
            network: false,
            reserves: true,
        }
    }
}

pub struct Driver {
    pub model: Arc<Mutex<Model>>,
    stop: CancellationToken,
}

impl Driver {
    pub fn start(
        client: Client,
        version: &'static str,
        model: Model,
        stop: CancellationToken,
    ) -> Self {
        let model = Arc::new(Mutex::new(model));
        let (works, token) = (model.clone(), stop.clone());
        tokio::spawn(async move {
            while !token.is_cancelled() {
                let model = works.lock().clone();
                let round = Round {
                    client: &client,
                    version,
                    model,
                };
                // A conflict: the next round sees what is there.
                let _ = round.run().await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        Self { model, stop }
    }

    /// Stops it in the middle of whatever it does.
    pub fn stop(&self) {
        self.stop.cancel();
    }
}

struct Round<'a> {
    client: &'a Client,
    version: &'static str,
    model: Model,
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

impl Round<'_> {
    async fn call(&self, method: Method, path: &str, body: &Value) -> Result<Value, kube::Error> {
        let content = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .body(if body.is_null() {
                Vec::new()
            } else {
                body.to_string().into_bytes()
            })
            .map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }

    async fn all(&self, plural: &str) -> Result<Vec<Value>, kube::Error> {
        let path = format!("/apis/resource.k8s.io/{}/{plural}", self.version);
        Ok(list(
            &self.call(Method::GET, &path, &Value::Null).await?["items"],
        ))
    }

    fn path(&self, plural: &str, object: &Value, sub: &str) -> String {
        let meta = &object["metadata"];
        format!(
            "/apis/resource.k8s.io/{}/namespaces/{}/{plural}/{}{sub}",
            self.version,
            meta["namespace"].as_str().unwrap_or_default(),
            meta["name"].as_str().unwrap_or_default()
        )
    }

    /// Writes if there was no other write since it was read.
    async fn write(
        &self,
        plural: &str,
        object: &Value,
        sub: &str,
        patch: Value,
    ) -> Result<Value, kube::Error> {
        let mut patch = patch;
        patch["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
        patch["metadata"]["uid"] = object["metadata"]["uid"].clone();
        self.call(Method::PATCH, &self.path(plural, object, sub), &patch)
            .await
    }

    async fn run(&self) -> Result<(), kube::Error> {
        let mut classes = BTreeMap::new();
        for class in self.all("resourceclasses").await? {
            if class["driverName"] == self.model.name && class["structuredParameters"] != true {
                classes.insert(
                    class["metadata"]["name"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned(),
                    class,
                );
            }
        }
        let claims = self.all("resourceclaims").await?;
        for claim in &claims {
            self.claim(claim, &classes).await?;
        }
        let plural = if self.version == "v1alpha1" {
            "podschedulings"
        } else {
            "podschedulingcontexts"
        };
        for scheduling in self.all(plural).await? {
            self.scheduling(plural, &scheduling, &classes).await?;
        }
        Ok(())
    }

    fn finalizer(&self) -> String {
        format!("{}/deletion-protection", self.model.name)
    }

    fn has_finalizer(&self, claim: &Value) -> bool {
        list(&claim["metadata"]["finalizers"])
            .iter()
            .any(|f| *f == self.finalizer())
    }

    async fn claim(
        &self,
        claim: &Value,
        classes: &BTreeMap<String, Value>,
    ) -> Result<(), kube::Error> {
        if !list(&claim["status"]["reservedFor"]).is_empty() {
            return Ok(());
        }
        let going = !claim["metadata"]["deletionTimestamp"].is_null();
        if going || claim["status"]["deallocationRequested"] == true {
            if !self.has_finalizer(claim) {
                return Ok(());
            }
            let mut claim = claim.clone();
            if !claim["status"]["allocation"].is_null() {
                let none = json!({"status": {"allocation": null, "driverName": null, "deallocationRequested": null}});
                claim = self
                    .write("resourceclaims", &claim, "/status", none)
                    .await?;
            }
            let rest: Vec<Value> = list(&claim["metadata"]["finalizers"])
                .into_iter()
                .filter(|f| *f != self.finalizer())
                .collect();
            self.write(
                "resourceclaims",
                &claim,
                "",
                json!({"metadata": {"finalizers": rest}}),
            )
            .await?;
            return Ok(());
        }
        let class = claim["spec"]["resourceClassName"]
            .as_str()
            .unwrap_or_default();
        let immediate = claim["spec"]["allocationMode"] == "Immediate";
        if immediate && claim["status"]["allocation"].is_null() && classes.contains_key(class) {
            self.allocate(claim, "", None).await?;
        }
        Ok(())
    }

    async fn allocate(
        &self,
        claim: &Value,
        node: &str,
        pod: Option<&Value>,
    ) -> Result<(), kube::Error> {
        let mut claim = claim.clone();
        if !self.has_finalizer(&claim) {
            let mut all = list(&claim["metadata"]["finalizers"]);
            all.push(self.finalizer().into());
            claim = self
                .write(
                    "resourceclaims",
                    &claim,
                    "",
                    json!({"metadata": {"finalizers": all}}),
                )
                .await?;
        }
        let mut allocation = json!({"shareable": self.model.network});
        if !self.model.network && !node.is_empty() {
            let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
            allocation["availableOnNodes"] = json!({"nodeSelectorTerms": [term]});
        }
        let mut status = json!({"allocation": allocation, "driverName": self.model.name});
        if let Some(pod) = pod.filter(|_| self.model.reserves) {
            let mut reserved = list(&claim["status"]["reservedFor"]);
            reserved.push(json!({"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}));
            status["reservedFor"] = reserved.into();
        }
        self.write(
            "resourceclaims",
            &claim,
            "/status",
            json!({"status": status}),
        )
        .await?;
        Ok(())
    }

    /// Nodes on which this driver cannot allocate any more devices.
    async fn is_full(&self, node: &str, wanted: usize) -> Result<bool, kube::Error> {
        let Some(capacity) = self.model.capacity else {
            return Ok(false);
        };
        let claims = self.all("resourceclaims").await?;
        let used = claims.iter().filter(|c| {
            c["status"]["driverName"] == self.model.name
                && c["status"]["allocation"]
                    .to_string()
                    .contains(&format!("\"{node}\""))
        });
        Ok(used.count() + wanted > capacity)
    }

    async fn scheduling(
        &self,
        plural: &str,
        scheduling: &Value,
        classes: &BTreeMap<String, Value>,
    ) -> Result<(), kube::Error> {
        let pod = format!(
            "/api/v1/namespaces/{}/pods/{}",
            scheduling["metadata"]["namespace"]
                .as_str()
                .unwrap_or_default(),
            scheduling["metadata"]["name"].as_str().unwrap_or_default()
        );
        let pod = self.call(Method::GET, &pod, &Value::Null).await?;
        let owner = &scheduling["metadata"]["ownerReferences"][0];
        if owner["uid"] != pod["metadata"]["uid"] || !pod["metadata"]["deletionTimestamp"].is_null()
        {
            return Ok(());
        }
        let mut own: Vec<(String, Value)> = Vec::new();
        for entry in list(&pod["spec"]["resourceClaims"]) {
            let entry_name = entry["name"].as_str().unwrap_or_default();
            let statuses = list(&pod["status"]["resourceClaimStatuses"]);
            let generated = statuses.iter().find(|s| s["name"] == entry_name);
            let name = entry["resourceClaimName"]
                .as_str()
                .or_else(|| generated.and_then(|s| s["resourceClaimName"].as_str()))
                .map_or_else(
                    || {
                        format!(
                            "{}-{entry_name}",
                            pod["metadata"]["name"].as_str().unwrap_or_default()
                        )
                    },
                    str::to_owned,
                );
            let probe =
                json!({"metadata": {"name": name, "namespace": pod["metadata"]["namespace"]}});
            let path = self.path("resourceclaims", &probe, "");
            let Ok(claim) = self.call(Method::GET, &path, &Value::Null).await else {
                continue;
            };
            let class = claim["spec"]["resourceClassName"]
                .as_str()
                .unwrap_or_default();
            if claim["status"]["allocation"].is_null()
                && claim["spec"]["allocationMode"] != "Immediate"
                && classes.contains_key(class)
            {
                own.push((entry_name.to_owned(), claim));
            }
        }
        if own.is_empty() {
            return Ok(());
        }
        let selected = scheduling["spec"]["selectedNode"]
            .as_str()
            .unwrap_or_default();
        let mut asked: BTreeSet<String> = list(&scheduling["spec"]["potentialNodes"])
            .iter()
            .filter_map(|n| n.as_str().map(str::to_owned))
            .collect();
        if !selected.is_empty() {
            asked.insert(selected.to_owned());
        }
        let mut unsuitable = Vec::new();
        for node in asked {
            if self.model.refuses.contains(&node) || self.is_full(&node, own.len()).await? {
                unsuitable.push(node);
            }
        }
        if !selected.is_empty() && !unsuitable.iter().any(|n| n == selected) {
            for (_, claim) in &own {
                self.allocate(claim, selected, Some(&pod)).await?;
            }
        }
        let mut answers = list(&scheduling["status"]["resourceClaims"]);
        let before = answers.clone();
        for (entry, _) in &own {
            answers.retain(|a| a["name"] != **entry);
            let mut answer = json!({"name": entry});
            if !unsuitable.is_empty() {
                answer["unsuitableNodes"] = json!(unsuitable);
            }
            answers.push(answer);
        }
        if answers != before {
            let status = json!({"status": {"resourceClaims": answers}});
            self.write(plural, scheduling, "/status", status).await?;
        }
        Ok(())
    }
}
