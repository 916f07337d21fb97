//! API services: groups and versions and what serves them.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::{Value, json};

use crate::object::{self, items};
use crate::registry::{ALL_METADATA, Builtin, CLUSTER, MetadataErrors, Rules, STATUS};
use crate::table::age;
use crate::table::format::name;
use crate::validate::{decoded_length, rule, text};

pub(super) static API_SERVICE: Builtin = Builtin {
    group: "apiregistration.k8s.io",
    kind: "APIService",
    plural: "apiservices",
    categories: &["api-extensions"],
    subresources: &[STATUS],
    rules: Rules {
        name: names::path_segment_name,
        storage_prefix: "apiregistration.k8s.io/apiservices",
        requires_version: |_| true,
        status_keeps: ALL_METADATA,
        validate,
        metadata_errors: MetadataErrors::WithName,
        own_finalizers: true,
        table: Some(("Name|Service|Available|Age", row)),
        ..Rules::DEFAULT
    },
    ..CLUSTER
};

/// Highest priorities of a group and of a version.
const MAX_PRIORITIES: [(&str, i64); 2] =
    [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)];

/// Validates the backend of a group version.
fn validate(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let (group, version) = (text(spec, "group"), text(spec, "version"));
    let wanted = format!("{version}.{group}");
    for key in ["generateName", "name"] {
        let name = text(&object["metadata"], key);
        // Names that cannot be in a path are reported by the check of the metadata only.
        if !name.is_empty() && name != wanted && names::path_segment_name(name).is_empty() {
            let detail = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
            let at = Path::new("metadata").child(key);
            errors.push(Error::invalid(&at, name, detail));
        }
    }
    if !group.is_empty() {
        rule(
            names::dns1123_subdomain(group),
            group,
            &path.child("group"),
            errors,
        );
    } else if version != "v1" {
        let detail = "only v1 may have an empty group and it better be legacy kube";
        errors.push(Error::required(&path.child("group"), detail));
    }
    rule(
        names::dns1035_label(version),
        version,
        &path.child("version"),
        errors,
    );
    for (key, most) in MAX_PRIORITIES {
        let priority = spec[key].as_i64().unwrap_or_default();
        if !(1..=most).contains(&priority) {
            let detail = format!("must be positive and less than {most}");
            errors.push(Error::invalid(&path.child(key), priority, detail));
        }
    }
    let trusting = spec["insecureSkipTLSVerify"] == true;
    let bundle = decoded_length(text(spec, "caBundle"));
    let service = &spec["service"];
    if !service.is_object() {
        if bundle > 0 {
            let detail = "local APIServices may not have a caBundle";
            let shown = format!("{bundle} bytes");
            errors.push(Error::invalid(&path.child("caBundle"), shown, detail));
        }
        if trusting {
            let detail = "local APIServices may not have insecureSkipTLSVerify";
            errors.push(Error::invalid(
                &path.child("insecureSkipTLSVerify"),
                true,
                detail,
            ));
        }
        return;
    }
    let at = path.child("service");
    for key in ["namespace", "name"] {
        if text(service, key).is_empty() {
            errors.push(Error::required(&at.child(key), ""));
        }
    }
    if let Some(port) = service["port"].as_i64() {
        let texts = names::port_number(port);
        if !texts.is_empty() {
            let detail = format!("port is not valid: {}", texts.join(","));
            errors.push(Error::invalid(&at.child("port"), port, detail));
        }
    }
    if trusting && bundle > 0 {
        let detail = "may not be true if caBundle is present";
        errors.push(Error::invalid(
            &path.child("insecureSkipTLSVerify"),
            true,
            detail,
        ));
    }
}

fn row(object: &Value) -> Vec<Value> {
    let service = match &object["spec"]["service"] {
        Value::Null => "Local".to_owned(),
        service => format!(
            "{}/{}",
            object::text(service, &["namespace"]),
            object::text(service, &["name"])
        ),
    };
    let available = items(&object["status"]["conditions"])
        .iter()
        .find(|it| it["type"] == "Available");
    let available = available.map_or("Unknown", |it| it["status"].as_str().unwrap_or("Unknown"));
    vec![name(object), json!(service), json!(available), age(object)]
}
