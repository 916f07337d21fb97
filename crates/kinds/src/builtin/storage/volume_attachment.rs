//! Volume attachments.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::{Value, json};

use super::STORAGE;
use crate::builtin::core::persistent_volume::validation::validate_spec;
use crate::object;
use crate::registry::{ALL_METADATA, Builtin, Rules, STATUS};
use crate::table::age;
use crate::table::format::name;
use crate::validate::volume::driver_name;
use crate::validate::{IMMUTABLE, between, entries, internal, rule, text};

pub(super) static VOLUME_ATTACHMENT: Builtin = Builtin {
    kind: "VolumeAttachment",
    plural: "volumeattachments",
    subresources: &[STATUS],
    rules: Rules {
        requires_version: |_| true,
        status_keeps: ALL_METADATA,
        status_ignores_deletion: true,
        validate: |attachment, errors| validate(attachment, true, errors),
        validate_update: Some(validate_update),
        validate_status: Some(validate_update),
        checks_metadata_change: |_| false,
        table: Some(("Name|Attacher|PV|Node|Attached:boolean|Age", row)),
        ..STORAGE.rules
    },
    ..STORAGE
};

/// Largest metadata of an attachment, and largest message of its errors, in bytes.
const MAX_METADATA: usize = 256 << 10;
const MAX_MESSAGE: usize = 1024;

/// Checks an attachment; a new one has to name its driver properly.
fn validate(object: &Value, create: bool, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let attacher = text(spec, "attacher");
    if attacher.is_empty() {
        errors.push(Error::required(&path.child("attacher"), ""));
    }
    let (source, at) = (&spec["source"], path.child("source"));
    let volume = source["persistentVolumeName"].as_str();
    let only_one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (source["inlineVolumeSpec"].is_object(), volume) {
        (false, None) => errors.push(Error::required(&at, only_one)),
        (true, Some(_)) => errors.push(Error::forbidden(&at, only_one)),
        (false, Some("")) => {
            let detail = "must specify non empty persistentVolumeName";
            errors.push(Error::required(&at.child("persistentVolumeName"), detail));
        }
        (true, None) => {
            let (inline, at) = (&source["inlineVolumeSpec"], at.child("inlineVolumeSpec"));
            validate_spec(inline, true, &at, errors);
        }
        _ => {}
    }
    let node = text(spec, "nodeName");
    let place = path.child("nodeName");
    rule(names::dns1123_subdomain(node), node, &place, errors);
    let (status, path) = (&object["status"], Path::new("status"));
    let said = entries(status, "attachmentMetadata");
    let size: usize = said
        .map(|(key, it)| key.len() + it.as_str().map_or(0, str::len))
        .sum();
    if size > MAX_METADATA {
        errors.push(Error::too_long(
            &path.child("attachmentMetadata"),
            MAX_METADATA,
        ));
    }
    for key in ["attachError", "detachError"] {
        let (error, at) = (&status[key], path.child(key));
        if text(error, "message").len() > MAX_MESSAGE {
            errors.push(Error::too_long(&at.child("message"), MAX_METADATA));
        }
        if let Some(code) = error["errorCode"].as_i64().filter(|it| *it < 0) {
            let detail = between(0, i64::from(i32::MAX));
            errors.push(Error::invalid(&at.child("errorCode"), code, detail));
        }
    }
    if create {
        if !attacher.is_empty() {
            driver_name(attacher, &Path::new("spec").child("attacher"), errors);
        }
        if let Some(volume) = volume {
            let at = at.child("persistentVolumeName");
            rule(names::dns1123_subdomain(volume), volume, &at, errors);
        }
    }
}

/// Checks a change of an attachment.
fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    validate(object, false, errors);
    if object["spec"] != old["spec"] {
        let kind = ("storage.k8s.io", "v1", "VolumeAttachment");
        let shown = internal::shown(kind, &["spec"], &object["spec"]);
        errors.push(Error::invalid(&Path::new("spec"), shown, IMMUTABLE));
    }
}

fn row(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    vec![
        name(object),
        json!(object::text(spec, &["attacher"])),
        json!(object::text(spec, &["source", "persistentVolumeName"])),
        json!(object::text(spec, &["nodeName"])),
        json!(object["status"]["attached"].as_bool().unwrap_or(false)),
        age(object),
    ]
}
