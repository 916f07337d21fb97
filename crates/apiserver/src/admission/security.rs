//! Pod security standards: what the labels of a namespace demand of its pods.

mod checks;
pub(crate) mod metrics;

use std::collections::BTreeMap;

use allot_apimachinery::Status;
use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::gvk::GroupKind;
use serde_json::Value;

use self::checks::{Pod, details, findings, reasons};
use super::Admission;
use super::{Attributes, Operation, forbidden, stored_in};
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
        return check_namespace(core, attributes, object, warnings).await;
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

/// Rejects invalid labels, and warns about existing pods that violate a new level.
async fn check_namespace(
    core: &Admission,
    attributes: &Attributes<'_>,
    namespace: &Value,
    warnings: &Warnings,
) -> Result<()> {
    if !attributes.subresource.is_empty() {
        return Ok(());
    }
    let configured = &core.config.admission.pod_security;
    let (policy, errors) = Policy::of(namespace, &configured.defaults);
    let before = attributes
        .old
        .map(|old| Policy::of(old, &configured.defaults));
    let known = before.as_ref().is_some_and(|(_, old)| *old == errors);
    if !errors.is_empty() && !known {
        let kind = GroupKind::new("", "Namespace");
        return Err(Status::invalid(&kind, attributes.name, &errors).into());
    }
    let is_exempt = configured.namespaces.iter().any(|it| it == attributes.name);
    let new = policy.enforce;
    if let Some((old, _)) = &before {
        let relaxed = new.minor == old.enforce.minor && new.level <= old.enforce.level;
        if new.level == Level::Privileged || relaxed {
            return Ok(());
        }
    }
    if is_exempt {
        warn_of_exemption(
            &policy,
            &configured.defaults,
            namespace,
            attributes.name,
            warnings,
        );
        return Ok(());
    }
    // A namespace that is new has no pods.
    if before.is_none() {
        return Ok(());
    }
    // By violation: the first pod and the number of pods.
    let mut wrong: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for pod in stored_in(core, "pods", attributes.name).await? {
        let shown = Pod {
            metadata: &pod["metadata"],
            spec: &pod["spec"],
        };
        let class = text(&pod, &["spec", "runtimeClassName"]);
        if configured.runtime_classes.iter().any(|it| it == class) {
            continue;
        }
        let found = findings(new.level, new.minor, shown);
        if !found.is_empty() {
            let name = text(&pod, &["metadata", "name"]);
            let entry = wrong
                .entry(reasons(&found))
                .or_insert_with(|| (name.to_owned(), 0));
            entry.1 += 1;
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    warnings.add(format!(
        "existing pods in namespace \"{}\" violate the new PodSecurity enforce level \"{new}\"",
        attributes.name
    ));
    let mut texts: Vec<String> = wrong
        .into_iter()
        .map(|(why, (name, count))| match count {
            1 => format!("{name}: {why}"),
            2 => format!("{name} (and 1 other pod): {why}"),
            _ => format!("{name} (and {} other pods): {why}", count - 1),
        })
        .collect();
    texts.sort_unstable();
    texts.into_iter().for_each(|text| warnings.add(text));
    Ok(())
}

/// The labels of a namespace that is left out have no effect.
fn warn_of_exemption(
    policy: &Policy,
    defaults: &Policy,
    namespace: &Value,
    name: &str,
    warnings: &Warnings,
) {
    let standards = [
        ("enforce", policy.enforce),
        ("audit", policy.audit),
        ("warn", policy.warn),
    ];
    let is_privileged = |(_, standard): &(&str, Standard)| standard.level == Level::Privileged;
    if standards.iter().all(is_privileged) || policy == defaults {
        return;
    }
    let labels = &namespace["metadata"]["labels"];
    let is_set = |mode: &str| {
        let level = &labels[format!("{PREFIX}{mode}")];
        !level.is_null() || !labels[format!("{PREFIX}{mode}-version")].is_null()
    };
    let shown = standards
        .iter()
        .filter(|it| !is_privileged(it) && is_set(it.0));
    let shown: Vec<String> = shown
        .map(|(mode, standard)| format!("{mode}={standard}"))
        .collect();
    warnings.add(format!(
        "namespace {} is exempt from Pod Security, and the policy ({}) will be ignored",
        allot_apimachinery::quote::quote(name),
        shown.join(", ")
    ));
}
