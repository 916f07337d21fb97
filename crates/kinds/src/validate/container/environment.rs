//! Environment variables.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::super::{by_name, list, rule, text};

/// Checks the variables that are set one by one.
pub(crate) fn environment(variables: &[Value], path: &Path, errors: &mut ErrorList) {
    for (index, variable) in variables.iter().enumerate() {
        let at = path.index(index);
        let name = text(variable, "name");
        if name.is_empty() {
            errors.push(Error::required(&at.child("name"), ""));
        } else {
            rule(names::env_var_name(name), name, &at.child("name"), errors);
        }
        let source = &variable["valueFrom"];
        if source.is_object() {
            environment_source(
                source,
                !text(variable, "value").is_empty(),
                &at.child("valueFrom"),
                errors,
            );
        }
    }
}

fn environment_source(source: &Value, with_value: bool, path: &Path, errors: &mut ErrorList) {
    const FIELDS: [&str; 9] = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    let kinds = [
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fileKeyRef",
    ];
    let set: Vec<&str> = kinds
        .into_iter()
        .filter(|kind| source[*kind].is_object())
        .collect();
    if source["fieldRef"].is_object() {
        pod_field(
            &source["fieldRef"],
            &FIELDS,
            &path.child("fieldRef"),
            errors,
        );
    }
    if source["resourceFieldRef"].is_object() {
        resource_field(
            &source["resourceFieldRef"],
            false,
            &path.child("resourceFieldRef"),
            errors,
        );
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        if source[kind].is_object() {
            let (name, key) = (text(&source[kind], "name"), text(&source[kind], "key"));
            let at = path.child(kind).child("name");
            rule(names::dns1123_subdomain(name), name, &at, errors);
            if key.is_empty() {
                errors.push(Error::required(&path.child(kind).child("key"), ""));
            } else {
                rule(
                    names::config_map_key(key),
                    key,
                    &path.child(kind).child("key"),
                    errors,
                );
            }
        }
    }
    if source["fileKeyRef"].is_object() {
        file_key(&source["fileKeyRef"], &path.child("fileKeyRef"), errors);
    }
    if set.is_empty() {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.push(Error::invalid(path, "", detail));
    } else if with_value {
        errors.push(Error::invalid(
            path,
            "",
            "may not be specified when `value` is not empty",
        ));
    } else if set.len() > 1 {
        errors.push(Error::invalid(
            path,
            "",
            "may not have more than one field specified at a time",
        ));
    }
}

/// A variable in a file of a volume.
fn file_key(file: &Value, path: &Path, errors: &mut ErrorList) {
    let found = ["key", "volumeName", "path"].map(|key| (key, text(file, key)));
    for (key, value) in found {
        let at = path.child(key);
        match key {
            _ if value.is_empty() => errors.push(Error::required(&at, "")),
            "key" => rule(names::env_var_name(value), value, &at, errors),
            "volumeName" => rule(names::dns1123_label(value), value, &at, errors),
            _ if value.split('/').any(|part| part == "..") => {
                errors.push(Error::invalid(&at, value, "must not contain '..'"));
            }
            _ => {}
        }
    }
}

