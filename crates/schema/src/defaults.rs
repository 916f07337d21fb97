//! Defaults of built-in kinds: what upstream's defaulting functions fill in before an object is validated.
//!
//! The object is walked by type. Each struct type has at most one rule, which sees the struct before those inside it; kinds have one more
//! for what applies to the whole object only. Defaults that the published schema names come from the type data. The kinds of
//! `resource.k8s.io` are defaulted by the `model` crate.

use serde_json::{Map, Value, json};

use crate::{
    decode,
    types::{self, Struct, Type},
};

mod admission;
mod apps;
mod core;
mod pod;

type Object = Map<String, Value>;

/// Fills in the defaults of a decoded object, in the version that it is written in.
pub fn apply(group: &str, version: &str, kind: &str, object: &mut Value) {
    let Some(structure) = types::lookup(group, version, kind) else {
        return;
    };
    if let Value::Object(map) = object {
        match (group, kind) {
            ("", "Pod") => pod::whole(map),
            ("", "Secret") => core::secret(map),
            ("", "Namespace") => core::namespace(map),
            ("", "ReplicationController") => core::replication_controller(map),
            ("", "Service") => core::service(map),
            ("", "Node") => core::node(map),
            ("apps", "Deployment") => apps::deployment(map),
            ("apps", "DaemonSet") => apps::daemon_set(map),
            ("apps", "StatefulSet") => apps::stateful_set(map),
            ("apps", "ReplicaSet") => apps::replica_set(map),
            ("batch", "Job") => apps::job(map),
            _ => {}
        }
    }
    walk(object, structure);
    decode::normalize(object, structure);
}

/// Fills in the defaults of a pod template that stands alone (as in claims of controllers); `object` is a `PodTemplateSpec`.
pub fn pod_template(object: &mut Value) {
    if let Some(id) = types::by_name("io.k8s.api.core.v1.PodTemplateSpec") {
        walk(object, id.get());
        decode::normalize(object, id.get());
    }
}

fn walk(value: &mut Value, structure: &'static Struct) {
    let Value::Object(map) = value else { return };
    rule(structure.name, map);
    for field in &structure.fields {
        if let Some(default) = &field.default
            && (field.pointer || !is_zero(default))
            && map
                .get(field.name)
                .is_none_or(|value| value.is_null() || (!field.pointer && is_zero(value)))
        {
            map.insert(field.name.to_owned(), default.clone());
        }
    }
    // Most fields of an object are usually unset.
    for (name, value) in map.iter_mut() {
        if let Some(field) = structure.field(name) {
            walk_type(value, &field.ty);
        }
    }
}

fn walk_type(value: &mut Value, ty: &Type) {
    match (ty, value) {
        (Type::Struct(id), value) => walk(value, id.get()),
        (Type::List(element), Value::Array(items)) => {
            items.iter_mut().for_each(|item| walk_type(item, element))
        }
        (Type::Map(element), Value::Object(map)) => {
            map.values_mut().for_each(|item| walk_type(item, element))
        }
        _ => {}
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Sets a field that is absent, null or an empty string.
fn set(map: &mut Object, key: &str, value: impl Into<Value>) {
    if map
        .get(key)
        .is_none_or(|found| found.is_null() || found == "")
    {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets a field that is absent or null. Upstream's type is a pointer or a list, of which an empty value is one.
fn set_absent(map: &mut Object, key: &str, value: impl Into<Value>) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), value.into());
    }
}

/// The object under a key, made where it is absent.
fn child<'a>(map: &'a mut Object, key: &str) -> Option<&'a mut Object> {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), json!({}));
    }
    map.get_mut(key)?.as_object_mut()
}

fn text<'a>(map: &'a Object, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The rule of a struct type.
fn rule(name: &str, map: &mut Object) {
    let Some(name) = name.strip_prefix("io.k8s.api.") else {
        if name.ends_with("apiregistration.v1.ServiceReference") {
            set(map, "port", 443);
        }
        return;
    };
    match name {
        "core.v1.PodSpec" => pod::spec(map),
        "core.v1.Container" | "core.v1.EphemeralContainer" => pod::container(map),
        "core.v1.Probe" => pod::probe(map),
        "core.v1.HTTPGetAction" => {
            set(map, "path", "/");
            set(map, "scheme", "HTTP");
        }
        "core.v1.Volume" => pod::volume(map),
        "core.v1.SecretVolumeSource"
        | "core.v1.ConfigMapVolumeSource"
        | "core.v1.DownwardAPIVolumeSource"
        | "core.v1.ProjectedVolumeSource" => set(map, "defaultMode", 0o644),
        "core.v1.ServiceAccountTokenProjection" => set(map, "expirationSeconds", 3600),
        "core.v1.HostPathVolumeSource" if !map.contains_key("type") => {
            map.insert("type".to_owned(), "".into());
        }
        "core.v1.ObjectFieldSelector" => set(map, "apiVersion", "v1"),
        "core.v1.PersistentVolumeSpec" => {
            set(map, "persistentVolumeReclaimPolicy", "Retain");
            set_absent(map, "volumeMode", "Filesystem");
        }
        "core.v1.PersistentVolumeClaimSpec" => set_absent(map, "volumeMode", "Filesystem"),
        "core.v1.PersistentVolume" | "core.v1.PersistentVolumeClaim" => {
            if let Some(status) = child(map, "status") {
                set(status, "phase", "Pending");
            }
        }
        "core.v1.EndpointPort" => set(map, "protocol", "TCP"),
        "core.v1.LimitRangeItem" => core::limit_range_item(map),
        "networking.v1.NetworkPolicySpec" => core::network_policy(map),
        "networking.v1.NetworkPolicyPort" => set_absent(map, "protocol", "TCP"),
        "networking.v1.IngressClassParametersReference" => set_absent(map, "scope", "Cluster"),
        "discovery.v1.EndpointPort" => {
            if !map.contains_key("name") {
                map.insert("name".to_owned(), "".into());
            }
            set_absent(map, "protocol", "TCP");
        }
        "batch.v1.CronJobSpec" => apps::cron_job(map),
        "batch.v1.PodFailurePolicyOnPodConditionsPattern" => set(map, "status", "True"),
        "autoscaling.v1.HorizontalPodAutoscalerSpec" => set(map, "minReplicas", 1),
        "autoscaling.v2.HorizontalPodAutoscalerSpec" => apps::autoscaler(map),
        "rbac.v1.RoleRef" => set(map, "apiGroup", "rbac.authorization.k8s.io"),
        "rbac.v1.Subject" => core::subject(map),
        "scheduling.v1.PriorityClass" => {
            set_absent(map, "preemptionPolicy", "PreemptLowerPriority")
        }
        "storage.v1.StorageClass" => {
            set_absent(map, "reclaimPolicy", "Delete");
            set_absent(map, "volumeBindingMode", "Immediate");
        }
        "storage.v1.CSIDriverSpec" => core::csi_driver(map),
        "flowcontrol.v1.FlowSchemaSpec" if map.get("matchingPrecedence").is_none_or(is_zero) => {
            map.insert("matchingPrecedence".to_owned(), 1000.into());
        }
        "flowcontrol.v1.LimitedPriorityLevelConfiguration" => core::limited_level(map),
        name if name.starts_with("admissionregistration.") => admission::rule(name, map),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
