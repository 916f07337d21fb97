//! Mutations of new pods: priority, tolerations, overhead.

use std::collections::BTreeMap;

use allot_apimachinery::{Quantity, well_known};
use allot_model::features::Feature;
use serde_json::{Value, json};

use super::Admission;
use super::{Attributes, Operation, forbidden, writes_whole_pod};
use crate::error::Result;
use crate::object::{at, child_mut, items, meta, text};

const CLASSES: &str = "scheduling.k8s.io/priorityclasses";
/// How long pods stay on an unreachable node.
const UNREACHABLE_SECONDS: i64 = 300;

/// Copies the topology labels of the node to a pod, or to a Binding, and replaces the values that it has.
pub(super) async fn topology_labels(
    core: &Admission,
    node: &str,
    object: &mut Value,
) -> Result<()> {
    const LABELS: [&str; 2] = [
        well_known::LABEL_TOPOLOGY_REGION,
        well_known::LABEL_TOPOLOGY_ZONE,
    ];
    let features = &core.config.features;
    if node.is_empty() || !features.enabled(Feature::PodTopologyLabelsAdmission) {
        return Ok(());
    }
    let Some(node) = core
        .stored_parts("nodes", node, &["metadata.labels"])
        .await?
    else {
        return Ok(());
    };
    for label in LABELS {
        if let Some(place) = node["metadata"]["labels"].get(label) {
            crate::object::metadata_mut(object);
            crate::object::child_mut(&mut object["metadata"], "labels")
                .insert(label.to_owned(), place.clone());
        }
    }
    Ok(())
}

/// The plugin LimitPodHardAntiAffinityTopology: refuses a pod that keeps others off more than a node.
pub(super) fn anti_affinity(attributes: &Attributes<'_>, pod: &Value) -> Result<()> {
    if !writes_whole_pod(attributes) {
        return Ok(());
    }
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = items(at(pod, &["spec", "affinity", "podAntiAffinity", required]));
    let mut keys = terms.iter().map(|term| text(term, &["topologyKey"]));
    let node = well_known::LABEL_HOSTNAME;
    let Some(other) = keys.find(|key| *key != node) else {
        return Ok(());
    };
    let why = format!(
        "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {other} but only key {node} is allowed"
    );
    Err(forbidden(attributes, &why))
}

/// The priority of the pod's class, or of the default class.
pub(super) async fn priority(
    core: &Admission,
    attributes: &Attributes<'_>,
    pod: &mut Value,
) -> Result<()> {
    let class = priority_class(core, attributes, pod).await?;
    let (value, policy, name) = match &class {
        Some(class) => (
            class["value"].as_i64().unwrap_or(0),
            class["preemptionPolicy"]
                .as_str()
                .unwrap_or("PreemptLowerPriority")
                .to_owned(),
            meta(class, "name").to_owned(),
        ),
        None => (0, "PreemptLowerPriority".to_owned(), String::new()),
    };
    if let Some(sent) = pod["spec"]["priority"].as_i64()
        && sent != value
    {
        let why = format!(
            "the integer value of priority ({sent}) must not be provided in pod spec; priority admission controller \
             computed {value} from the given PriorityClass name"
        );
        return Err(forbidden(attributes, &why));
    }
    if let Some(sent) = pod["spec"]["preemptionPolicy"].as_str()
        && sent != policy
    {
        let why = format!(
            "the string value of PreemptionPolicy ({sent}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        );
        return Err(forbidden(attributes, &why));
    }
    let spec = child_mut(pod, "spec");
    if !name.is_empty() {
        spec.insert("priorityClassName".to_owned(), name.into());
    }
    spec.insert("priority".to_owned(), value.into());
    spec.insert("preemptionPolicy".to_owned(), policy.into());
    Ok(())
}

/// The priority of a pod group, from its class or the default class.
pub(super) async fn group_priority(
    core: &Admission,
    attributes: &Attributes<'_>,
    group: &mut Value,
) -> Result<()> {
    if !core.config.features.has_workload_aware_preemption() {
        return Ok(());
    }
    let class = priority_class(core, attributes, group).await?;
    let value = class.as_ref().and_then(|class| class["value"].as_i64());
    let value = value.unwrap_or(0);
    if let Some(sent) = group["spec"]["priority"].as_i64()
        && sent != value
    {
        let why = format!(
            "priority set in the pod group ({sent}) must match the priority computed ({value}) based on the priority \
             class set in the spec"
        );
        return Err(forbidden(attributes, &why));
    }
    let spec = child_mut(group, "spec");
    if let Some(class) = &class {
        spec.insert("priorityClassName".to_owned(), meta(class, "name").into());
    }
    spec.insert("priority".to_owned(), value.into());
    Ok(())
}

/// The class that an object names in its spec, or the default class.
async fn priority_class(
    core: &Admission,
    attributes: &Attributes<'_>,
    object: &Value,
) -> Result<Option<Value>> {
    let named = text(object, &["spec", "priorityClassName"]);
    if named.is_empty() {
        return default_class(core).await;
    }
    let missing = || {
        forbidden(
            attributes,
            &format!("no PriorityClass with name {named} was found"),
        )
    };
    let found = core.stored(CLASSES, named).await?;
    Ok(Some(found.ok_or_else(missing)?))
}

/// An update without a priority keeps the old one: clients replace a pod with the manifest that it was created from.
pub(super) fn keep_priority(pod: &mut Value, old: Option<&Value>) {
    let Some(old) = old else { return };
    for key in ["priority", "preemptionPolicy"] {
        let kept = &old["spec"][key];
        if !kept.is_null() && pod["spec"].get(key).is_none_or(Value::is_null) {
            child_mut(pod, "spec").insert(key.to_owned(), kept.clone());
        }
    }
}

/// The lowest class that is marked as default.
async fn default_class(core: &Admission) -> Result<Option<Value>> {
    let page = core
        .backend
        .list(CLASSES, allot_store::ListOptions::default())
        .await?;
    // Few clusters have such a class: most entries need not be read.
    const MARK: &str = "\"globalDefault\":true";
    let classes = page
        .entries
        .iter()
        .filter(|entry| std::str::from_utf8(&entry.value).is_ok_and(|text| text.contains(MARK)))
        .filter_map(|entry| serde_json::from_slice::<Value>(&entry.value).ok());
    Ok(classes
        .filter(|class| class["globalDefault"] == true)
        .min_by_key(|class| class["value"].as_i64()))
}

/// Refuses a second default class.
pub(super) async fn one_default_class(
    core: &Admission,
    attributes: &Attributes<'_>,
    class: &Value,
) -> Result<()> {
    if class["globalDefault"] != true {
        return Ok(());
    }
    let Some(default) = default_class(core).await? else {
        return Ok(());
    };
    let name = meta(&default, "name");
    if attributes.operation == Operation::Update && name == meta(class, "name") {
        return Ok(());
    }
    let why =
        format!("PriorityClass {name} is already marked as default. Only one default can exist");
    Err(forbidden(attributes, &why))
}

/// Pods tolerate a node that is not ready or unreachable for a while, unless they specify otherwise.
pub(super) fn default_tolerations(pod: &mut Value) {
    let tolerations = pod["spec"]["tolerations"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut added = Vec::new();
    for key in [
        well_known::TAINT_NODE_NOT_READY,
        well_known::TAINT_NODE_UNREACHABLE,
    ] {
        let tolerated = tolerations.iter().any(|it| {
            let (its_key, effect) = (text(it, &["key"]), text(it, &["effect"]));
            (its_key == key || its_key.is_empty()) && matches!(effect, "NoExecute" | "")
        });
        if !tolerated {
            added.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": UNREACHABLE_SECONDS,
            }));
        }
    }
    if !added.is_empty() {
        pod["spec"]["tolerations"] = [tolerations, added].concat().into();
    }
}

