//! Nodes.

use allot_apimachinery::field::ErrorList;
use serde_json::{Value, json};

use crate::object::{self, items, string_map};
use crate::registry::{
    Builtin, CLUSTER, ComputedField, Connect, PROXY, Rules, STATUS, UnsupportedField,
};
use crate::table::age;
use crate::table::format::{name, or_none};
use crate::warnings::addresses;

mod validation;

pub(super) static NODE: Builtin = Builtin {
    kind: "Node",
    plural: "nodes",
    short: &["no"],
    subresources: &[("proxy", "NodeProxyOptions", "", "", PROXY), STATUS],
    rules: Rules {
        storage_prefix: "minions",
        connect: Some(Connect::Node),
        initialize: Some(drop_config),
        prepare_update: Some(|node, old, _| {
            if old["status"]["config"].is_null() {
                drop_config(node);
            }
        }),
        validate: validation::validate,
        validate_update: Some(validate_update),
        validate_status: Some(|node, _, errors| validation::validate_status(node, errors)),
        warnings,
        selectable: &["spec.unschedulable"],
        computed_fields: &[ComputedField {
            name: "spec.unschedulable",
            reads: &["spec.unschedulable"],
            value: |node| (node["spec"]["unschedulable"] == true).to_string(),
        }],
        selects_namespace: false,
        unsupported_field: UnsupportedField::NotSupported,
        table: Some((
            "Name|Status|Roles|Age|Version|Internal-IP::1|External-IP::1|OS-Image::1|Kernel-Version::1|Container-Runtime::1",
            row,
        )),
        ..Rules::DEFAULT
    },
    ..CLUSTER
};

/// Removes the fields of dynamic kubelet configuration, which has been removed from Kubernetes.
fn drop_config(node: &mut Value) {
    for (part, key) in [("spec", "configSource"), ("status", "config")] {
        if let Some(Value::Object(part)) = node.get_mut(part) {
            part.remove(key);
        }
    }
}

fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    validation::validate_update(object, old, errors);
    // Upstream validates the taints of an update as those of a new node, too.
    let twice: Vec<_> = errors
        .iter()
        .filter(|error| error.field.starts_with("metadata.taints"))
        .cloned()
        .collect();
    errors.extend(twice);
}

fn row(object: &Value) -> Vec<Value> {
    let ready = items(&object["status"]["conditions"])
        .iter()
        .find(|it| it["type"] == "Ready");
    let mut status = vec![match ready.map(|it| it["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    }];
    if object["spec"]["unschedulable"] == true {
        status.push("SchedulingDisabled");
    }
    let mut roles: Vec<String> = string_map(&object["metadata"]["labels"])
        .into_iter()
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role.to_owned()).filter(|role| !role.is_empty()),
                None if key == "kubernetes.io/role" && !value.is_empty() => Some(value),
                None => None,
            },
        )
        .collect();
    roles.sort();
    let address = |kind: &str| {
        let found = items(&object["status"]["addresses"])
            .iter()
            .find(|it| it["type"] == kind);
        or_none(
            found
                .and_then(|it| it["address"].as_str())
                .unwrap_or_default()
                .to_owned(),
        )
    };
    let info = |key: &str| {
        let value = object::text(object, &["status", "nodeInfo", key]);
        if value.is_empty() {
            "<unknown>".to_owned()
        } else {
            value.to_owned()
        }
    };
    let kernel = match (
        info("kernelVersion"),
        object::text(object, &["status", "nodeInfo", "architecture"]),
    ) {
        (kernel, "") => kernel,
        (kernel, architecture) => format!("{kernel} ({architecture})"),
    };
    vec![
        name(object),
        json!(status.join(",")),
        json!(or_none(roles.join(","))),
        age(object),
        json!(object::text(
            object,
            &["status", "nodeInfo", "kubeletVersion"]
        )),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(info("osImage")),
        json!(kernel),
        json!(info("containerRuntimeVersion")),
    ]
}

fn warnings(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    if object["spec"]["configSource"].is_object() {
        let words = "spec.configSource: the spec.configSource field is deprecated";
        found.push(words.to_owned());
    }
    if text(&object["spec"]["externalID"]) {
        let words = "spec.externalID: this field is deprecated, and is unused by Kubernetes";
        found.push(words.to_owned());
    }
    found.extend(addresses::ranges(
        "spec.podCIDRs",
        &object["spec"]["podCIDRs"],
    ));
    found
}
