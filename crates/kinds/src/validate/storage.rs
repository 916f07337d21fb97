//! Storage classes, volumes and claims of volumes.

use allot_apimachinery::Quantity;
use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::{
    IMMUTABLE, entries, internal, label_selector, list, one_of, persistent, pod_diff, rule, text,
};

/// Most parameters of a class, and their size in bytes.
const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETER_BYTES: usize = 256 << 10;

/// Validates the name of a provisioner.
pub(crate) fn provisioner(name: &str, path: &Path, errors: &mut ErrorList) {
    if name.is_empty() {
        errors.push(Error::required(path, ""));
    } else {
        let name = name.to_lowercase();
        rule(names::qualified_name(&name), &name, path, errors);
    }
}

/// Validates the parameters of a provisioner.
pub(crate) fn parameters(object: &Value, errors: &mut ErrorList) {
    let path = Path::new("parameters");
    if entries(object, "parameters").count() > MAX_PARAMETERS {
        errors.push(Error::too_long(&path, MAX_PARAMETERS));
        return;
    }
    let mut size = 0;
    for (key, value) in entries(object, "parameters") {
        if key.is_empty() {
            let detail = "field can not be empty.";
            errors.push(Error::invalid(&path, "", detail));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MAX_PARAMETER_BYTES {
        errors.push(Error::too_long(&path, MAX_PARAMETER_BYTES));
    }
}

/// Checks a storage class.
pub(crate) fn class(object: &Value, errors: &mut ErrorList) {
    provisioner(
        text(object, "provisioner"),
        &Path::new("provisioner"),
        errors,
    );
    parameters(object, errors);
    let policies = ["Delete", "Retain"];
    one_of(
        text(object, "reclaimPolicy"),
        &policies,
        false,
        &Path::new("reclaimPolicy"),
        errors,
    );
    let modes = ["Immediate", "WaitForFirstConsumer"];
    one_of(
        text(object, "volumeBindingMode"),
        &modes,
        true,
        &Path::new("volumeBindingMode"),
        errors,
    );
}

/// Checks a change of a storage class.
pub(crate) fn class_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    class(object, errors);
    for key in [
        "parameters",
        "provisioner",
        "reclaimPolicy",
        "volumeBindingMode",
    ] {
        if object[key] != old[key] {
            let shown = match (key, &object[key]) {
                ("provisioner", Value::Null) => "".into(),
                (_, value) => BadValue::from(value),
            };
            errors.push(Error::invalid(&Path::new(key), shown, IMMUTABLE));
        }
    }
}

const MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

pub(crate) fn access_modes(spec: &Value, missing: &str, path: &Path, errors: &mut ErrorList) {
    let at = path.child("accessModes");
    let modes = list(spec, "accessModes");
    if modes.is_empty() {
        errors.push(Error::required(&at, missing));
    }
    let alone = modes.iter().any(|mode| mode == "ReadWriteOncePod");
    for mode in modes {
        let mode = mode.as_str().unwrap_or_default();
        if !MODES.contains(&mode) {
            errors.push(Error::not_supported(&at, mode, &MODES));
        }
    }
    if alone && modes.len() > 1 {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.push(Error::forbidden(&at, detail));
    }
}

pub(crate) fn size(amount: &Value, path: &Path, errors: &mut ErrorList) {
    let parsed = amount
        .as_str()
        .and_then(|text| text.parse::<Quantity>().ok());
    if parsed.is_some_and(|amount| amount <= Quantity::ZERO) {
        errors.push(Error::invalid(path, amount, "must be greater than zero"));
    }
}

/// Checks a claim of a volume.
pub(crate) fn claim(object: &Value, errors: &mut ErrorList) {
    claim_spec(&object["spec"], &Path::new("spec"), errors);
}

/// Validates the spec of a PersistentVolumeClaim.
pub(crate) fn claim_spec(spec: &Value, path: &Path, errors: &mut ErrorList) {
    access_modes(spec, "at least 1 access mode is required", path, errors);
    if spec["selector"].is_object() {
        label_selector(&spec["selector"], &path.child("selector"), errors);
    }
    let at = path.child("resources");
    match &spec["resources"]["requests"]["storage"] {
        Value::Null => errors.push(Error::required(&at.key("storage"), "")),
        amount => size(amount, &at.key("storage"), errors),
    }
    if let Some(class) = spec["storageClassName"].as_str()
        && !class.is_empty()
    {
        let texts = names::dns1123_subdomain(class);
        rule(texts, class, &path.child("storageClassName"), errors);
    }
    let modes = ["Block", "Filesystem"];
    let at = path.child("volumeMode");
    one_of(text(spec, "volumeMode"), &modes, false, &at, errors);
    for key in ["dataSource", "dataSourceRef"] {
        if spec[key].is_object() {
            data_source(&spec[key], &path.child(key), errors);
        }
    }
    let (source, other) = (&spec["dataSource"], &spec["dataSourceRef"]);
    if source.is_object() && other.is_object() {
        // Upstream shows a path where the value belongs, and that value is empty.
        let detail = if text(other, "namespace").is_empty() {
            let same = ["apiGroup", "kind", "name"]
                .iter()
                .all(|key| source[*key] == other[*key]);
            (!same).then_some("must match dataSourceRef")
        } else {
            Some("may not be specified when dataSourceRef.namespace is specified")
        };
        if let Some(detail) = detail {
            errors.push(Error::invalid(path, BadValue::raw("{}"), detail));
        }
    }
    let class = text(spec, "volumeAttributesClassName");
    if !class.is_empty() {
        let at = path.child("volumeAttributesClassName");
        rule(names::dns1123_subdomain(class), class, &at, errors);
    }
}

/// Checks the status of a claim: what it got, and how its expansion goes.
pub(crate) fn claim_status(object: &Value, errors: &mut ErrorList) {
    const RESIZING: [&str; 5] = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    let (status, path) = (&object["status"], Path::new("status"));
    let whole = |amount: &Value| {
        let amount = amount.as_str()?.parse::<Quantity>().ok()?;
        Some(amount.value()).filter(|amount| *amount < 0)
    };
    let negative = |amount: &Value, at: &Path, errors: &mut ErrorList| match whole(amount) {
        Some(amount) => {
            let detail = "must be a valid resource quantity";
            errors.push(Error::invalid(at, amount, detail));
            true
        }
        None => false,
    };
    for (name, amount) in entries(status, "capacity") {
        negative(amount, &path.child("capacity").key(name), errors);
    }
    let at = path.child("allocatedResourceStatuses");
    for (name, state) in entries(status, "allocatedResourceStatuses") {
        claimed_name(name, &at, errors);
        if !state
            .as_str()
            .is_some_and(|state| RESIZING.contains(&state))
        {
            // As upstream: the name, not the state.
            errors.push(Error::not_supported(&at, name.as_str(), &RESIZING));
        }
    }
    let at = path.child("allocatedResources");
    for (name, amount) in entries(status, "allocatedResources") {
        if claimed_name(name, &at, errors) {
            negative(amount, &at.key(name), errors);
        }
    }
}

/// What a claim can have: storage, and resources with a domain.
fn claimed_name(name: &str, path: &Path, errors: &mut ErrorList) -> bool {
    let texts = names::qualified_name(name);
    let valid = texts.is_empty();
    rule(texts, name, path, errors);
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    if valid && native && name != "storage" {
        errors.push(Error::not_supported(path, name, &["storage"]));
        return false;
    }
    valid
}

/// What a new volume begins with.
fn data_source(source: &Value, path: &Path, errors: &mut ErrorList) {
    for key in ["name", "kind"] {
        if text(source, key).is_empty() {
            errors.push(Error::required(&path.child(key), ""));
        }
    }
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(Error::invalid(path, kind, detail));
    }
    if !group.is_empty() {
        rule(
            names::dns1123_subdomain(group),
            group,
            &path.child("apiGroup"),
            errors,
        );
    }
}

