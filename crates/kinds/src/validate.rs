//! Validation of the kinds other than those of `resource.k8s.io`: upstream's rules as far as clients depend on them.
//!
//! Objects are decoded and defaulted, in the stored version. The caller validates the metadata.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::labels::LabelSelector;
use serde_json::Value;

use crate::request::Part;

mod access;
mod admission;
mod apps;
mod batch;
mod certificate;
mod config;
mod container;
mod csi;
mod event;
mod flow;
mod internal;
pub mod ip;
mod namespace;
mod network;
mod node;
mod persistent;
mod pod;
pub mod pod_annotations;
mod pod_diff;
mod pod_resize;
mod pod_status;
mod pod_update;
mod quota;
mod resources;
mod scaling;
mod scheduling;
mod security;
mod service;
mod storage;
mod volume;
mod workload;

pub use network::addresses::ip_name;

/// Upstream's message for a change of an immutable field.
const IMMUTABLE: &str = "field is immutable";

/// Errors of a new object.
pub fn create(group: &str, plural: &str, object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    check(group, plural, object, &mut errors);
    match (group, plural) {
        ("", "pods") => pod::validate_create(object, &mut errors),
        ("batch", "cronjobs") => batch::cron_job(object, true, &mut errors),
        ("", "namespaces") => namespace::finalizers(object, true, &mut errors),
        _ => {}
    }
    errors
}

/// Errors of a service's addresses and families; they prevent an allocation.
pub fn cluster_addresses(service: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    service::addresses(service, &mut errors);
    errors
}

/// Errors of a change through an endpoint.
pub fn update(group: &str, plural: &str, object: &Value, old: &Value, part: Part) -> ErrorList {
    let mut errors = ErrorList::new();
    match (group, plural, part) {
        ("", "pods", Part::Status) => pod_status::validate(object, old, &mut errors),
        ("", "pods", Part::EphemeralContainers) => {
            pod_update::validate_ephemeral(object, old, &mut errors);
        }
        ("", "pods", Part::Resize) => pod_resize::validate(object, old, &mut errors),
        ("", "pods", Part::Main) => pod_update::validate(object, old, &mut errors),
        ("", "nodes", Part::Main) => {
            node::validate_update(object, old, &mut errors);
            // Upstream validates the taints of an update as those of a new node, too.
            let twice: Vec<_> = errors
                .iter()
                .filter(|error| error.field.starts_with("metadata.taints"))
                .cloned()
                .collect();
            errors.extend(twice);
        }
        ("events.k8s.io", "events", _) => event::update_new_style(object, old, &mut errors),
        ("", "namespaces", Part::Status) => namespace::status(object, &mut errors),
        ("", "namespaces", Part::Main) => namespace::finalizers(object, true, &mut errors),
        ("", "namespaces", Part::Finalize) => namespace::finalizers(object, false, &mut errors),
        ("scheduling.k8s.io", "priorityclasses", _) => {
            config::priority_class_update(object, old, &mut errors);
        }
        ("scheduling.k8s.io", "workloads", _) => {
            workload::workload_update(object, old, &mut errors);
        }
        ("scheduling.k8s.io", "podgroups", Part::Status) => {
            workload::group_status(object, old, &mut errors);
        }
        ("scheduling.k8s.io", "podgroups", _) => workload::group_update(object, old, &mut errors),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings", _) => {
            check(group, plural, object, &mut errors);
            if object["roleRef"] != old["roleRef"] {
                let detail = "cannot change roleRef";
                let kind = ("rbac.authorization.k8s.io", "v1", "RoleBinding");
                let shown = internal::shown(kind, &["roleRef"], &object["roleRef"]);
                errors.push(Error::invalid(&Path::new("roleRef"), shown, detail));
            }
        }
        ("", "configmaps", _) => config::config_map_update(object, old, &mut errors),
        ("", "secrets", _) => config::secret_update(object, old, &mut errors),
        ("", "services", Part::Main) => service::validate_update(object, old, &mut errors),
        ("", "services", Part::Status) => service::validate_status(object, &mut errors),
        ("apps", _, Part::Main) => apps::validate_update(plural, object, old, &mut errors),
        ("apps", _, Part::Status) | ("", "replicationcontrollers", Part::Status) => {
            apps::validate_status(plural, object, old, &mut errors);
        }
        ("batch", "jobs", Part::Main) => batch::job_update(object, old, &mut errors),
        ("batch", "cronjobs", Part::Main) => batch::cron_job(object, false, &mut errors),
        ("batch", "jobs", Part::Status) => batch::job_status(object, old, &mut errors),
        ("", "resourcequotas", Part::Main) => quota::update(object, old, &mut errors),
        ("", "resourcequotas", Part::Status) => quota::used(object, &mut errors),
        ("storage.k8s.io", _, _) => storage_update(plural, object, old, &mut errors),
        ("flowcontrol.apiserver.k8s.io", _, Part::Status) => {
            flow::conditions(object, &mut errors);
        }
        ("networking.k8s.io", "ingressclasses", _) => {
            network::class_update(object, old, &mut errors);
        }
        ("networking.k8s.io", "ingresses", Part::Status) => {
            network::ingress_status(object, &mut errors);
        }
        ("networking.k8s.io", "ipaddresses", _) => {
            network::address_update(object, old, &mut errors);
        }
        ("networking.k8s.io", "servicecidrs", Part::Main) => {
            network::range_update(object, old, &mut errors);
        }
        ("policy", "poddisruptionbudgets", Part::Status) => {
            config::budget_status(object, &mut errors);
        }
        ("autoscaling", "horizontalpodautoscalers", Part::Status) => {
            scaling::status(object, &mut errors);
        }
        ("", "persistentvolumes", Part::Main) => storage::volume_update(object, old, &mut errors),
        ("", "persistentvolumeclaims", Part::Main) => {
            storage::claim_update(object, old, &mut errors);
        }
        ("", "persistentvolumeclaims", Part::Status) => {
            storage::claim_status(object, &mut errors);
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicies", Part::Status) => {
            admission::policy_status(object, &mut errors);
        }
        ("node.k8s.io", "runtimeclasses", _) => {
            config::runtime_class_update(object, old, &mut errors);
        }
        ("discovery.k8s.io", "endpointslices", _) => {
            network::endpoint_slice_update(object, old, &mut errors);
        }
        ("certificates.k8s.io", _, _) => certificate::update(object, old, part, &mut errors),
        ("", "nodes", Part::Status) => node::validate_status(object, &mut errors),
        ("admissionregistration.k8s.io", _, Part::Main) => {
            installed(plural, object, Some(old), &mut errors);
        }
        (_, _, Part::Status) => {}
        _ => check(group, plural, object, &mut errors),
    }
    ip::forgive(&mut errors, old);
    errors
}

