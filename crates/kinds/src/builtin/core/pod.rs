//! Pods.

use allot_apimachinery::field::ErrorList;
use serde_json::{Value, json};

use crate::registry::{
    BASE, Builtin, CONNECT, CREATE, ComputedField, Connect, GET, Generation, PROXY, RW, Rules,
    STATUS, UnsupportedField,
};
use crate::request::Part;
use crate::strategy::keep_but;
use crate::{object, pods, warnings};

mod resize;
mod status;
mod strategy;
mod table;
mod update;
mod validation;

pub(super) static POD: Builtin = Builtin {
    kind: "Pod",
    plural: "pods",
    short: &["po"],
    categories: &["all"],
    subresources: &[
        ("attach", "PodAttachOptions", "", "", CONNECT),
        ("binding", "Binding", "", "", CREATE),
        ("ephemeralcontainers", "", "", "", RW),
        ("eviction", "Eviction", "policy", "v1", CREATE),
        ("exec", "PodExecOptions", "", "", CONNECT),
        ("log", "", "", "", GET),
        ("portforward", "PodPortForwardOptions", "", "", CONNECT),
        ("proxy", "PodProxyOptions", "", "", PROXY),
        ("resize", "", "", "", RW),
        STATUS,
    ],
    rules: Rules {
        connect: Some(Connect::Pod),
        pod_template: Some(&[]),
        initialize: Some(initialize),
        drop_disabled: Some(strategy::drop_disabled),
        prepare_part: Some(|pod, old, part| match part {
            Part::EphemeralContainers => keep_but(pod, old, &["spec", "ephemeralContainers"]),
            Part::Resize => resize::prepare(pod, old),
            _ => {}
        }),
        prepare_update: Some(|pod, old, part| {
            if part == Part::Status {
                strategy::keep_reported(pod, old);
            }
        }),
        generation: Generation::FromCreate,
        status_keeps: &["ownerReferences"],
        status_ignores_deletion: true,
        reset_fields: &[(
            "status",
            &[
                &["spec"],
                &["metadata", "deletionTimestamp"],
                &["metadata", "ownerReferences"],
            ],
        )],
        validate: |pod, errors| validation::validate(pod, None, errors),
        validate_create: Some(|pod, errors| {
            validation::validate(pod, None, errors);
            validation::validate_create(pod, errors);
        }),
        validate_update: Some(update::validate),
        validate_status: Some(status::validate),
        validate_part: Some(validate_part),
        replace_annotations: Some(warnings::pod::app_armor_fields),
        warnings: |pod| warnings::pod::warnings(pod, ""),
        warnings_create: Some(|pod| {
            let mut found = warnings::pod::warnings(pod, "");
            found.splice(0..0, warnings::host_name(pod, "the Pod's hostname"));
            found
        }),
        // They are rarely written by hand.
        warnings_update: Some(|_, _| Vec::new()),
        warnings_status: Some(|pod| {
            let about = |key: &str| {
                let path = format!("status.{key}");
                warnings::addresses::of_field(&path, &pod["status"][key], "ip")
            };
            [about("podIPs"), about("hostIPs")].concat()
        }),
        grace_period: Some(strategy::grace_period),
        delete_returns_object: |_| true,
        selectable: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        computed_fields: &[
            ComputedField {
                name: "spec.hostNetwork",
                reads: &["spec.hostNetwork"],
                value: |pod| (pod["spec"]["hostNetwork"] == true).to_string(),
            },
            ComputedField {
                name: "status.podIPs",
                reads: &["status.podIP"],
                value: |pod| object::text(pod, &["status", "podIP"]).to_owned(),
            },
        ],
        unsupported_field: UnsupportedField::NotSupported,
        row_condition: Some(table::completed),
        table: Some((
            "Name|Ready|Status|Restarts|Age|IP::1|Node::1|Nominated Node::1|Readiness Gates::1",
            table::row,
        )),
        ..Rules::DEFAULT
    },
    ..BASE
};

fn initialize(object: &mut Value) {
    object["status"] = json!({"phase": "Pending", "qosClass": pods::qos_class(object)});
    if object["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty())
    {
        object["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "lastProbeTime": null,
            "lastTransitionTime": object::now(), "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    strategy::merge_label_keys(object);
    let grace = &object["spec"]["terminationGracePeriodSeconds"];
    if grace.as_i64().is_some_and(|seconds| seconds < 0) {
        object["spec"]["terminationGracePeriodSeconds"] = 1.into();
    }
}

fn validate_part(pod: &Value, old: &Value, part: Part, errors: &mut ErrorList) {
    match part {
        Part::EphemeralContainers => update::validate_ephemeral(pod, old, errors),
        Part::Resize => resize::validate(pod, old, errors),
        _ => validation::validate(pod, None, errors),
    }
}