/// Checks a change of a claim of a volume.
pub(crate) fn claim_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    claim(object, errors);
    // The requested size of a bound claim may grow.
    let bound = object["status"]["phase"] == "Bound";
    let class = "volume.beta.kubernetes.io/storage-class";
    let is_annotated = |it: &Value| it["metadata"]["annotations"].get(class).is_some();
    let gets_class =
        old["spec"]["storageClassName"].is_null() && !is_annotated(old) && !is_annotated(object);
    // Mutable fields are made equal, the rest must be equal; a binder writes the volume's name once.
    let (mut now, mut before) = (object["spec"].clone(), old["spec"].clone());
    if text(&before, "volumeName").is_empty() {
        follow(&mut before, &now, "volumeName");
    }
    if gets_class {
        follow(&mut now, &before, "storageClassName");
    }
    if bound {
        follow(&mut now, &before, "volumeAttributesClassName");
        let requests = &before["resources"]["requests"];
        follow(&mut now["resources"]["requests"], requests, "storage");
    }
    let path = Path::new("spec");
    if now != before {
        let shown = pod_diff::of("PersistentVolumeClaimSpec", &before, &now);
        let detail = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{shown}"
        );
        errors.push(Error::forbidden(&path, detail));
    }
    let amount = |part: &Value| part["storage"].as_str()?.parse::<Quantity>().ok();
    let requested = |object: &Value| amount(&object["spec"]["resources"]["requests"]);
    let (now, before) = (requested(object), requested(old));
    // Down to what there is, as a way out of an expansion that failed.
    let least = amount(&old["status"]["capacity"]).unwrap_or(Quantity::ZERO);
    if now < before && now.is_none_or(|now| now <= least) {
        let at = path.child("resources").child("requests").child("storage");
        let detail = "field can not be less than status.capacity";
        errors.push(Error::forbidden(&at, detail));
    }
}

