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
use crate::error::Result;
use crate::object::text;
use crate::request::Warnings;

const PREFIX: &str = "pod-security.kubernetes.io/";

/// How strict a namespace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn parse(name: &str) -> Option<Level> {
        match name {
            "privileged" => Some(Level::Privileged),
            "baseline" => Some(Level::Baseline),
            "restricted" => Some(Level::Restricted),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

/// A level as a version of Kubernetes has it; none is the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standard {
    level: Level,
    minor: Option<u32>,
}

impl std::fmt::Display for Standard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.minor {
            Some(minor) => write!(f, "{}:v1.{minor}", self.level.name()),
            None => write!(f, "{}:latest", self.level.name()),
        }
    }
}

/// The levels that a namespace enforces, has noted in the audit log, and warns about.
struct Policy {
    enforce: Standard,
    audit: Standard,
    warn: Standard,
}

/// The minor version that a label names; the inner none is the latest, the outer one a text that is no version.
fn version(label: &str) -> Option<Option<u32>> {
    if label == "latest" {
        return Some(None);
    }
    let minor = label.strip_prefix("v1.")?;
    let digits = !minor.is_empty() && minor.bytes().all(|it| it.is_ascii_digit());
    let plain = digits && (minor == "0" || !minor.starts_with('0'));
    plain.then(|| minor.parse().ok()).flatten().map(Some)
}

impl Policy {
    /// The policy in the labels of a namespace, and errors in them.
    fn of(namespace: &Value) -> (Policy, ErrorList) {
        let labels = &namespace["metadata"]["labels"];
        let path = Path::new("metadata").child("labels");
        let mut errors = ErrorList::new();
        let mut read = |mode: &str, otherwise: Level| {
            let mut standard = Standard {
                level: Level::Privileged,
                minor: None,
            };
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
        let (enforce, is_set) = read("enforce", Level::Restricted);
        let (audit, _) = read("audit", Level::Privileged);
        let (mut warn, _) = read("warn", Level::Privileged);
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
    let Some(namespace) = core
        .stored_parts("namespaces", namespace, &["metadata.labels"])
        .await?
    else {
        return Ok(());
    };
    let (policy, errors) = Policy::of(&namespace);
    let note = |key: &str, text: &dyn Fn() -> String| {
        if let Some(asked) = &attributes.asked {
            let key = format!("{PREFIX}{key}");
            asked.request.annotations.add(key, text);
        }
    };
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
    let (policy, errors) = Policy::of(namespace);
    let before = attributes.old.map(Policy::of);
    let known = before.as_ref().is_some_and(|(_, old)| *old == errors);
    if !errors.is_empty() && !known {
        let kind = GroupKind::new("", "Namespace");
        return Err(Status::invalid(&kind, attributes.name, &errors).into());
    }
    let (Some((old, _)), new) = (before, policy.enforce) else {
        return Ok(());
    };
    let relaxed = new.minor == old.enforce.minor && new.level <= old.enforce.level;
    if new.level == Level::Privileged || relaxed {
        return Ok(());
    }
    // By violation: the first pod and the number of pods.
    let mut wrong: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for pod in stored_in(core, "pods", attributes.name).await? {
        let shown = Pod {
            metadata: &pod["metadata"],
            spec: &pod["spec"],
        };
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
