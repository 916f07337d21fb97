//! Daemon sets.

use serde_json::Value;

use super::APPS;
use crate::object::{child_mut, metadata_mut};
use crate::registry::{Builtin, Resource, Rules, STATUS};
use crate::request::Part;
use crate::{table, validate};

pub(super) static DAEMON_SET: Builtin = Builtin {
    kind: "DaemonSet",
    plural: "daemonsets",
    short: &["ds"],
    subresources: &[STATUS],
    rules: Rules {
        defaults: Some(default),
        partial_metadata: Some(partial_metadata),
        prepare_create: Some(|object| set_template_generation(object, 1)),
        prepare_update: Some(prepare_update),
        validate: |object, errors| validate::apps::validate("daemonsets", object, errors),
        validate_update: Some(|object, old, errors| {
            validate::apps::validate_update("daemonsets", object, old, errors)
        }),
        validate_status: Some(|object, old, errors| {
            validate::apps::validate_status("daemonsets", object, old, errors)
        }),
        table: Some((
            "Name|Desired:integer|Current:integer|Ready:integer|Up-to-date:integer|Available:integer|Node Selector|Age|\
         Containers::1|Images::1|Selector::1",
            table::workloads::daemon_set,
        )),
        ..APPS.rules
    },
    ..APPS
};

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
fn default(resource: &Resource, version: &str, object: &mut Value) {
    allot_schema::defaults::apply(&resource.group, version, &resource.kind, object);
    if object["metadata"]["annotations"][TEMPLATE_GENERATION].is_null() {
        set_template_generation(object, 0);
    }
}

fn prepare_update(object: &mut Value, old: &Value, part: Part) {
    if part == Part::Main {
        let known = old["metadata"]["annotations"][TEMPLATE_GENERATION].as_str();
        let known = known.and_then(|text| text.parse::<i64>().ok()).unwrap_or(1);
        let changed = object["spec"]["template"] != old["spec"]["template"];
        set_template_generation(object, known + i64::from(changed));
    }
}

/// Upstream stores the annotation outside of the metadata and writes it last.
fn partial_metadata(partial: &mut Value) {
    if let Some(annotations) = partial["metadata"]["annotations"].as_object_mut() {
        annotations.remove(TEMPLATE_GENERATION);
        if annotations.is_empty()
            && let Some(metadata) = partial["metadata"].as_object_mut()
        {
            metadata.remove("annotations");
        }
    }
}
