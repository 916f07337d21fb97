//! Validation of persistent volumes, also of the spec inside of an attachment.

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use crate::empties;
use crate::validate::{
    entries, immutable, internal, one_of, one_of_set, pod_diff, rule, scheduling, security,
    storage, text, volume,
};

/// The sources in upstream's order: of several, each but the first is an error.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// Checks the spec of a volume; `inline` for one in an attachment.
pub(in crate::builtin) fn validate_spec(
    spec: &Value,
    inline: bool,
    path: &Path,
    errors: &mut ErrorList,
) {
    const INLINE: &str = "in the context of inline volumes";
    let said = |key: &str| !spec[key].is_null();
    let refuse = |key: &str, errors: &mut ErrorList| {
        let detail = format!("may not be specified {INLINE}");
        errors.push(Error::forbidden(&path.child(key), detail));
    };
    let has_capacity = entries(spec, "capacity").next().is_some();
    if inline {
        if said("claimRef") {
            refuse("claimRef", errors);
        }
        if has_capacity {
            refuse("capacity", errors);
        }
        if !said("csi") {
            let detail = format!("has to be specified {INLINE}");
            errors.push(Error::required(&path.child("csi"), detail));
        }
    }
    storage::access_modes(spec, "", path, errors);
    if !inline {
        capacity(spec, has_capacity, &path.child("capacity"), errors);
    }
    let policies = ["Delete", "Recycle", "Retain"];
    let (policy, at) = (
        text(spec, "persistentVolumeReclaimPolicy"),
        path.child("persistentVolumeReclaimPolicy"),
    );
    if !inline {
        one_of(policy, &policies, false, &at, errors);
    } else if !matches!(policy, "" | "Retain") {
        errors.push(Error::forbidden(
            &at,
            format!("may only be Retain {INLINE}"),
        ));
    }
    let affinity = &spec["nodeAffinity"];
    if affinity.is_object() && inline {
        refuse("nodeAffinity", errors);
    } else if affinity.is_object() {
        let at = path.child("nodeAffinity").child("required");
        match affinity["required"].is_object() {
            true => scheduling::node_selector(&affinity["required"], false, &at, errors),
            false => {
                let detail = "must specify required node constraints";
                errors.push(Error::required(&at, detail));
            }
        }
    }
    sources(spec, inline, path, errors);
    let class = text(spec, "storageClassName");
    if !class.is_empty() && inline {
        refuse("storageClassName", errors);
    } else if !class.is_empty() {
        let at = path.child("storageClassName");
        rule(names::dns1123_subdomain(class), class, &at, errors);
    }
    let (mode, at) = (spec["volumeMode"].as_str(), path.child("volumeMode"));
    if !inline {
        one_of_set(
            &spec["volumeMode"],
            &["Block", "Filesystem"],
            false,
            &at,
            errors,
        );
    } else if mode.is_some_and(|mode| mode != "Filesystem") {
        let detail = format!("may not specify volumeMode other than Filesystem {INLINE}");
        errors.push(Error::forbidden(&at, detail));
    }
    if !inline && let Some(class) = spec["volumeAttributesClassName"].as_str() {
        let at = path.child("volumeAttributesClassName");
        match class.is_empty() {
            true => errors.push(Error::required(&at, "an empty string is disallowed")),
            false => rule(names::dns1123_subdomain(class), class, &at, errors),
        }
        if !said("csi") {
            let detail = "has to be specified when using volumeAttributesClassName";
            errors.push(Error::required(&path.child("csi"), detail));
        }
    }
}

fn capacity(spec: &Value, is_there: bool, path: &Path, errors: &mut ErrorList) {
    if !is_there {
        errors.push(Error::required(path, ""));
    }
    let only = entries(spec, "capacity").count() == 1 && !spec["capacity"]["storage"].is_null();
    if !only {
        errors.push(Error::not_supported(path, &spec["capacity"], &["storage"]));
    }
    for (name, amount) in entries(spec, "capacity") {
        storage::size(amount, &path.key(name), errors);
    }
}

fn sources(spec: &Value, inline: bool, path: &Path, errors: &mut ErrorList) {
    let mut count = 0;
    for kind in SOURCES.into_iter().filter(|kind| !spec[*kind].is_null()) {
        count += 1;
        if count > 1 && kind != "flexVolume" {
            let at = match kind {
                "cephfs" => "cephFS",
                kind => kind,
            };
            let detail = "may not specify more than 1 volume type";
            errors.push(Error::forbidden(&path.child(at), detail));
        } else {
            source(spec, kind, path, errors);
            if kind == "local" && (spec["nodeAffinity"].is_null() || inline) {
                let detail = "Local volume requires node affinity";
                errors.push(Error::required(&path.child("nodeAffinity"), detail));
            }
        }
    }
    if count == 0 {
        errors.push(Error::required(path, "must specify a volume type"));
    }
    let root = text(&spec["hostPath"], "path");
    if text(spec, "persistentVolumeReclaimPolicy") == "Recycle"
        && root.starts_with('/')
        && root.split('/').all(|part| matches!(part, "" | "."))
    {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        let at = path.child("persistentVolumeReclaimPolicy");
        errors.push(Error::forbidden(&at, detail));
    }
}