/// Variables in files are read from volumes that begin empty.
pub(in crate::validate) fn volumes_of_files(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let volumes = by_name(list(spec, "volumes"));
    for key in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in list(spec, key).iter().enumerate() {
            for (place, variable) in list(container, "env").iter().enumerate() {
                let file = &variable["valueFrom"]["fileKeyRef"];
                if !file.is_object() {
                    continue;
                }
                let at = path.child(key).index(index).child("env").index(place);
                let at = at
                    .child("valueFrom")
                    .child("fileKeyRef")
                    .child("volumeName");
                let name = text(file, "volumeName");
                match volumes.get(name) {
                    None => errors.push(Error::not_found(&at, name)),
                    Some(volume) if !volume["emptyDir"].is_object() => {
                        let detail = "referenced volume must be of type emptyDir";
                        errors.push(Error::invalid(&at, name, detail));
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

/// A reference to one of the fields of the pod that are supported in its place.
pub(in crate::validate) fn pod_field(
    field: &Value,
    known: &[&str],
    path: &Path,
    errors: &mut ErrorList,
) {
    /// What can be named at all; the value of a host has another name since long ago.
    const NAMED: [&str; 13] = [
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "status.phase",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
    ];
    let (version, at) = (text(field, "apiVersion"), path.child("fieldPath"));
    let name = text(field, "fieldPath");
    if version.is_empty() {
        return errors.push(Error::required(&path.child("apiVersion"), ""));
    }
    if name.is_empty() {
        return errors.push(Error::required(&at, ""));
    }
    let converting = "error converting fieldPath:";
    if version != "v1" {
        let detail = format!("{converting} unsupported pod version: {version}");
        return errors.push(Error::invalid(&at, name, detail));
    }
    let subscript = name
        .strip_suffix("']")
        .and_then(|rest| rest.split_once("['"))
        .filter(|(map, _)| !map.is_empty());
    if let Some((map, key)) = subscript {
        match map {
            "metadata.annotations" => {
                let key = key.to_lowercase();
                rule(names::qualified_name(&key), &key, path, errors);
            }
            "metadata.labels" => rule(names::qualified_name(key), key, path, errors),
            _ => {
                let detail = format!("{converting} field label does not support subscript: {name}");
                errors.push(Error::invalid(&at, name, detail));
            }
        }
        return;
    }
    let name = if name == "spec.host" {
        "spec.nodeName"
    } else {
        name
    };
    if !NAMED.contains(&name) && name != "status.podIPs" {
        let detail = format!("{converting} field label not supported: {name}");
        errors.push(Error::invalid(&at, name, detail));
    } else if !known.contains(&name) {
        errors.push(Error::not_supported(&at, name, known));
    }
}

/// A reference to a request or limit of a container; files must name the container.
pub(in crate::validate) fn resource_field(
    field: &Value,
    of_file: bool,
    path: &Path,
    errors: &mut ErrorList,
) {
    const KNOWN: [&str; 6] = [
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    let name = text(field, "resource");
    if of_file && text(field, "containerName").is_empty() {
        errors.push(Error::required(&path.child("containerName"), ""));
    } else if name.is_empty() {
        errors.push(Error::required(&path.child("resource"), ""));
    } else if !KNOWN.contains(&name)
        && !name.starts_with("limits.hugepages-")
        && !name.starts_with("requests.hugepages-")
    {
        errors.push(Error::not_supported(&path.child("resource"), name, &KNOWN));
    }
    let divisor = text(field, "divisor");
    if divisor.is_empty() || divisor == "0" {
        return;
    }
    let (_, amount) = name.split_once('.').unwrap_or_default();
    let detail = match amount {
        "cpu" if !matches!(divisor, "1" | "1m") => {
            "only divisor's values 1m and 1 are supported with the cpu resource".to_owned()
        }
        _ if amount != "cpu" && !BYTES.contains(&divisor) => {
            let of = match amount {
                "memory" => "memory",
                "ephemeral-storage" => "local ephemeral storage",
                _ if amount.starts_with("hugepages-") => "hugepages",
                _ => return,
            };
            let bytes = BYTES.join(", ");
            format!("only divisor's values {bytes} are supported with the {of} resource")
        }
        _ => return,
    };
    errors.push(Error::invalid(&path.child("divisor"), name, detail));
}

const BYTES: [&str; 13] = [
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

/// Validates `envFrom`.
pub(crate) fn environment_sources(sources: &[Value], path: &Path, errors: &mut ErrorList) {
    for (index, source) in sources.iter().enumerate() {
        let at = path.index(index);
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            rule(
                names::env_var_name(prefix),
                prefix,
                &at.child("prefix"),
                errors,
            );
        }
        let set: Vec<&str> = ["configMapRef", "secretRef"]
            .into_iter()
            .filter(|kind| source[*kind].is_object())
            .collect();
        for kind in &set {
            let (name, at) = (text(&source[*kind], "name"), at.child(kind).child("name"));
            if name.is_empty() {
                errors.push(Error::required(&at, ""));
            } else {
                // As the beginning of a name, which may end in a dash.
                let name_of = names::mask_trailing_dash(name);
                rule(names::dns1123_subdomain(&name_of), name, &at, errors);
            }
        }
        // Upstream reports these at the list.
        let detail = match set.len() {
            0 => "must specify one of: `configMapRef` or `secretRef`",
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        errors.push(Error::invalid(path, "", detail));
    }
}
