//! Accessors for object metadata, label selectors and pods that many controllers share.

use std::collections::BTreeMap;

use allot_apimachinery::well_known::is_terminal_phase;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Resource;
use serde_json::{Value, json};

/// The UID; empty if the object has none yet.
pub fn uid<K: Resource>(obj: &K) -> &str {
    obj.meta().uid.as_deref().unwrap_or_default()
}

/// The name; empty if the object has none yet.
pub fn name<K: Resource>(obj: &K) -> &str {
    obj.meta().name.as_deref().unwrap_or_default()
}

/// The namespace; empty for cluster-scoped objects.
pub fn namespace<K: Resource>(obj: &K) -> &str {
    obj.meta().namespace.as_deref().unwrap_or_default()
}

/// The generation; 0 if the object has none.
pub fn generation<K: Resource>(obj: &K) -> i64 {
    obj.meta().generation.unwrap_or(0)
}

/// Whether deletion has begun.
pub fn deleting<K: Resource>(obj: &K) -> bool {
    obj.meta().deletion_timestamp.is_some()
}

/// The owner that manages the object.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references
        .as_deref()
        .unwrap_or_default()
        .iter()
        .find(|o| o.controller == Some(true))
}

/// Whether `owner` manages the object.
pub fn is_controlled_by(meta: &ObjectMeta, owner_uid: &str) -> bool {
    controller_of(meta).is_some_and(|o| o.uid == owner_uid)
}

/// The owner reference of a managing controller that blocks the owner's deletion.
pub fn controller_ref<K: Resource<DynamicType = ()>>(owner: &K) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "name": name(owner),
        "uid": uid(owner),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// The value of an annotation.
pub fn annotation<'a, K: Resource>(obj: &'a K, key: &str) -> Option<&'a str> {
    obj.meta()
        .annotations
        .as_ref()?
        .get(key)
        .map(String::as_str)
}

/// Whether a label selector selects these labels. An empty selector selects everything; an unknown
/// operator selects nothing.
pub fn selects(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    let empty = BTreeMap::new();
    let labels = labels.unwrap_or(&empty);
    let pairs = selector.match_labels.iter().flatten();
    let terms = selector.match_expressions.iter().flatten();
    pairs.into_iter().all(|(k, v)| labels.get(k) == Some(v))
        && terms.into_iter().all(|term| {
            let value = labels.get(&term.key);
            let values = term.values.as_deref().unwrap_or_default();
            match term.operator.as_str() {
                "In" => value.is_some_and(|v| values.contains(v)),
                "NotIn" => value.is_none_or(|v| !values.contains(v)),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// Whether a selector has no requirement at all.
pub fn is_empty_selector(selector: &LabelSelector) -> bool {
    selector
        .match_labels
        .as_ref()
        .is_none_or(BTreeMap::is_empty)
        && selector
            .match_expressions
            .as_ref()
            .is_none_or(Vec::is_empty)
}

/// The pod's phase; empty if unset.
pub fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|s| s.phase.as_deref())
        .unwrap_or_default()
}

/// Whether the pod has finished, by its phase.
pub fn is_finished(pod: &Pod) -> bool {
    is_terminal_phase(phase(pod))
}

/// The node the pod is bound to; empty if it is not.
pub fn node_name(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|s| s.node_name.as_deref())
        .unwrap_or_default()
}

/// The condition of this type in the status of a pod.
pub fn pod_condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|c| c.type_ == kind)
}

/// Whether the condition `Ready` of the pod is true.
pub fn is_ready(pod: &Pod) -> bool {
    pod_condition(pod, "Ready").is_some_and(|c| c.status == "True")
}

/// Whether the pod is neither finished nor being deleted.
pub fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && !deleting(pod)
}

/// Whether the pod has been ready for that many seconds; `Err` carries the time that is missing.
pub fn is_available(
    pod: &Pod,
    min_ready_seconds: i32,
    now: jiff::Timestamp,
) -> Result<(), Option<std::time::Duration>> {
    let Some(ready) = pod_condition(pod, "Ready").filter(|c| c.status == "True") else {
        return Err(None);
    };
    if min_ready_seconds <= 0 {
        return Ok(());
    }
    let Some(since) = &ready.last_transition_time else {
        return Err(None);
    };
    let wait = jiff::SignedDuration::from_secs(i64::from(min_ready_seconds));
    let at = super::clock::shifted(since.0, wait);
    if at <= now {
        Ok(())
    } else {
        Err(Some(super::clock::until(now, at)))
    }
}

/// Resolves an int-or-percent value against a total.
pub fn scaled(
    value: Option<&k8s_openapi::apimachinery::pkg::util::intstr::IntOrString>,
    total: i32,
    round_up: bool,
    default: i32,
) -> i32 {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    match value {
        None => default,
        Some(IntOrString::Int(n)) => *n,
        Some(IntOrString::String(text)) => {
            let Some(percent) = text.strip_suffix('%').and_then(|p| p.parse::<i64>().ok()) else {
                return default;
            };
            // Of a percentage validation checks the form only.
            let product = percent.saturating_mul(i64::from(total));
            let rounded = if round_up {
                product.saturating_add(99) / 100
            } else {
                product / 100
            };
            i32::try_from(rounded).unwrap_or(i32::MAX)
        }
    }
}