fn source(spec: &Value, kind: &str, path: &Path, errors: &mut ErrorList) {
    let (source, at) = (&spec[kind], path.child(kind));
    match kind {
        "hostPath" => volume::host_path(source, &at, errors),
        "nfs" => volume::nfs(source, &at, errors),
        "local" => {
            let (target, at) = (text(source, "path"), at.child("path"));
            match target.is_empty() {
                true => errors.push(Error::required(&at, "")),
                false => security::without_steps_up(target, &at, errors),
            }
        }
        "csi" => {
            volume::driver_name(text(source, "driver"), &at.child("driver"), errors);
            volume::needed(source, "volumeHandle", &at, errors);
            for key in [
                "controllerPublishSecretRef",
                "controllerExpandSecretRef",
                "nodePublishSecretRef",
                "nodeExpandSecretRef",
            ] {
                secret(&source[key], &at.child(key), errors);
            }
        }
        "glusterfs" => {
            volume::classic::check(spec, kind, path, errors);
            let at = at.child("endpointsNamespace");
            match source["endpointsNamespace"].as_str() {
                Some("") => {
                    let detail =
                        "if the endpointnamespace is set, it must be a valid namespace name";
                    errors.push(Error::invalid(&at, "", detail));
                }
                Some(space) => rule(names::dns1123_label(space), space, &at, errors),
                None => {}
            }
        }
        "azureFile" => {
            volume::classic::check(spec, kind, path, errors);
            if source["secretNamespace"].as_str() == Some("") {
                errors.push(Error::required(&at.child("secretNamespace"), ""));
            }
        }
        _ => volume::classic::check(spec, kind, path, errors),
    }
}

/// A reference to a secret in any namespace.
fn secret(reference: &Value, path: &Path, errors: &mut ErrorList) {
    if !reference.is_object() {
        return;
    }
    type Rule = fn(&str) -> Vec<String>;
    let rules: [(&str, Rule); 2] = [
        ("name", names::dns1123_subdomain),
        ("namespace", names::dns1123_label),
    ];
    for (key, valid) in rules {
        let (value, at) = (text(reference, key), path.child(key));
        match value.is_empty() {
            true => errors.push(Error::required(&at, "")),
            false => rule(valid(value), value, &at, errors),
        }
    }
}

/// Validates an update of a volume: its source is immutable, as is its node affinity once it is set.
pub(super) fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    // Upstream validates the volume as a new one, too.
    validate(object, errors);
    validate(object, errors);
    let source = |volume: &Value| {
        let mut spec = volume["spec"].as_object().cloned().unwrap_or_default();
        spec.retain(|key, _| SOURCES.contains(&key.as_str()));
        Value::Object(spec)
    };
    let (mut now, before) = (source(object), source(old));
    // The secret for expansions may be added.
    if before["csi"].is_object()
        && before["csi"]["controllerExpandSecretRef"].is_null()
        && let Some(csi) = now.get_mut("csi").and_then(Value::as_object_mut)
    {
        csi.remove("controllerExpandSecretRef");
    }
    if now != before {
        let at = Path::new("spec").child("persistentvolumesource");
        let sent = empties::shown_spec(&now, |_| false);
        let shown = pod_diff::of("PersistentVolumeSource", &before, &sent);
        let detail = format!("spec.persistentvolumesource is immutable after creation\n{shown}");
        errors.push(Error::forbidden(&at, detail));
    }
    let (now, before) = (&object["spec"], &old["spec"]);
    let mode = "volumeMode";
    immutable(now, before, mode, &Path::new(mode), errors);
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
    let class = "volumeAttributesClassName";
    if before[class].is_string() && now[class].is_null() {
        let at = Path::new("spec").child(class);
        let detail = "update from non-nil value to nil is forbidden";
        errors.push(Error::forbidden(&at, detail));
    }
}

/// Checks a volume.
pub(super) fn validate(object: &Value, errors: &mut ErrorList) {
    validate_spec(&object["spec"], false, &Path::new("spec"), errors);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn update(new: &Value, old: &Value) -> Vec<String> {
        let mut errors = ErrorList::new();
        validate_update(new, old, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    fn volume() -> Value {
        json!({"spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": "d", "volumeHandle": "h"},
        }})
    }

    #[test]
    fn the_secret_for_expansions_can_be_added_once() {
        let (old, mut new) = (volume(), volume());
        new["spec"]["csi"]["controllerExpandSecretRef"] = json!({"name": "s", "namespace": "n"});
        assert_eq!(update(&new, &old), Vec::<String>::new());
        let mut other = new.clone();
        other["spec"]["csi"]["controllerExpandSecretRef"]["name"] = "t".into();
        let errors = update(&other, &new);
        assert!(
            errors.len() == 1 && errors[0].contains("is immutable"),
            "{errors:?}"
        );
    }

    #[test]
    fn the_attributes_class_cannot_be_removed() {
        let (new, mut old) = (volume(), volume());
        old["spec"]["volumeAttributesClassName"] = "c".into();
        assert_eq!(
            update(&new, &old),
            [
                "spec.volumeAttributesClassName: Forbidden: update from non-nil value to nil is forbidden"
            ]
        );
        assert_eq!(update(&old, &new), Vec::<String>::new());
    }
}