fn storage_update(plural: &str, object: &Value, old: &Value, errors: &mut ErrorList) {
    match plural {
        "storageclasses" => storage::class_update(object, old, errors),
        "csidrivers" => csi::driver_update(object, old, errors),
        "csinodes" => csi::node_update(object, old, errors),
        "csistoragecapacities" => csi::capacity_update(object, old, errors),
        "volumeattachments" => csi::attachment_update(object, old, errors),
        "volumeattributesclasses" => csi::attributes_update(object, old, errors),
        _ => {}
    }
}

fn check(group: &str, plural: &str, object: &Value, errors: &mut ErrorList) {
    match (group, plural) {
        ("", "pods") => pod::validate(object, None, errors),
        ("", "nodes") => node::validate(object, errors),
        ("", "resourcequotas") => quota::validate(object, errors),
        ("", "limitranges") => scaling::limit_range(object, errors),
        ("", "endpoints") => network::endpoints(object, errors),
        ("", "podtemplates") => pod::template(&object["template"], &Path::new("template"), errors),
        ("", "persistentvolumes") => storage::volume(object, errors),
        ("", "persistentvolumeclaims") => storage::claim(object, errors),
        ("", "configmaps") => config::config_map(object, errors),
        ("", "secrets") => config::secret(object, errors),
        ("", "services") => service::validate(object, errors),
        ("", "events") => event::validate(object, errors),
        ("events.k8s.io", "events") => event::validate_new_style(object, errors),
        ("", "replicationcontrollers") | ("apps", _) => apps::validate(plural, object, errors),
        ("batch", "jobs") => batch::job(object, errors),
        ("autoscaling", "horizontalpodautoscalers") => scaling::autoscaler(object, errors),
        ("discovery.k8s.io", "endpointslices") => network::endpoint_slice(object, errors),
        ("networking.k8s.io", "ingresses") => network::ingress(object, errors),
        ("networking.k8s.io", "ingressclasses") => network::ingress_class(object, errors),
        ("networking.k8s.io", "networkpolicies") => network::policy(object, errors),
        ("apiregistration.k8s.io", _) => config::api_service(object, errors),
        ("coordination.k8s.io", "leases") => config::lease(object, errors),
        ("scheduling.k8s.io", "priorityclasses") => config::priority_class(object, errors),
        ("scheduling.k8s.io", "workloads") => workload::workload(object, errors),
        ("scheduling.k8s.io", "podgroups") => workload::group(object, errors),
        ("certificates.k8s.io", _) => certificate::request(object, errors),
        ("policy", "poddisruptionbudgets") => config::budget(object, errors),
        ("rbac.authorization.k8s.io", _) => access::role_or_binding(plural, object, errors),
        ("networking.k8s.io", "ipaddresses") => network::address(object, errors),
        ("networking.k8s.io", "servicecidrs") => network::range(object, errors),
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => flow::schema(object, errors),
        ("flowcontrol.apiserver.k8s.io", _) => flow::level(object, errors),
        ("storage.k8s.io", "storageclasses") => storage::class(object, errors),
        ("storage.k8s.io", "csidrivers") => csi::driver(object, errors),
        ("storage.k8s.io", "csinodes") => csi::node(object, errors),
        ("storage.k8s.io", "csistoragecapacities") => csi::capacity(object, errors),
        ("storage.k8s.io", "volumeattachments") => csi::attachment(object, true, errors),
        ("storage.k8s.io", "volumeattributesclasses") => csi::attributes(object, errors),
        ("node.k8s.io", "runtimeclasses") => config::runtime_class(object, errors),
        ("admissionregistration.k8s.io", _) => installed(plural, object, None, errors),
        _ => {}
    }
}

