//! Config maps, secrets, leases, priority classes, budgets, API services, runtime classes.

use std::collections::BTreeSet;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::{
    IMMUTABLE, entries, int_or_percent, internal, label_selector, labels, list, one_of, rule, text,
};

/// Largest payload of a config map or secret, in bytes.
const MAX_DATA: usize = 1 << 20;

/// Decoded length of a base64 text.
fn decoded_length(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take_while(|b| *b == b'=').count()
}

pub(crate) fn config_map(object: &Value, errors: &mut ErrorList) {
    let mut total = 0;
    for (key, value) in entries(object, "data") {
        let at = Path::new("data").key(key);
        rule(names::config_map_key(key), key, &at, errors);
        if object["binaryData"].get(key).is_some() {
            errors.push(Error::invalid(
                &at,
                key,
                "duplicate of key present in binaryData",
            ));
        }
        total += value.as_str().map_or(0, str::len);
    }
    for (key, value) in entries(object, "binaryData") {
        rule(
            names::config_map_key(key),
            key,
            &Path::new("binaryData").key(key),
            errors,
        );
        total += value.as_str().map_or(0, decoded_length);
    }
    if total > MAX_DATA {
        errors.push(Error::too_long(&Path::new("[]"), MAX_DATA));
    }
}

pub(crate) fn config_map_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    immutable(object, old, &["data", "binaryData"], errors);
    config_map(object, errors);
}

fn immutable(object: &Value, old: &Value, keys: &[&str], errors: &mut ErrorList) {
    if old["immutable"] != true {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    if object["immutable"] != true {
        errors.push(Error::forbidden(&Path::new("immutable"), detail));
    }
    for key in keys {
        if object[*key] != old[*key] {
            errors.push(Error::forbidden(&Path::new(key), detail));
        }
    }
}

pub(crate) fn secret(object: &Value, errors: &mut ErrorList) {
    let path = Path::new("data");
    let mut total = 0;
    for (key, value) in entries(object, "data") {
        rule(names::config_map_key(key), key, &path.key(key), errors);
        total += value.as_str().map_or(0, decoded_length);
    }
    if total > MAX_DATA {
        errors.push(Error::too_long(&path, MAX_DATA));
    }
    let has = |key: &str| object["data"].get(key).is_some();
    match text(object, "type") {
        "kubernetes.io/service-account-token"
            if text(
                &object["metadata"]["annotations"],
                "kubernetes.io/service-account.name",
            )
            .is_empty() =>
        {
            let at = Path::new("metadata")
                .child("annotations")
                .key("kubernetes.io/service-account.name");
            errors.push(Error::required(&at, ""));
        }
        "kubernetes.io/dockercfg" => registry_secret(object, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => registry_secret(object, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            errors.push(Error::required(&path.key("username"), ""));
            errors.push(Error::required(&path.key("password"), ""));
        }
        "kubernetes.io/ssh-auth" if !has("ssh-privatekey") => {
            errors.push(Error::required(&path.key("ssh-privatekey"), ""));
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !has(key) {
                    errors.push(Error::required(&path.key(key), ""));
                }
            }
        }
        _ => {}
    }
}

/// The file of a registry client: it must exist and be JSON. Errors do not contain its content.
fn registry_secret(object: &Value, key: &str, errors: &mut ErrorList) {
    use base64::Engine as _;
    let at = Path::new("data").key(key);
    let Some(encoded) = object["data"][key].as_str() else {
        errors.push(Error::required(&at, ""));
        return;
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded);
    let why = match allot_schema::decode::decode_json(&bytes.unwrap_or_default(), None) {
        Err(error) => error.to_string(),
        Ok(decoded) => match decoded.value {
            Value::Object(_) | Value::Null => return,
            other => {
                let found = match other {
                    Value::Bool(_) => "bool",
                    Value::Number(_) => "number",
                    Value::String(_) => "string",
                    _ => "array",
                };
                format!(
                    "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
                )
            }
        },
    };
    errors.push(Error::invalid(&at, "<secret contents redacted>", why));
}

pub(crate) fn secret_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    if object["type"] != old["type"] {
        errors.push(Error::invalid(
            &Path::new("type"),
            text(object, "type"),
            "field is immutable",
        ));
    }
    immutable(object, old, &["data"], errors);
    secret(object, errors);
}

pub(crate) fn lease(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    if let Some(seconds) = spec["leaseDurationSeconds"]
        .as_i64()
        .filter(|seconds| *seconds <= 0)
    {
        errors.push(Error::invalid(
            &path.child("leaseDurationSeconds"),
            seconds,
            "must be greater than 0",
        ));
    }
    if let Some(count) = spec["leaseTransitions"].as_i64().filter(|count| *count < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(Error::invalid(
            &path.child("leaseTransitions"),
            count,
            detail,
        ));
    }
}

/// The highest priority that users may give.
const MAX_USER_PRIORITY: i64 = 1_000_000_000;

