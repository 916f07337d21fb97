//! Validation of the classic kinds.

mod structured;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names as rules;
use serde_json::Value;

use super::{Kind, tables};
use crate::limits::{CLASSIC_NODES, CLASSIC_RESERVED_FOR};
use crate::shape;
use crate::validate::{claim::immutable, claim::not_supported, common, meta, names, node_selector};
use crate::view::View;

/// Bytes that a driver's controller hands to its kubelet plugin.
const HANDLE_DATA: usize = 16 * 1024;
/// Handles per allocation.
const HANDLES: usize = 32;

/// Validates a new object.
pub fn create(kind: Kind, value: &Value) -> ErrorList {
    let metadata = value.at("metadata");
    let mut errors = meta::object_meta(
        metadata,
        kind.namespaced(),
        rules::dns1123_subdomain,
        &Path::new("metadata"),
    );
    errors.extend(content(kind, value));
    errors
}

/// Validates an object that replaces `old` through the main endpoint.
pub fn update(kind: Kind, value: &Value, old: &Value) -> ErrorList {
    let mut errors = meta::object_meta_update(
        value.at("metadata"),
        old.at("metadata"),
        &Path::new("metadata"),
    );
    let spec = Path::new("spec");
    match kind {
        Kind::ResourceClaim => {
            errors.extend(immutable(
                shape::Ty::Struct(&tables::CLAIM_SPEC),
                value.at("spec"),
                old.at("spec"),
                &spec,
            ));
        }
        Kind::ResourceClaimTemplate => {
            errors.extend(immutable(
                shape::Ty::Struct(&tables::TEMPLATE_SPEC),
                value.at("spec"),
                old.at("spec"),
                &spec,
            ));
        }
        Kind::ResourceSlice => {
            for key in ["nodeName", "driverName"] {
                if value.text(key) != old.text(key) {
                    errors.push(Error::invalid(
                        &Path::new(key),
                        value.text(key),
                        "field is immutable",
                    ));
                }
            }
        }
        _ => {}
    }
    errors.extend(create(kind, value));
    errors
}

/// Validates an object whose status replaces that of `old`.
pub fn status_update(kind: Kind, value: &Value, old: &Value) -> ErrorList {
    let mut errors = meta::object_meta_update(
        value.at("metadata"),
        old.at("metadata"),
        &Path::new("metadata"),
    );
    match kind {
        Kind::ResourceClaim => errors.extend(claim_status(value, old)),
        Kind::PodScheduling | Kind::PodSchedulingContext => {
            errors.extend(scheduling_status(value.at("status"), &Path::new("status")));
        }
        _ => {}
    }
    errors
}

fn content(kind: Kind, value: &Value) -> ErrorList {
    let spec = Path::new("spec");
    match kind {
        Kind::ResourceClass => class(value),
        Kind::ResourceClaim => claim_spec(value.at("spec"), &spec),
        Kind::ResourceClaimTemplate => {
            let template = value.at("spec");
            let mut errors = meta::template_meta(template.at("metadata"), &spec.child("metadata"));
            errors.extend(claim_spec(template.at("spec"), &spec.child("spec")));
            errors
        }
        Kind::PodScheduling | Kind::PodSchedulingContext => nodes(
            value.at("spec").list("potentialNodes"),
            &spec.child("potentialNodes"),
        ),
        Kind::ResourceSlice => structured::slice(value),
        Kind::ResourceClaimParameters => structured::claim_parameters(value),
        Kind::ResourceClassParameters => structured::class_parameters(value),
    }
}

/// A reference to parameters; only those of classes have a namespace.
fn reference(reference: &Value, namespaced: bool, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    if reference.is_null() {
        return errors;
    }
    for key in ["kind", "name"] {
        if reference.text(key).is_empty() {
            errors.push(Error::required(&path.child(key), ""));
        }
    }
    let namespace = reference.text("namespace");
    if namespaced && !namespace.is_empty() {
        errors.extend(common::invalid(
            &path.child("namespace"),
            namespace,
            rules::dns1123_label(namespace),
        ));
    }
    errors
}

fn class(class: &Value) -> ErrorList {
    let mut errors = names::driver(class.text("driverName"), &Path::new("driverName"));
    errors.extend(reference(
        class.at("parametersRef"),
        true,
        &Path::new("parametersRef"),
    ));
    if class.has("suitableNodes") {
        errors.extend(node_selector::node_selector(
            class.at("suitableNodes"),
            &Path::new("suitableNodes"),
        ));
    }
    errors
}

fn claim_spec(spec: &Value, path: &Path) -> ErrorList {
    let mut errors = names::subdomain(
        spec.text("resourceClassName"),
        &path.child("resourceClassName"),
    );
    errors.extend(reference(
        spec.at("parametersRef"),
        false,
        &path.child("parametersRef"),
    ));
    let mode = spec.text("allocationMode");
    if !matches!(mode, "Immediate" | "WaitForFirstConsumer") {
        let path = path.child("allocationMode");
        errors.push(not_supported(
            &path,
            mode,
            &["Immediate", "WaitForFirstConsumer"],
        ));
    }
    errors
}

/// Too many items or bytes, in the words of those releases.
fn too_long(path: &Path, max: usize) -> Error {
    let mut error = Error::too_long(path, max);
    error.detail = format!("may not be longer than {max}");
    error
}

