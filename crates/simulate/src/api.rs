//! Reading and changing objects as clients of an API server would.

use allot_scheduler::pod::Key;
use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::{Value, json};

use crate::objects::LivePod;
use crate::simulation::Simulation;

impl Simulation {
    /// An object as the API server would show it. Pods that have ended are only there with
    /// [`Options::keep_objects`](crate::Options::keep_objects).
    #[must_use]
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = Key::new(namespace, name);
        let objects = &self.objects;
        match kind {
            "Pod" => match objects.pod_named(&key) {
                Some((_, live)) => Some(self.shown(live)),
                None => objects.finished.get(&key).cloned(),
            },
            "ResourceClaim" => Some(typed(kind, &**objects.claims.get(&key)?)),
            "ResourceClaimTemplate" => Some(typed(kind, objects.templates.get(&key)?)),
            _ => {
                let identity = (kind.to_owned(), namespace.to_owned(), name.to_owned());
                objects.others.get(&identity).cloned()
            }
        }
    }

    /// All objects of a kind in a namespace, or everywhere, by namespace and name.
    #[must_use]
    pub fn list(&self, kind: &str, namespace: Option<&str>) -> Vec<Value> {
        let objects = &self.objects;
        let mut keys: Vec<Key> = match kind {
            "Pod" => objects
                .names
                .keys()
                .chain(objects.finished.keys())
                .cloned()
                .collect(),
            "ResourceClaim" => objects.claims.keys().cloned().collect(),
            "ResourceClaimTemplate" => objects.templates.keys().cloned().collect(),
            _ => {
                let of_kind = objects.others.keys().filter(|(k, ..)| k == kind);
                of_kind.map(|(_, ns, name)| Key::new(ns, name)).collect()
            }
        };
        keys.retain(|key| namespace.is_none_or(|namespace| *key.namespace == *namespace));
        keys.sort_unstable();
        let object = |key: &Key| self.get(kind, &key.namespace, &key.name);
        keys.iter().filter_map(object).collect()
    }

    /// A pod with what its status says about the last attempt.
    fn shown(&self, live: &LivePod) -> Value {
        let mut pod = typed("Pod", &*live.pod);
        let record = &self.records[live.record];
        let conditions = &mut pod["status"]["conditions"];
        if !conditions.is_array() {
            *conditions = json!([]);
        }
        let condition = match (&live.node, &record.reason) {
            (Some(_), _) => json!({"type": "PodScheduled", "status": "True"}),
            (None, Some(reason)) => json!({
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": &**reason,
            }),
            (None, None) => return pod,
        };
        if let Some(conditions) = conditions.as_array_mut() {
            conditions.push(condition);
        }
        pod
    }

    /// Applies a merge patch (RFC 7386) to an object, its status included, and returns it as it is then; `None` when it
    /// is gone with that. A pod that is in phase `Succeeded` or `Failed` with it has ended.
    ///
    /// # Errors
    /// The object does not exist, or is no longer a valid object of its kind.
    pub fn patch(
        &mut self,
        kind: &str,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> anyhow::Result<Option<Value>> {
        let key = Key::new(namespace, name);
        let found = self.get(kind, namespace, name);
        let mut object = found.with_context(|| format!("there is no {kind} {key}"))?;
        merge(&mut object, patch);
        self.note_change();
        match kind {
            "Pod" => self.change_pod(&key, object)?,
            "ResourceClaim" => {
                let mut claim: ResourceClaim = serde_json::from_value(object)?;
                let finalizers = claim.metadata.finalizers.as_deref().unwrap_or_default();
                match claim.metadata.deletion_timestamp.is_some() && finalizers.is_empty() {
                    true => self.remove_claim(&key),
                    false => {
                        claim.metadata.resource_version = Some(self.objects.next_version());
                        self.show_claim(claim);
                    }
                }
            }
            _ => self.put(object)?,
        }
        self.carry_out();
        Ok(self.get(kind, namespace, name))
    }

    fn change_pod(&mut self, key: &Key, object: Value) -> anyhow::Result<()> {
        let mut pod: Pod = serde_json::from_value(object)?;
        let uid = self.objects.pod_named(key).map(|(uid, _)| uid.clone());
        let Some(uid) = uid else {
            let object = serde_json::to_value(&pod)?;
            self.objects.finished.insert(key.clone(), object);
            return Ok(());
        };
        if allot_scheduler::pod::is_finished(&pod) {
            self.pod_finishes(&uid, &pod);
            return Ok(());
        }
        // What was shown of the last attempt is kept apart.
        if let Some(conditions) = pod.status.as_mut().and_then(|s| s.conditions.as_mut()) {
            conditions.retain(|condition| condition.type_ != "PodScheduled");
        }
        self.show_pod(&uid, pod);
        Ok(())
    }

    /// Deletes a pod with a grace period of zero: it is removed at once, even if it is already terminating.
    ///
    /// # Errors
    /// There is no such pod.
    pub fn delete_now(&mut self, namespace: &str, name: &str) -> anyhow::Result<()> {
        let key = Key::new(namespace, name);
        if self.objects.finished.remove(&key).is_some() {
            return Ok(());
        }
        let uid = self.objects.pod_named(&key).map(|(uid, _)| uid.clone());
        let uid = uid.with_context(|| format!("there is no Pod {key}"))?;
        self.note_change();
        self.pod_stopped(&uid);
        Ok(())
    }
}

fn typed<T: serde::Serialize>(kind: &str, object: &T) -> Value {
    // What was read from JSON can be written as JSON.
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["kind"] = json!(kind);
    value
}

/// Applies a merge patch. The JSON parser limits the depth, and thereby the recursion.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (field, value) in fields {
        match value {
            Value::Null => {
                if let Some(object) = object.as_object_mut() {
                    object.remove(field);
                }
            }
            value => merge(&mut object[field], value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_are_merged() {
        let mut object = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        merge(
            &mut object,
            &json!({"a": {"b": null, "e": {"f": 3}}, "d": [2]}),
        );
        assert_eq!(object, json!({"a": {"c": 2, "e": {"f": 3}}, "d": [2]}));
    }
}
