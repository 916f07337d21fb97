//! Pod security standards: what the labels of a namespace demand of its pods.

mod checks;
pub(crate) mod metrics;
mod namespace;

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use self::checks::{Pod, details, findings};
use super::Admission;
use super::{Attributes, Operation, forbidden};
use crate::config::pod_security::{Level, Policy, Standard, version};
use crate::error::Result;
use crate::object::text;
use crate::request::Warnings;

const PREFIX: &str = "pod-security.kubernetes.io/";

impl Policy {
    /// The policy in the labels of a namespace where they say something, and errors in them.
    fn of(namespace: &Value, defaults: &Policy) -> (Policy, ErrorList) {
        let labels = &namespace["metadata"]["labels"];
        let path = Path::new("metadata").child("labels");
        let mut errors = ErrorList::new();
        let mut read = |mode: &str, mut standard: Standard, otherwise: Level| {
            let key = format!("{PREFIX}{mode}");
            let named = labels[&key].as_str();
            if let Some(name) = named {
                standard.level = Level::parse(name).unwrap_or_else(|| {
                    let detail = "must be one of privileged, baseline, restricted";
                    errors.push(Error::invalid(&path.key(&key), name, detail));
                    otherwise
                });
            }
            let key = format!("{key}-version");
            if let Some(label) = labels[&key].as_str() {
                standard.minor = version(label).unwrap_or_else(|| {
                    let detail = "must be \"latest\" or \"v1.x\"";
                    errors.push(Error::invalid(&path.key(&key), label, detail));
                    None
                });
            }
            (standard, named.and_then(Level::parse).is_some())
        };
        let (enforce, is_set) = read("enforce", defaults.enforce, Level::Restricted);
        let (audit, _) = read("audit", defaults.audit, Level::Privileged);
        let (mut warn, _) = read("warn", defaults.warn, Level::Privileged);
        // Without a warn level, the enforced level is warned about.
        if labels[format!("{PREFIX}warn")].is_null() && is_set && enforce.level > warn.level {
            warn.level = enforce.level;
            if labels[format!("{PREFIX}warn-version")].is_null() {
                warn.minor = enforce.minor;
            }
        }
        let policy = Policy {
            enforce,
            audit,
            warn,
        };
        (policy, errors)
    }
}

/// Checks a pod, the pod template of a workload, or the labels of a namespace.
pub(super) async fn check(
    core: &Admission,
    attributes: &Attributes<'_>,
    object: &Value,
    warnings: &Warnings,
) -> Result<()> {
    if !matches!(attributes.operation, Operation::Create | Operation::Update) {
        return Ok(());
    }
    if attributes.resource.rules.is_namespace {
        return namespace::check(core, attributes, object, warnings).await;
    }
    let Some(pod) = pod_of(attributes, object) else {
        return Ok(());
    };
    let is_pod = attributes.resource.is("", "pods");
    if is_pod && attributes.old.is_some_and(|old| !changes(old, object)) {
        return Ok(());
    }
    let namespace = attributes.namespace;
    if let Some(why) = exemption(core, attributes, &pod) {
        core.pod_security.exempted(attributes);
        note(attributes, "exempt", &|| why.to_owned());
        return Ok(());
    }
    let Some(namespace) = core
        .stored_parts("namespaces", namespace, &["metadata.labels"])
        .await?
    else {
        return Ok(());
    };
    let (policy, errors) = Policy::of(&namespace, &core.config.admission.pod_security.defaults);
    let note = |key: &str, text: &dyn Fn() -> String| note(attributes, key, text);
    let evaluated = |mode: &'static str, standard: Standard, allowed: bool| {
        let (level, privileged) = (standard.level.name(), standard.level == Level::Privileged);
        let version = match standard.minor.filter(|_| !privileged) {
            None => "latest".to_owned(),
            Some(minor) if minor > u32::from(core.config.features.release().minor()) => {
                "future".to_owned()
            }
            Some(minor) => format!("v1.{minor}"),
        };
        core.pod_security
            .evaluated(attributes, mode, level, version, allowed);
    };
    if !errors.is_empty() {
        note("error", &|| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            format!("Failed to parse policy: {}", errors.join(", "))
        });
    }
    let found = match is_pod {
        true => findings(policy.enforce.level, policy.enforce.minor, pod),
        false => Vec::new(),
    };
    if is_pod {
        note("enforce-policy", &|| policy.enforce.to_string());
        evaluated("enforce", policy.enforce, found.is_empty());
    }
    let violations = findings(policy.audit.level, policy.audit.minor, pod);
    if !violations.is_empty() {
        note("audit-violations", &|| {
            let details = details(&violations);
            format!("would violate PodSecurity \"{}\": {details}", policy.audit)
        });
        evaluated("audit", policy.audit, false);
    }
    if !found.is_empty() {
        let why = format!(
            "violates PodSecurity \"{}\": {}",
            policy.enforce,
            details(&found)
        );
        return Err(forbidden(attributes, &why));
    }
    let found = findings(policy.warn.level, policy.warn.minor, pod);
    if !found.is_empty() {
        evaluated("warn", policy.warn, false);
        warnings.add(format!(
            "would violate PodSecurity \"{}\": {}",
            policy.warn,
            details(&found)
        ));
    }
    Ok(())
}

/// Adds an annotation to the audit event of the request.
fn note(attributes: &Attributes<'_>, key: &str, text: &dyn Fn() -> String) {
    if let Some(asked) = &attributes.asked {
        let key = format!("{PREFIX}{key}");
        asked.request.annotations.add(key, text);
    }
}

/// Why the configuration leaves the pod out, if it does.
fn exemption(core: &Admission, attributes: &Attributes<'_>, pod: &Pod<'_>) -> Option<&'static str> {
    let configured = &core.config.admission.pod_security;
    let has = |list: &[String], name: &str| list.iter().any(|it| it == name);
    if has(&configured.namespaces, attributes.namespace) {
        return Some("namespace");
    }
    if has(&configured.users, &attributes.user.name) {
        return Some("user");
    }
    let class = text(pod.spec, &["runtimeClassName"]);
    (!class.is_empty() && has(&configured.runtime_classes, class)).then_some("runtimeClass")
}

/// The pod of a request, or the pod template.
fn pod_of<'a>(attributes: &Attributes<'_>, object: &'a Value) -> Option<Pod<'a>> {
    let resource = attributes.resource;
    let path = resource.rules.pod_template?;
    let concerned = match attributes.subresource {
        "" => true,
        "ephemeralcontainers" | "resize" => path.is_empty(),
        _ => false,
    };
    let template = crate::object::at(object, path);
    let template = concerned.then_some(template)?;
    template.is_object().then(|| Pod {
        metadata: &template["metadata"],
        spec: &template["spec"],
    })
}

/// A pod gets an image or a container that was not judged before.
fn changes(old: &Value, new: &Value) -> bool {
    let list = |pod: &Value, key: &str| pod["spec"][key].as_array().cloned().unwrap_or_default();
    let differ = |key: &str| {
        let (old, new) = (list(old, key), list(new, key));
        let images = old.iter().zip(&new).any(|(a, b)| a["image"] != b["image"]);
        old.len() != new.len() || images
    };
    let known = list(old, "ephemeralContainers");
    let new_helper = list(new, "ephemeralContainers").iter().any(|it| {
        let same = known.iter().find(|old| old["name"] == it["name"]);
        same.is_none_or(|old| old["image"] != it["image"])
    });
    differ("containers") || differ("initContainers") || new_helper
}
