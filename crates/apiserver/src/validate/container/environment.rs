//! Environment variables.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::super::{rule, text};

/// Checks the variables that are set one by one.
pub(super) fn environment(variables: &[Value], path: &Path, errors: &mut ErrorList) {
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
    const FIELDS: [&str; 10] = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
        "",
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
    if let Some(field) = source["fieldRef"].as_object() {
        let at = path.child("fieldRef").child("fieldPath");
        let name = field
            .get("fieldPath")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let subscript =
            name.starts_with("metadata.labels['") || name.starts_with("metadata.annotations['");
        if name.is_empty() {
            errors.push(Error::required(&at, ""));
        } else if !subscript && !FIELDS.contains(&name) {
            errors.push(Error::not_supported(&at, name, &FIELDS[..FIELDS.len() - 1]));
        }
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
            let key = text(&source[kind], "key");
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
}

/// Checks the variables that come as a whole.
pub(super) fn environment_sources(sources: &[Value], path: &Path, errors: &mut ErrorList) {
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
            if text(&source[*kind], "name").is_empty() {
                errors.push(Error::required(&at.child(kind).child("name"), ""));
            }
        }
        match set.len() {
            0 => errors.push(Error::invalid(
                &at,
                "",
                "must specify one of: `configMapRef` or `secretRef`",
            )),
            1 => {}
            _ => errors.push(Error::invalid(
                &at,
                "",
                "may not have more than one field specified at a time",
            )),
        }
    }
}
