//! Preparation of objects for create and update: fields that the server sets, and fields that a write cannot change.

use allot_model::features::Features;
use serde_json::{Map, Value, json};

use super::{certificates, fields, groups, is_definition, services};
use crate::classic;
use crate::jobs;
use crate::object::{child_mut, metadata_mut};
use crate::registry::Resource;
use crate::request::Part;
use crate::versions::dra_kind;

/// Kinds whose `metadata.generation` counts changes of the spec.
fn has_generation(resource: &Resource) -> bool {
    let (group, plural) = (resource.group.as_str(), resource.plural.as_str());
    match group {
        "" => matches!(plural, "pods" | "replicationcontrollers" | "podtemplates"),
        "apps" => plural != "controllerrevisions",
        "batch"
        | "admissionregistration.k8s.io"
        | "flowcontrol.apiserver.k8s.io"
        | "policy"
        | "apiextensions.k8s.io" => true,
        "networking.k8s.io" => matches!(plural, "ingresses" | "ingressclasses" | "networkpolicies"),
        "discovery.k8s.io" => true,
        "resource.k8s.io" => matches!(
            plural,
            "deviceclasses" | "resourceslices" | "devicetaintrules"
        ),
        "storage.k8s.io" => plural == "csidrivers",
        "scheduling.k8s.io" => plural == "priorityclasses",
        _ => resource.custom.is_some(),
    }
}

/// Whether the spec changed, which increments the generation.
fn spec_changed(resource: &Resource, new: &Value, old: &Value) -> bool {
    if resource.custom.is_some()
        || matches!(
            resource.group.as_str(),
            "discovery.k8s.io" | "admissionregistration.k8s.io"
        )
    {
        let strip = |value: &Value| {
            let mut map = value.as_object().cloned().unwrap_or_default();
            for key in ["metadata", "status", "kind", "apiVersion"] {
                map.remove(key);
            }
            map
        };
        return strip(new) != strip(old);
    }
    // The generation of a deployment also counts changes of annotations: they are copied to replica sets.
    if resource.is("", "podtemplates") {
        return new["template"] != old["template"];
    }
    let annotations = resource.is("apps", "deployments")
        && new["metadata"]["annotations"] != old["metadata"]["annotations"];
    annotations || new["spec"] != old["spec"]
}

