//! Objects of files, added to what exists.

use allot_model::migrate;
use serde_json::{Value, json};

use super::own_pods::OwnPods;
use super::{ClusterObjects, identity};
use crate::cmd::manifests::title;
use crate::cmd::snapshot::{Kinds, completed};

/// More replicas of a workload are not tried one after the other.
pub const MOST_REPLICAS: usize = 1000;

/// The pods of the added objects.
#[derive(Debug, Default)]
pub struct AddedPods {
    /// Pods, by namespace and name.
    pub pods: Vec<(String, String)>,
    /// Workloads with several pods.
    pub workloads: Vec<Workload>,
}

/// A workload with several pods.
#[derive(Debug)]
pub struct Workload {
    /// `Deployment team/web`.
    pub title: String,
    /// The number of replicas.
    pub replicas: usize,
    /// How many of its pods are on nodes already, and stay there.
    pub on_nodes: usize,
    /// How many are on nodes and make way for others, because they need something else than the template says now.
    pub replaced: usize,
    /// The pods to try, by namespace and name.
    pub pods: Vec<(String, String)>,
    /// Of a DaemonSet, for which each node is one question: the node of each pod to try.
    pub nodes: Option<Vec<String>>,
}

impl ClusterObjects {
    /// Adds objects as a user or `kubectl get` writes them: older versions are converted, defaults are set, claims of
    /// added pods generated from their templates, workloads replaced by their pods.
    ///
    /// # Errors
    /// An object has no name, or is of no version that can be read.
    pub fn add(&mut self, objects: Vec<Value>) -> anyhow::Result<AddedPods> {
        let mut added = AddedPods::default();
        let mut pods = Vec::new();
        let mut daemon_sets = Vec::new();
        for (number, mut object) in objects.into_iter().enumerate() {
            self.name(&mut object, number)?;
            if object["kind"] == "DaemonSet" {
                daemon_sets.push((number, object));
                continue;
            }
            let Some(replicas) = replicas(&object) else {
                let pod = self.add_one(object, number)?;
                added.pods.extend(pod.clone());
                pods.extend(pod);
                continue;
            };
            let replaced = self.remove_replaced(&object);
            let OwnPods {
                on_nodes,
                waiting: mut own,
                names: taken,
            } = self.pods_of(&object);
            let wanted = replicas.saturating_sub(on_nodes).min(MOST_REPLICAS);
            own.truncate(wanted);
            for index in 0.. {
                if own.len() >= wanted {
                    break;
                }
                let mut pod = pod_of_template(&object);
                if replicas > 1 {
                    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                    let name = format!("{name}-{index}");
                    if taken.contains(&name) {
                        continue;
                    }
                    pod["metadata"]["name"] = json!(name);
                }
                own.extend(self.add_one(pod, number)?);
            }
            pods.extend(own.iter().cloned());
            match replicas {
                1 if on_nodes + replaced == 0 => added.pods.extend(own),
                _ => added.workloads.push(Workload {
                    title: title(&object),
                    replicas,
                    on_nodes,
                    replaced,
                    pods: own,
                    nodes: None,
                }),
            }
        }
        // Their pods depend on the nodes, which may be further down in the files.
        for (number, set) in daemon_sets {
            let workload = self.add_daemon_set(&set, number)?;
            pods.extend(workload.pods.iter().cloned());
            added.workloads.push(workload);
        }
        for pod in &pods {
            self.make_claims(pod);
        }
        Ok(added)
    }

    /// Gives an object the name and the namespace that the server would.
    fn name(&self, object: &mut Value, number: usize) -> anyhow::Result<()> {
        if let (Value::Null, Value::String(prefix)) = (
            &object["metadata"]["name"],
            &object["metadata"]["generateName"],
        ) {
            object["metadata"]["name"] = json!(format!("{prefix}{number}"));
        }
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        anyhow::ensure!(
            text("/metadata/name").is_some_and(|name| !name.is_empty()),
            "{} has no name",
            title(object)
        );
        if text("/kind").is_some_and(has_namespace) {
            let namespace = &mut object["metadata"]["namespace"];
            if namespace.is_null() {
                *namespace = json!(self.namespace);
            }
        }
        Ok(())
    }

    /// Adds an object; the namespace and name of a pod.
    pub(super) fn add_one(
        &mut self,
        object: Value,
        number: usize,
    ) -> anyhow::Result<Option<(String, String)>> {
        let mut object = completed(object, self.now)?;
        let is_pod = object["kind"] == "Pod";
        if is_pod {
            // The form of claims in pods of 1.30, and the server's defaults.
            migrate::pod::flatten_claims(&mut object);
            allot_schema::defaults::apply("", "v1", "Pod", &mut object);
        }
        let (_, namespace, name) = identity(&object);
        let uid = &mut object["metadata"]["uid"];
        let is_new = uid.is_null();
        if is_new {
            *uid = match is_pod {
                true => json!(format!("added-{number}-{name}")),
                false => json!(format!("added-{number}")),
            };
        }
        if is_pod && is_new {
            self.remove_claims_of(&namespace, &name);
            self.new.insert((namespace.clone(), name.clone()));
        }
        self.put(object);
        Ok(is_pod.then_some((namespace, name)))
    }