fn claim_status(claim: &Value, old: &Value) -> ErrorList {
    let path = Path::new("status");
    let (status, old_status) = (claim.at("status"), old.at("status"));
    let (allocated, was_allocated) = (status.has("allocation"), old_status.has("allocation"));
    let requested = |status: &Value| status.opt_bool("deallocationRequested") == Some(true);
    let (requested, was_requested) = (requested(status), requested(old_status));
    let reserved = status.list("reservedFor");
    let (reserved_path, requested_path) = (
        path.child("reservedFor"),
        path.child("deallocationRequested"),
    );

    let driver_path = path.child("driverName");
    let mut errors = match status.text("driverName") {
        "" if allocated => ErrorList::from([Error::required(
            &driver_path,
            "must be specified when `allocation` is set",
        )]),
        "" => ErrorList::new(),
        driver => names::driver(driver, &driver_path),
    };
    errors.extend(allocation(
        status.at("allocation"),
        &path.child("allocation"),
    ));
    errors.extend(consumers(reserved, &reserved_path));

    if !reserved.is_empty() {
        if !allocated {
            errors.push(Error::forbidden(
                &reserved_path,
                "may not be specified when `allocated` is not set",
            ));
        } else {
            let shareable = status.at("allocation").opt_bool("shareable") == Some(true);
            if !shareable && reserved.len() > 1 {
                errors.push(Error::forbidden(
                    &reserved_path,
                    "may not be reserved more than once",
                ));
            }
            let going = claim.at("metadata").has("deletionTimestamp") || requested;
            let before = old_status.list("reservedFor");
            if going && reserved.iter().any(|entry| !before.contains(entry)) {
                let text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
                errors.push(Error::forbidden(&reserved_path, text));
            }
        }
    }
    if allocated && was_allocated {
        let (new, old) = (status.at("allocation"), old_status.at("allocation"));
        errors.extend(immutable(
            tables::ALLOCATION,
            new,
            old,
            &path.child("allocation"),
        ));
    }
    if !was_requested && requested && !reserved.is_empty() {
        let text = "deallocation cannot be requested while `reservedFor` is set";
        errors.push(Error::forbidden(&requested_path, text));
    }
    if !allocated && requested {
        // One of the two changes was invalid; only the resulting error is reported.
        errors.push(Error::forbidden(
            &path,
            "`allocation` must be set when `deallocationRequested` is set",
        ));
    }
    if was_requested && !requested && allocated {
        // Deallocation may have begun.
        errors.push(Error::forbidden(
            &requested_path,
            "may not be cleared when `allocation` is set",
        ));
    }
    errors
}

fn allocation(allocation: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    if allocation.text("resourceHandle").len() > HANDLE_DATA {
        errors.push(too_long(&path.child("resourceHandle"), HANDLE_DATA));
    }
    let handles = allocation.list("resourceHandles");
    let handles_path = path.child("resourceHandles");
    if handles.len() > HANDLES {
        errors.push(too_long(&handles_path, HANDLES));
    }
    for (index, handle) in handles.iter().enumerate() {
        let path = handles_path.index(index);
        errors.extend(names::driver(
            handle.text("driverName"),
            &path.child("driverName"),
        ));
        let data = handle.text("data");
        if data.len() > HANDLE_DATA {
            errors.push(too_long(&path.child("data"), HANDLE_DATA));
        }
        if handle.has("structuredData") {
            errors.extend(structured::handle(
                handle.at("structuredData"),
                &path.child("structuredData"),
            ));
            if !data.is_empty() {
                let text = "data and structuredData are mutually exclusive";
                errors.push(Error::invalid(&path, &Value::Null, text));
            }
        }
    }
    if allocation.has("availableOnNodes") {
        errors.extend(node_selector::node_selector(
            allocation.at("availableOnNodes"),
            &path.child("availableOnNodes"),
        ));
    }
    errors
}

fn consumers(consumers: &[Value], path: &Path) -> ErrorList {
    if consumers.len() > CLASSIC_RESERVED_FOR {
        return ErrorList::from([too_long(path, CLASSIC_RESERVED_FOR)]);
    }
    let check = |consumer: &Value, path: &Path| {
        ["resource", "name", "uid"]
            .into_iter()
            .filter(|key| consumer.text(key).is_empty())
            .map(|key| Error::required(&path.child(key), ""))
            .collect()
    };
    common::set(consumers, usize::MAX, path, check, |consumer| {
        consumer.text("uid").to_owned()
    })
}

/// A set of node names.
fn nodes(nodes: &[Value], path: &Path) -> ErrorList {
    if nodes.len() > CLASSIC_NODES {
        return ErrorList::from([too_long(path, CLASSIC_NODES)]);
    }
    let check =
        |node: &Value, path: &Path| names::subdomain(node.as_str().unwrap_or_default(), path);
    common::set(nodes, usize::MAX, path, check, common::itself)
}

fn scheduling_status(status: &Value, path: &Path) -> ErrorList {
    let path = path.child("resourceClaims");
    let check = |claim: &Value, path: &Path| {
        nodes(
            claim.list("unsuitableNodes"),
            &path.child("unsuitableNodes"),
        )
    };
    common::set(
        status.list("resourceClaims"),
        usize::MAX,
        &path,
        check,
        |claim| claim.text("name").to_owned(),
    )
}

/// Upstream shows lists of set members as one text.
fn several(fields: &[&str]) -> BadValue {
    BadValue::from(format!("{{{}}}", fields.join(", ")))
}