/// Refuses a pod whose overhead is not that of its runtime class: a webhook may have changed it after [`runtime_class`].
pub(super) async fn overhead(
    core: &Admission,
    attributes: &Attributes<'_>,
    pod: &Value,
) -> Result<()> {
    let sent = &pod["spec"]["overhead"];
    let name = text(pod, &["spec", "runtimeClassName"]);
    let class = match name.is_empty() {
        true => None,
        false => {
            let class = "node.k8s.io/runtimeclasses";
            core.stored_parts(class, name, &["overhead"]).await?
        }
    };
    let why = match class.as_ref().map(|class| &class["overhead"]) {
        Some(overhead) if overhead.is_object() => {
            if is_same_overhead(&overhead["podFixed"], sent) {
                return Ok(());
            }
            OTHER_OVERHEAD
        }
        _ if is_same_overhead(&Value::Null, sent) => return Ok(()),
        _ => "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
    };
    Err(forbidden(attributes, why))
}

const OTHER_OVERHEAD: &str =
    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// Whether two overheads are the same amounts of the same resources; none is an empty one.
fn is_same_overhead(one: &Value, other: &Value) -> bool {
    let amounts = |overhead: &Value| -> BTreeMap<String, Option<Quantity>> {
        let all = overhead.as_object().into_iter().flatten();
        all.map(|(name, amount)| (name.clone(), amount.as_str().and_then(|it| it.parse().ok())))
            .collect()
    };
    amounts(one) == amounts(other)
}

/// Overhead and node restrictions of the pod's runtime class.
pub(super) async fn runtime_class(
    core: &Admission,
    attributes: &Attributes<'_>,
    pod: &mut Value,
) -> Result<()> {
    let name = text(pod, &["spec", "runtimeClassName"]).to_owned();
    if name.is_empty() {
        return Ok(());
    }
    let Some(class) = core.stored("node.k8s.io/runtimeclasses", &name).await? else {
        return Err(forbidden(
            attributes,
            &format!("pod rejected: RuntimeClass {name:?} not found"),
        ));
    };
    let overhead = &class["overhead"]["podFixed"];
    if overhead.is_object() {
        let sent = &pod["spec"]["overhead"];
        let is_set = sent.as_object().is_some_and(|sent| !sent.is_empty());
        if is_set && !is_same_overhead(sent, overhead) {
            return Err(forbidden(attributes, OTHER_OVERHEAD));
        }
        pod["spec"]["overhead"] = overhead.clone();
    }
    let scheduling = &class["scheduling"];
    for (key, value) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        let selector = child_mut(&mut pod["spec"], "nodeSelector");
        if selector.get(key).is_some_and(|known| known != value) {
            let why = format!(
                "pod rejected: conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; \
                 pod.spec.nodeSelector[{key}] = {}",
                value.as_str().unwrap_or_default(),
                selector[key].as_str().unwrap_or_default(),
            );
            return Err(forbidden(attributes, &why));
        }
        selector.insert(key.clone(), value.clone());
    }
    for toleration in scheduling["tolerations"].as_array().into_iter().flatten() {
        let mut list = pod["spec"]["tolerations"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        if !list.contains(toleration) {
            list.push(toleration.clone());
            pod["spec"]["tolerations"] = list.into();
        }
    }
    Ok(())
}