/// What users install to take part in admission.
fn installed(plural: &str, object: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    match plural {
        "validatingadmissionpolicies" => admission::policy(object, old, errors),
        "validatingadmissionpolicybindings" => admission::binding(object, errors),
        "mutatingadmissionpolicies" => admission::mutating_policy(object, old, errors),
        "mutatingadmissionpolicybindings" => admission::mutating_binding(object, errors),
        "validatingwebhookconfigurations" | "mutatingwebhookconfigurations" => {
            admission::configuration(object, old, errors);
        }
        _ => {}
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn entries<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value[key].as_object().into_iter().flatten()
}

/// Adds an error for each text that a rule gives.
fn rule(texts: Vec<String>, value: &str, path: &Path, errors: &mut ErrorList) {
    errors.extend(
        texts
            .into_iter()
            .map(|text| Error::invalid(path, value, text)),
    );
}

/// The value must be one of the supported ones; `required` forbids an empty one.
fn one_of(value: &str, supported: &[&str], required: bool, path: &Path, errors: &mut ErrorList) {
    if value.is_empty() {
        if required {
            errors.push(Error::required(path, ""));
        }
    } else if !supported.contains(&value) {
        errors.push(Error::not_supported(path, value, supported));
    }
}

/// The number is not negative.
fn not_negative(value: &Value, path: &Path, errors: &mut ErrorList) {
    if let Some(number) = value.as_i64().filter(|number| *number < 0) {
        errors.push(Error::invalid(
            path,
            number,
            "must be greater than or equal to 0",
        ));
    }
}

/// The labels of a map, keys and values.
fn labels(value: &Value, path: &Path, errors: &mut ErrorList) {
    for (key, value) in value.as_object().into_iter().flatten() {
        rule(
            allot_apimachinery::names::qualified_name(key),
            key,
            path,
            errors,
        );
        let value = value.as_str().unwrap_or_default();
        rule(
            allot_apimachinery::names::label_value(value),
            value,
            path,
            errors,
        );
    }
}

/// A label selector.
fn label_selector(selector: &Value, path: &Path, errors: &mut ErrorList) {
    if let Ok(selector) = LabelSelector::from_json(selector) {
        errors.extend(selector.validate(path));
    }
}

/// A number or a percentage for how many pods.
fn int_or_percent(value: &Value, path: &Path, errors: &mut ErrorList) {
    match value {
        Value::String(text) => {
            let digits = text.strip_suffix('%');
            if digits.is_none_or(|digits| {
                digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit())
            }) {
                let text_of = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
                errors.push(Error::invalid(path, text.as_str(), text_of));
            }
        }
        value => not_negative(value, path, errors),
    }
}

/// A path that begins with a domain, such as `example.com/name`.
pub fn domain_prefixed_path(value: &str, path: &Path, errors: &mut ErrorList) {
    const FORM: &str = "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+";
    if value.is_empty() {
        errors.push(Error::required(path, ""));
        return;
    }
    let parts = value.split_once('/');
    let Some((host, rest)) = parts.filter(|(host, rest)| !host.is_empty() && !rest.is_empty())
    else {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        errors.push(Error::invalid(path, value, detail));
        return;
    };
    rule(
        allot_apimachinery::names::dns1123_subdomain(host),
        host,
        path,
        errors,
    );
    let fits = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
    if !rest.chars().all(fits) {
        let detail = allot_apimachinery::names::regex_error("Invalid path", FORM, &[]);
        errors.push(Error::invalid(path, rest, detail));
    }
}

/// The message for a number outside a range.
fn between(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

#[cfg(test)]
mod tests;