/// Sets the initial state of a new object.
pub fn prepare_for_create(features: &Features, resource: &Resource, object: &mut Value) {
    if let Some(kind) = classic::kind_of(resource, object) {
        return allot_model::classic::prepare_for_create(kind, object);
    }
    if let Some(kind) = dra_kind(resource) {
        return allot_model::strategy::prepare_for_create(kind, object, features);
    }
    crate::pods::drop_disabled_claims(features, resource, object, &Value::Null);
    crate::pods::drop_disabled_fields(features, resource, object, &Value::Null);
    groups::drop_disabled(features, resource, object, &Value::Null);
    fields::prepare(resource, object, &Value::Null, Part::Main);
    let has_status = resource.subresource("status").is_some();
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => {
            object["status"] =
                json!({"phase": "Pending", "qosClass": crate::pods::qos_class(object)});
            if object["spec"]["schedulingGates"]
                .as_array()
                .is_some_and(|gates| !gates.is_empty())
            {
                object["status"]["conditions"] = json!([{
                    "type": "PodScheduled", "status": "False", "lastProbeTime": null,
                    "lastTransitionTime": crate::object::now(), "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }]);
            }
            crate::pods::merge_label_keys(object);
            let grace = &object["spec"]["terminationGracePeriodSeconds"];
            if grace.as_i64().is_some_and(|seconds| seconds < 0) {
                object["spec"]["terminationGracePeriodSeconds"] = 1.into();
            }
        }
        ("", "namespaces") => {
            object["status"] = json!({"phase": "Active"});
            let finalizers = child_mut(object, "spec")
                .entry("finalizers")
                .or_insert_with(|| json!([]));
            if let Value::Array(list) = finalizers
                && !list.iter().any(|it| it == "kubernetes")
            {
                list.push("kubernetes".into());
            }
        }
        ("", "nodes") => drop_node_config(object),
        ("", "persistentvolumeclaims") => {
            object["status"] = json!({"phase": "Pending"});
            data_sources(object);
        }
        ("", "persistentvolumes") => {
            let now = crate::object::now();
            object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": now});
        }
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            allot_schema::definition::initial_status(object);
        }
        _ if resource.custom.is_some() => {
            if has_status && let Value::Object(map) = object {
                map.remove("status");
            }
        }
        _ if has_status => match object["status"] {
            Value::Null => {}
            _ => object["status"] = json!({}),
        },
        _ => {}
    }
    if resource.is("coordination.k8s.io", "leases") {
        drop_coordination(object, &Value::Null);
    }
    if resource.is("storage.k8s.io", "csidrivers") {
        // This kind has no generation until its first change.
        metadata_mut(object).remove("generation");
    } else if has_generation(resource) {
        metadata_mut(object).insert("generation".to_owned(), 1.into());
    }
    if resource.is("apps", "daemonsets") {
        set_template_generation(object, 1);
    }
    if resource.is("batch", "jobs") {
        jobs::generate_selector(object);
    }
}

/// Sets the generated name of a new object, and of a namespace the label with its name; other namespaces get that by
/// defaulting.
pub fn set_generated_name(resource: &Resource, object: &mut Value, name: String) {
    if resource.is("", "namespaces") {
        metadata_mut(object);
        let labels = child_mut(&mut object["metadata"], "labels");
        labels.insert(
            "kubernetes.io/metadata.name".to_owned(),
            name.as_str().into(),
        );
    }
    metadata_mut(object).insert("name".to_owned(), name.into());
}

/// Keeps the two data source fields of a claim in sync.
fn data_sources(claim: &mut Value) {
    let Some(spec) = claim["spec"].as_object_mut() else {
        return;
    };
    // `dataSource` only allows the kinds that it has always allowed.
    let source = spec.get("dataSource").unwrap_or(&Value::Null);
    let part = |key: &str| crate::object::text(source, &[key]);
    if !matches!(
        (part("apiGroup"), part("kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    ) {
        spec.remove("dataSource");
    }
    let in_namespace = |source: &Value| !crate::object::text(source, &["namespace"]).is_empty();
    // Volumes cannot be populated from other namespaces yet.
    if spec.get("dataSourceRef").is_some_and(in_namespace) {
        spec.remove("dataSourceRef");
    }
    for (from, to) in [
        ("dataSource", "dataSourceRef"),
        ("dataSourceRef", "dataSource"),
    ] {
        let source = spec.get(from).filter(|source| source.is_object());
        if let Some(source) = source.cloned()
            && spec.get(to).is_none_or(Value::is_null)
        {
            spec.insert(to.to_owned(), source);
        }
    }
}

/// Removes the fields of dynamic kubelet configuration, which has been removed from Kubernetes.
fn drop_node_config(node: &mut Value) {
    for (part, key) in [("spec", "configSource"), ("status", "config")] {
        if let Some(Value::Object(part)) = node.get_mut(part) {
            part.remove(key);
        }
    }
}

/// Removes the fields of coordinated leader election from a lease, unless it had them before: the feature is off by
/// default.
fn drop_coordination(lease: &mut Value, old: &Value) {
    if let Some(spec) = lease["spec"].as_object_mut() {
        for key in ["strategy", "preferredHolder"] {
            if old[key].is_null() {
                spec.remove(key);
            }
        }
    }
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Writes the template generation of a daemon set to the annotation that old clients read.
fn set_template_generation(object: &mut Value, generation: i64) {
    metadata_mut(object);
    child_mut(&mut object["metadata"], "annotations").insert(
        TEMPLATE_GENERATION.to_owned(),
        generation.to_string().into(),
    );
}

/// Upstream's conversion writes the annotation always, so it is among the fields of every sender.
pub(super) fn default_template_generation(object: &mut Value) {
    if object["metadata"]["annotations"][TEMPLATE_GENERATION].is_null() {
        set_template_generation(object, 0);
    }
}

/// Reverts the fields of an update that this endpoint must not change.
pub fn prepare_for_update(
    features: &Features,
    resource: &Resource,
    object: &mut Value,
    old: &Value,
    part: Part,
) {
    if let Some(kind) = classic::kind_of(resource, object) {
        return classic::prepare_for_update(kind, object, old, part);
    }
    if let Some(kind) = dra_kind(resource) {
        return match part {
            Part::Status => {
                allot_model::strategy::prepare_for_status_update(kind, object, old, features)
            }
            _ => {
                allot_model::strategy::prepare_for_update(
                    kind,
                    object,
                    old,
                    features,
                    jiff::Timestamp::now(),
                );
            }
        };
    }
    crate::pods::drop_disabled_claims(features, resource, object, old);
    crate::pods::drop_disabled_fields(features, resource, object, old);
    groups::drop_disabled(features, resource, object, old);
    let has_status = resource.subresource("status").is_some();
    match part {
        Part::Main if has_status => {
            keep(object, old, "status");
            if resource.is("", "namespaces") {
                keep(
                    crate::object::child_entry(object, "spec"),
                    &old["spec"],
                    "finalizers",
                );
            }
        }
        Part::Main | Part::Sub => {}
        // The spec of a namespace contains only its finalizers.
        Part::Finalize => keep(object, old, "status"),
        Part::EphemeralContainers => keep_but(object, old, &["spec", "ephemeralContainers"]),
        Part::Approval => {
            let conditions = object["status"]["conditions"].clone();
            keep(object, old, "spec");
            keep(object, old, "status");
            let status = child_mut(object, "status");
            match conditions {
                Value::Null => status.remove("conditions"),
                conditions => status.insert("conditions".to_owned(), conditions),
            };
        }
        Part::Resize => {
            let mut kept = old.clone();
            for list in ["containers", "initContainers"] {
                let of = |pod: &Value| pod["spec"][list].as_array().cloned().unwrap_or_default();
                let before = of(old);
                let resized = of(object).into_iter().map(|new| {
                    // Validation rejects reordered, added or removed containers.
                    match before.iter().find(|it| it["name"] == new["name"]) {
                        None => new,
                        Some(container) => {
                            let mut container = container.clone();
                            keep(&mut container, &new, "resources");
                            keep(&mut container, &new, "resizePolicy");
                            container
                        }
                    }
                });
                let resized = resized.collect::<Vec<_>>();
                if !resized.is_empty() || !before.is_empty() {
                    kept["spec"][list] = resized.into();
                }
            }
            keep(&mut kept["spec"], &object["spec"], "resources");
            adopt(object, kept);
        }
        Part::Status => {
            keep_all_but_status(resource, object, old);
            if resource.is("", "pods") {
                crate::pods::keep_reported(object, old);
            }
        }
    }
    fields::prepare(resource, object, old, part);
    if resource.group == "certificates.k8s.io" {
        if part == Part::Main {
            keep(object, old, "spec");
        }
        certificates::prepare_status(object, old, part);
    }
    if resource.is("coordination.k8s.io", "leases") {
        drop_coordination(object, &old["spec"]);
    }
    if resource.is("", "nodes") && old["status"]["config"].is_null() {
        drop_node_config(object);
    }
    if part == Part::Main && resource.is("", "services") {
        services::follow_type(object, old);
    }
    if part == Part::Main && is_definition(resource) {
        allot_schema::definition::note_storage_version(object);
    }
    if resource.is("apps", "daemonsets") && part == Part::Main {
        let known = old["metadata"]["annotations"][TEMPLATE_GENERATION].as_str();
        let known = known.and_then(|text| text.parse::<i64>().ok()).unwrap_or(1);
        let changed = object["spec"]["template"] != old["spec"]["template"];
        set_template_generation(object, known + i64::from(changed));
    }
    if has_generation(resource) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        let next = if !matches!(part, Part::Status | Part::Finalize)
            && spec_changed(resource, object, old)
        {
            generation + 1
        } else {
            generation
        };
        if next > 0 {
            metadata_mut(object).insert("generation".to_owned(), next.into());
        }
    }
}

/// Restores everything except for the status. Most values are usually unchanged already.
fn keep_all_but_status(resource: &Resource, object: &mut Value, old: &Value) {
    let (Value::Object(map), Value::Object(old)) = (object, old) else {
        return;
    };
    restore(map, old, |key| {
        !matches!(key, "status" | "metadata" | "apiVersion")
    });
    if let (Some(Value::Object(metadata)), Some(Value::Object(old))) =
        (map.get_mut("metadata"), old.get("metadata"))
    {
        restore(metadata, old, |key| match key {
            "labels" | "annotations" | "finalizers" | "ownerReferences" => {
                status_keeps(resource, key)
            }
            "managedFields" | "resourceVersion" => false,
            // These fields identify the object: validation compares them with those of the current object. For custom
            // objects and flow control upstream uses only the status of the request.
            _ if IDENTITY.contains(&key) => {
                resource.custom.is_some() || resource.group == "flowcontrol.apiserver.k8s.io"
            }
            "deletionTimestamp" => resets_metadata(resource),
            _ => true,
        });
    }
    if map.get("status").is_some_and(Value::is_null) {
        map.remove("status");
    }
}

/// Metadata that identifies the object, which no strategy may reset before it is compared: a status update for a
/// deleted object must not reach its successor.
const IDENTITY: [&str; 4] = ["uid", "name", "namespace", "deletionGracePeriodSeconds"];

/// Kinds whose status endpoints ignore a deletion timestamp; others reject it.
fn resets_metadata(resource: &Resource) -> bool {
    resource.custom.is_some()
        || matches!(
            (resource.group.as_str(), resource.plural.as_str()),
            ("", "pods")
                | (
                    "admissionregistration.k8s.io",
                    "validatingadmissionpolicies"
                )
                | ("apiextensions.k8s.io", "customresourcedefinitions")
                | ("networking.k8s.io", "servicecidrs")
                | ("resource.k8s.io" | "storagemigration.k8s.io", _)
                | ("scheduling.k8s.io", "podgroups")
                | ("storage.k8s.io", "volumeattachments")
        )
}

/// Restores the previous values of the chosen members.
fn restore(map: &mut Map<String, Value>, old: &Map<String, Value>, choose: impl Fn(&str) -> bool) {
    map.retain(|key, _| !choose(key) || old.contains_key(key));
    for (key, value) in old {
        if choose(key) && map.get(key) != Some(value) {
            map.insert(key.clone(), value.clone());
        }
    }
}

/// Metadata that a status update cannot change. Most built-in kinds allow a status update to change all metadata;
/// newer kinds allow no change of it (`ResetObjectMetaForStatus`).
fn status_keeps(resource: &Resource, key: &str) -> bool {
    match (resource.group.as_str(), resource.plural.as_str()) {
        // The revision of a deployment is an annotation that is written with the status; labels are not.
        ("apps", "deployments") => key == "labels",
        ("", "pods") => key == "ownerReferences",
        _ => status_keeps_metadata(resource),
    }
}

/// Kinds whose status subresource cannot change the metadata.
pub fn status_keeps_metadata(resource: &Resource) -> bool {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("admissionregistration.k8s.io", "validatingadmissionpolicies")
        | ("apiregistration.k8s.io", "apiservices")
        | ("flowcontrol.apiserver.k8s.io", _)
        | ("networking.k8s.io", "servicecidrs")
        | ("resource.k8s.io" | "storagemigration.k8s.io", _)
        | ("scheduling.k8s.io", "podgroups")
        | ("storage.k8s.io", "volumeattachments") => true,
        _ => resource.custom.is_some(),
    }
}

/// Restores everything except for the value at a path.
fn keep_but(object: &mut Value, old: &Value, path: &[&str]) {
    let sent = path
        .iter()
        .fold(&*object, |value, key| &value[*key])
        .clone();
    let mut kept = old.clone();
    let mut place = &mut kept;
    for key in path {
        place = crate::object::child_entry(place, key);
    }
    *place = sent;
    adopt(object, kept);
}

/// Replaces the object with the old one, except for `managedFields`, `resourceVersion` and the identifying metadata.
fn adopt(object: &mut Value, mut kept: Value) {
    for key in ["managedFields", "resourceVersion"].iter().chain(&IDENTITY) {
        let key = *key;
        match object["metadata"][key].take() {
            Value::Null => metadata_mut(&mut kept).remove(key),
            value => metadata_mut(&mut kept).insert(key.to_owned(), value),
        };
    }
    kept["apiVersion"] = object["apiVersion"].take();
    kept["kind"] = object["kind"].take();
    *object = kept;
}

fn keep(object: &mut Value, old: &Value, key: &str) {
    match &old[key] {
        Value::Null => {
            if let Value::Object(map) = object {
                map.remove(key);
            }
        }
        // Comparing is cheaper than copying, and a patch usually does not change the value.
        value if object[key] == *value => {}
        value => object[key] = value.clone(),
    }
}
