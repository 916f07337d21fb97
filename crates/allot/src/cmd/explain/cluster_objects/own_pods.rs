//! The pods that a workload of a file has in the cluster already.

use std::collections::HashSet;

use allot_apimachinery::Quantity;
use allot_apimachinery::well_known::is_terminal_phase;
use allot_model::migrate;
use serde_json::Value;

use super::add::pod_of_template;
use super::{ClusterObjects, identity};

/// The pods that a workload has.
#[derive(Default)]
pub(super) struct OwnPods {
    /// How many are on nodes and not finished.
    pub(super) on_nodes: usize,
    /// Those that wait for a node, by namespace and name.
    pub(super) waiting: Vec<(String, String)>,
    /// The names of all of them, finished ones included.
    pub(super) names: HashSet<String>,
}

impl ClusterObjects {
    /// The pods that a workload has already.
    pub(super) fn pods_of(&self, workload: &Value) -> OwnPods {
        let mut own = OwnPods::default();
        for pod in self.objects.iter().filter(|o| owns(workload, o)) {
            let (_, namespace, name) = identity(pod);
            own.names.insert(name.clone());
            if is_over(pod) {
                continue;
            }
            match is_on_node(pod) {
                true => own.on_nodes += 1,
                false => own.waiting.push((namespace, name)),
            }
        }
        own
    }

    /// Removes the pods of a workload that need something else than its template says, with the claims that were generated
    /// for them: when the file is applied, pods of the new template take their place. Returns how many of them are on nodes.
    pub(super) fn remove_replaced(&mut self, workload: &Value) -> usize {
        if !rolls_out(workload) {
            return 0;
        }
        let mut template = pod_of_template(workload);
        migrate::pod::flatten_claims(&mut template);
        allot_schema::defaults::apply("", "v1", "Pod", &mut template);
        if workload["kind"] == "DaemonSet"
            && let Some(Value::Object(affinity)) =
                template.pointer_mut("/spec/affinity/nodeAffinity")
        {
            // The controller replaces it by the node that each pod is for.
            affinity.remove("requiredDuringSchedulingIgnoredDuringExecution");
        }
        let others = self.objects.iter().filter(|pod| {
            owns(workload, pod) && !is_over(pod) && !has_needs(&pod["spec"], &template["spec"])
        });
        let others: Vec<Value> = others.cloned().collect();
        for pod in &others {
            let (_, namespace, name) = identity(pod);
            self.remove_claims_of(&namespace, &name);
            if let Some(at) = self.places.remove(&identity(pod)) {
                self.objects[at] = Value::Null;
            }
        }
        others.iter().filter(|pod| is_on_node(pod)).count()
    }
}

/// Whether a new template reaches the pods that are there.
fn rolls_out(workload: &Value) -> bool {
    let spec = &workload["spec"];
    match workload["kind"].as_str() {
        Some("Deployment") => spec["paused"] != true,
        Some("StatefulSet" | "DaemonSet") => spec["updateStrategy"]["type"] != "OnDelete",
        _ => false,
    }
}

/// Fields of a pod that decide where it goes. Admission and controllers may add to them, but take nothing away.
const NEEDS: [&str; 10] = [
    "affinity",
    "hostNetwork",
    "nodeSelector",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
];

/// Whether a pod needs the same as a template.
fn has_needs(pod: &Value, template: &Value) -> bool {
    let containers = ["containers", "initContainers"].iter().all(|list| {
        let wanted = template[list].as_array().into_iter().flatten();
        let mut wanted = wanted.map(|c| (&c["name"], &c["resources"]));
        let found = || pod[list].as_array().into_iter().flatten();
        wanted.all(|(name, resources)| {
            let mut same = found().filter(|c| c["name"] == *name);
            same.any(|container| is_within(resources, &container["resources"]))
        })
    });
    // Only the template adds to these, and a RuntimeClass to the node selector.
    let by_class = !template["runtimeClassName"].is_null();
    let exact = ["nodeSelector", "resourceClaims"].iter();
    let exact = exact.filter(|field| **field != "nodeSelector" || !by_class);
    let mut exact = exact.map(|field| (&pod[field], &template[field]));
    containers
        && NEEDS
            .iter()
            .all(|field| is_within(&template[field], &pod[field]))
        && exact.all(|(pod, template)| is_within(pod, template))
}

/// Whether a value has all that another one has. Quantities are compared by value.
fn is_within(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Null, _) => true,
        (Value::Object(wanted), found) => wanted.iter().all(|(k, v)| is_within(v, &found[k])),
        (Value::Array(wanted), found) => {
            let found = || found.as_array().into_iter().flatten();
            wanted.iter().all(|w| found().any(|f| is_within(w, f)))
        }
        (wanted, found) => {
            wanted == found || quantity(wanted).is_some_and(|w| quantity(found) == Some(w))
        }
    }
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// Whether an object is a pod of a workload. Those of a Deployment belong to a ReplicaSet with its name and the hash of
/// their template. A workload as its author wrote it has no UID: it is the one with its name.
pub(super) fn owns(workload: &Value, object: &Value) -> bool {
    if object["kind"] != "Pod" {
        return false;
    }
    let text = |object: &Value, pointer: &str| {
        let text = object.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let (uid, kind) = (text(workload, "/metadata/uid"), text(workload, "/kind"));
    let namespace = text(workload, "/metadata/namespace");
    let owners = object.pointer("/metadata/ownerReferences");
    let owners = owners.and_then(Value::as_array).into_iter().flatten();
    let mut controllers = owners.filter(|owner| owner["controller"] == true);
    let replica_set = format!(
        "{}-{}",
        text(workload, "/metadata/name"),
        text(object, "/metadata/labels/pod-template-hash")
    );
    namespace == text(object, "/metadata/namespace")
        && controllers.any(|owner| match kind == "Deployment" {
            true => owner["kind"] == "ReplicaSet" && owner["name"] == *replica_set,
            false if uid.is_empty() => {
                owner["kind"] == *kind && owner["name"] == *text(workload, "/metadata/name")
            }
            false => owner["uid"] == *uid,
        })
}

/// Whether a pod has finished or is being deleted, so that its workload needs another one.
pub(super) fn is_over(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str);
    phase.is_some_and(is_terminal_phase) || !pod["metadata"]["deletionTimestamp"].is_null()
}

/// Whether a pod is bound to a node.
pub(super) fn is_on_node(pod: &Value) -> bool {
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str);
    node.is_some_and(|node| !node.is_empty())
}