pub(crate) fn priority_class(object: &Value, errors: &mut ErrorList) {
    let name = text(&object["metadata"], "name");
    if name.starts_with("system-")
        && let Some(why) = system_class(object, name)
    {
        let detail = format!(
            "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
        );
        let at = Path::new("metadata").child("name");
        errors.push(Error::forbidden(&at, detail));
    }
    if object["value"].as_i64().unwrap_or_default() > MAX_USER_PRIORITY
        && !name.starts_with("system-")
    {
        let detail =
            format!("maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}");
        errors.push(Error::forbidden(&Path::new("value"), detail));
    }
    let policies = ["PreemptLowerPriority", "Never"];
    one_of(
        text(object, "preemptionPolicy"),
        &policies,
        true,
        &Path::new("preemptionPolicy"),
        errors,
    );
}

/// Validates an update of a priority class: values that pods copied cannot change.
pub(crate) fn priority_class_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    if object["value"] != old["value"] {
        let detail = "may not be changed in an update.";
        errors.push(Error::forbidden(&Path::new("value"), detail));
    }
    const POLICY: &str = "preemptionPolicy";
    if object[POLICY] != old[POLICY] {
        let at = Path::new(POLICY);
        errors.push(Error::invalid(&at, &object[POLICY], IMMUTABLE));
    }
}

/// What a class with the name of one of the server's has other than that.
fn system_class(object: &Value, name: &str) -> Option<String> {
    let wanted = match name {
        "system-node-critical" => 2_000_001_000,
        "system-cluster-critical" => 2_000_000_000,
        _ => return Some(format!("{name} is not a known system priority class")),
    };
    if object["value"].as_i64() != Some(wanted) {
        return Some(format!("value of {name} PriorityClass must be {wanted}"));
    }
    let default = object["globalDefault"] == true;
    default.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

pub(crate) fn budget_status(object: &Value, errors: &mut ErrorList) {
    let (status, path) = (&object["status"], Path::new("status"));
    for key in [
        "disruptionsAllowed",
        "currentHealthy",
        "desiredHealthy",
        "expectedPods",
    ] {
        super::not_negative(&status[key], &path.child(key), errors);
    }
}

pub(crate) fn budget(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let (least, most) = (&spec["minAvailable"], &spec["maxUnavailable"]);
    if !least.is_null() && !most.is_null() {
        let shown = format!(
            "{{\"MinAvailable\":{least},\"Selector\":{},\"MaxUnavailable\":{most},\"UnhealthyPodEvictionPolicy\":{}}}",
            internal::selector(&spec["selector"]),
            spec["unhealthyPodEvictionPolicy"]
        );
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(Error::invalid(&path, BadValue::raw(shown), detail));
    }
    for (key, value) in [("minAvailable", least), ("maxUnavailable", most)] {
        if !value.is_null() {
            int_or_percent(value, &path.child(key), errors);
            let percent = value.as_str().and_then(|text| text.strip_suffix('%'));
            if percent.is_some_and(|text| text.parse::<u64>().is_ok_and(|it| it > 100)) {
                let detail = "must not be greater than 100%";
                errors.push(Error::invalid(&path.child(key), value, detail));
            }
        }
    }
    label_selector(&spec["selector"], &path.child("selector"), errors);
    let policy = text(spec, "unhealthyPodEvictionPolicy");
    let at = path.child("unhealthyPodEvictionPolicy");
    one_of(
        policy,
        &["AlwaysAllow", "IfHealthyBudget"],
        false,
        &at,
        errors,
    );
}

/// Highest priorities of a group and of a version.
const MAX_PRIORITIES: [(&str, i64); 2] =
    [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)];

/// Validates the backend of a group version.
pub(crate) fn api_service(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let (group, version) = (text(spec, "group"), text(spec, "version"));
    let wanted = format!("{version}.{group}");
    for key in ["generateName", "name"] {
        let name = text(&object["metadata"], key);
        // Names that no path can have are told of by the check of the metadata alone.
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

pub(crate) fn runtime_class(object: &Value, errors: &mut ErrorList) {
    let (handler, at) = (text(object, "handler"), Path::new("handler"));
    if handler.is_empty() {
        errors.push(Error::required(&at, ""));
    } else {
        rule(names::dns1123_label(handler), handler, &at, errors);
    }
    let fixed = &object["overhead"]["podFixed"];
    if fixed.is_object() {
        let amounts = serde_json::json!({"limits": fixed});
        super::resources::container(&amounts, &Path::new("overhead"), errors);
    }
    let path = Path::new("scheduling");
    labels(
        &object["scheduling"]["nodeSelector"],
        &path.child("nodeSelector"),
        errors,
    );
    let tolerations = list(&object["scheduling"], "tolerations");
    let path = path.child("tolerations");
    super::scheduling::tolerations(tolerations, &path, errors);
    let mut seen = BTreeSet::new();
    for (index, toleration) in tolerations.iter().enumerate() {
        let key = ["key", "operator", "value", "effect"].map(|part| text(toleration, part));
        if !seen.insert(key) {
            let shown = super::scheduling::shown_toleration(toleration);
            errors.push(Error::duplicate(&path.index(index), shown));
        }
    }
}

pub(crate) fn runtime_class_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    runtime_class(object, errors);
    if object["handler"] != old["handler"] {
        errors.push(Error::invalid(
            &Path::new("handler"),
            text(object, "handler"),
            "field is immutable",
        ));
    }
}