/// Sets a member to its value in `other`.
fn follow(object: &mut Value, other: &Value, key: &str) {
    if let Value::Object(map) = object {
        match other.get(key) {
            Some(value) => map.insert(key.to_owned(), value.clone()),
            None => map.remove(key),
        };
    }
}

/// Validates an update of a volume: its source is immutable, as is its node affinity once it is set.
pub(crate) fn volume_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    // Upstream validates the volume as a new one, too.
    volume(object, errors);
    volume(object, errors);
    let source = |volume: &Value| {
        let mut spec = volume["spec"].as_object().cloned().unwrap_or_default();
        spec.retain(|key, _| persistent::SOURCES.contains(&key.as_str()));
        Value::Object(spec)
    };
    let (now, before) = (source(object), source(old));
    if now != before {
        let at = Path::new("spec").child("persistentvolumesource");
        let shown = pod_diff::of("PersistentVolumeSource", &before, &now);
        let detail = format!("spec.persistentvolumesource is immutable after creation\n{shown}");
        errors.push(Error::forbidden(&at, detail));
    }
    let (now, before) = (&object["spec"], &old["spec"]);
    if now["volumeMode"] != before["volumeMode"] {
        let at = Path::new("volumeMode");
        errors.push(Error::invalid(&at, &now["volumeMode"], IMMUTABLE));
    }
    if before["nodeAffinity"].is_object() && now["nodeAffinity"] != before["nodeAffinity"] {
        let at = Path::new("nodeAffinity");
        let detail = "field is immutable, except for updating from beta label to GA";
        let kind = ("", "v1", "PersistentVolume");
        let shown = internal::shown(kind, &["spec", "nodeAffinity"], &now["nodeAffinity"]);
        let shown = match now["nodeAffinity"].is_null() {
            true => BadValue::raw("null".to_owned()),
            false => shown,
        };
        errors.push(Error::invalid(&at, shown, detail));
    }
}

/// Checks a volume.
pub(crate) fn volume(object: &Value, errors: &mut ErrorList) {
    persistent::spec(&object["spec"], false, &Path::new("spec"), errors);
}