    /// Removes the claims that were generated for a pod.
    pub(super) fn remove_claims_of(&mut self, namespace: &str, name: &str) {
        let Some(uid) = self
            .get("Pod", namespace, name)
            .map(|p| p["metadata"]["uid"].clone())
        else {
            return;
        };
        for object in self
            .objects
            .iter_mut()
            .filter(|o| o["kind"] == "ResourceClaim")
        {
            let owners = object["metadata"]["ownerReferences"].as_array();
            if owners
                .into_iter()
                .flatten()
                .any(|owner| owner["uid"] == uid)
            {
                self.places.remove(&identity(object));
                *object = Value::Null;
            }
        }
    }

    fn put(&mut self, object: Value) {
        let identity = identity(&object);
        match self.places.get(&identity) {
            Some(at) => self.objects[*at] = object,
            None => {
                self.places.insert(identity, self.objects.len());
                self.objects.push(object);
            }
        }
    }

    fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        let identity = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        self.places.get(&identity).map(|at| &self.objects[*at])
    }

    /// Whether the generated claim for an entry of a dumped pod exists.
    fn has_made(&self, pod: &Value, namespace: &str, entry: &str) -> bool {
        let statuses = pod["status"]["resourceClaimStatuses"].as_array();
        let mut made = statuses
            .into_iter()
            .flatten()
            .filter(|s| s["name"] == entry);
        made.any(|status| match status["resourceClaimName"].as_str() {
            Some(claim) => self.get("ResourceClaim", namespace, claim).is_some(),
            // None is needed.
            None => true,
        })
    }

    /// Generates the claims of a pod that come from templates, as the claim controller would, and sets the priority of
    /// its class.
    fn make_claims(&mut self, (namespace, name): &(String, String)) {
        let Some(mut pod) = self.get("Pod", namespace, name).cloned() else {
            return;
        };
        let statuses = pod["status"]["resourceClaimStatuses"].take();
        let mut statuses = statuses.as_array().cloned().unwrap_or_default();
        pod["status"]["resourceClaimStatuses"] = json!(statuses);
        for entry in pod["spec"]["resourceClaims"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let (Some(entry_name), Some(template)) = (
                entry["name"].as_str(),
                entry["resourceClaimTemplateName"].as_str(),
            ) else {
                continue;
            };
            if self.has_made(&pod, namespace, entry_name) {
                continue;
            }
            let found = self.get("ResourceClaimTemplate", namespace, template);
            let Some(found) = found else {
                // The explanation of the pod reports it.
                continue;
            };
            let claim_name = format!("{name}-{entry_name}");
            let claim = json!({
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {
                    "name": claim_name,
                    "namespace": namespace,
                    "uid": format!("{}-{entry_name}", pod["metadata"]["uid"].as_str().unwrap_or_default()),
                    "ownerReferences": [{
                        "apiVersion": "v1", "kind": "Pod", "name": name, "controller": true,
                        "uid": pod["metadata"]["uid"],
                    }],
                },
                "spec": found["spec"]["spec"],
            });
            statuses.retain(|status| status["name"] != entry_name);
            statuses.push(json!({"name": entry_name, "resourceClaimName": claim_name}));
            self.put(claim);
        }
        match statuses.is_empty() {
            true => {
                if let Some(status) = pod["status"].as_object_mut() {
                    status.remove("resourceClaimStatuses");
                }
            }
            false => pod["status"]["resourceClaimStatuses"] = json!(statuses),
        }
        let class = pod["spec"]["priorityClassName"].as_str();
        let class = class.and_then(|class| self.get("PriorityClass", "", class));
        if let (Some(class), true) = (class, pod["spec"]["priority"].is_null()) {
            let value = class["value"].clone();
            pod["spec"]["priority"] = value;
        }
        self.put(pod);
    }
}

/// The number of pods of a workload; `None` for other objects, and for a DaemonSet, whose number the nodes decide.
fn replicas(object: &Value) -> Option<usize> {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_u64);
    let wanted = match object["kind"].as_str()? {
        "Deployment" | "StatefulSet" | "ReplicaSet" | "ReplicationController" => {
            number("/spec/replicas").unwrap_or(1)
        }
        "Job" => {
            let at_once = number("/spec/parallelism").unwrap_or(1);
            number("/spec/completions").map_or(at_once, |all| all.min(at_once))
        }
        "CronJob" => number("/spec/jobTemplate/spec/parallelism").unwrap_or(1),
        _ => return None,
    };
    Some(usize::try_from(wanted).unwrap_or(usize::MAX))
}

/// A pod of a workload.
pub(super) fn pod_of_template(object: &Value) -> Value {
    let templates = ["/spec/template", "/spec/jobTemplate/spec/template"];
    let template = templates.iter().find_map(|at| object.pointer(at));
    let mut pod = template.cloned().unwrap_or_default();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    for field in ["name", "namespace"] {
        pod["metadata"][field] = object["metadata"][field].clone();
    }
    pod
}

/// Whether objects of a kind are in namespaces.
fn has_namespace(kind: &str) -> bool {
    const WORKLOADS: [&str; 7] = [
        "Deployment",
        "StatefulSet",
        "ReplicaSet",
        "ReplicationController",
        "DaemonSet",
        "Job",
        "CronJob",
    ];
    let mut kinds = Kinds::All.list().into_iter();
    WORKLOADS.contains(&kind) || kinds.any(|known| known.kind == kind && known.namespaced)
}
