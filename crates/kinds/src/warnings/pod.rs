//! Pods and pod templates.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::{names, well_known};
use serde_json::Value;

use crate::validate::pod_annotations::{
    APP_ARMOR_PREFIX, SECCOMP, SECCOMP_PREFIX, app_armor_field,
};
use crate::validate::quantity;

use crate::object::items_mut;

mod overlaps;

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    value[key].as_array().into_iter().flatten().enumerate()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Since when a node label is deprecated, and which label replaces it; `None` for other labels.
pub(crate) fn deprecated_label(label: &str) -> Option<String> {
    let (since, instead) = match label {
        well_known::LABEL_ARCH => ("v1.14", well_known::LABEL_ARCH_STABLE),
        well_known::LABEL_OS => ("v1.14", well_known::LABEL_OS_STABLE),
        well_known::LABEL_FAILURE_DOMAIN_BETA_REGION => {
            ("v1.17", well_known::LABEL_TOPOLOGY_REGION)
        }
        well_known::LABEL_FAILURE_DOMAIN_BETA_ZONE => ("v1.17", well_known::LABEL_TOPOLOGY_ZONE),
        well_known::LABEL_INSTANCE_TYPE => ("v1.17", well_known::LABEL_INSTANCE_TYPE_STABLE),
        _ => return None,
    };
    Some(format!("deprecated since {since}; use {instead:?} instead"))
}

/// Volume types that are no longer supported.
const OLD_VOLUMES: [(&str, &str); 9] = [
    (
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

const OLD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

/// Warnings about a pod or pod template; `at` is empty or the path of the template, with a dot.
pub(crate) fn warnings(pod: &Value, at: &str) -> Vec<String> {
    let (spec, annotations) = (&pod["spec"], &pod["metadata"]["annotations"]);
    let mut found = Vec::new();
    labels(spec, at, &mut found);
    for (key, words) in OLD_ANNOTATIONS {
        if annotations.get(key).is_some() {
            found.push(format!("{at}metadata.annotations[{key}]: {words}"));
        }
    }
    for (index, volume) in list(spec, "volumes") {
        for (kind, words) in OLD_VOLUMES {
            if volume[kind].is_object() {
                let kind = if kind == "storageos" {
                    "storageOS"
                } else {
                    kind
                };
                found.push(format!("{at}spec.volumes[{index}].{kind}: {words}"));
            }
        }
        let template = &volume["ephemeral"]["volumeClaimTemplate"];
        let place = format!("{at}spec.volumes[{index}].ephemeral.volumeClaimTemplate.spec");
        found.extend(claim_spec(&template["spec"], &place));
    }
    overlaps::warnings(spec, &mut found);
    repeated(spec, "hostAliases", "ip", at, &mut found);
    repeated(spec, "imagePullSecrets", "name", at, &mut found);
    for (index, secret) in list(spec, "imagePullSecrets") {
        if text(secret, "name").is_empty() {
            found.push(format!(
                "{at}spec.imagePullSecrets[{index}].name: invalid empty name \"\""
            ));
        }
    }
    for name in ["memory", "ephemeral-storage"] {
        let place = format!("{at}spec.overhead[{name}]");
        found.extend(fraction(&spec["overhead"][name], &place));
    }
    let seccomp = |holder: &Value, key: String| {
        let has_field = holder["securityContext"]["seccompProfile"].is_object();
        (annotations.get(&key).is_some() && !has_field)
            .then(|| old_profile(at, &key, "non-functional in v1.27+", "seccompProfile"))
    };
    found.extend(seccomp(spec, SECCOMP.to_owned()));
    let of_pod = &spec["securityContext"]["appArmorProfile"];
    let of_pod = of_pod.is_object().then(|| of_pod.clone());
    let containers = containers(spec, at);
    for (container, place) in &containers {
        let name = text(container, "name");
        let key = format!("{SECCOMP_PREFIX}{name}");
        found.extend(seccomp(container, key));
        let key = format!("{APP_ARMOR_PREFIX}{name}");
        // For pods the warning is sent when the field is set from the annotation.
        let in_template = !at.is_empty();
        let unset = !container["securityContext"]["appArmorProfile"].is_object();
        let annotation = annotations.get(&key).and_then(Value::as_str);
        if let Some(annotation) = annotation.filter(|_| in_template && unset)
            && (of_pod.is_none() || of_pod != app_armor_field(annotation))
        {
            let profile = old_profile(at, &key, "deprecated since v1.30", "appArmorProfile");
            found.push(profile);
        }
        for name in ["memory", "ephemeral-storage"] {
            for key in ["limits", "requests"] {
                let amount = &container["resources"][key][name];
                let place = format!("{place}.resources.{key}[{name}]");
                found.extend(fraction(amount, &place));
            }
        }
        environment(container, place, &mut found);
    }
    ports(&containers, &mut found);
    if spec["terminationGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds < 0)
    {
        found.push(format!(
            "{at}spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    affinity(spec, at, &mut found);
    found.extend(super::addresses::pod(spec, at));
    found
}

/// Sets the AppArmor profiles of a new pod's containers from its annotations; returns the warnings.
pub(crate) fn app_armor_fields(pod: &mut Value) -> Vec<String> {
    const FIELD: &str = "appArmorProfile";
    let mut found = Vec::new();
    let annotations = pod["metadata"]["annotations"].clone();
    if !annotations.is_object() || pod["spec"]["os"]["name"] == "windows" {
        return found;
    }
    let of_pod = pod["spec"]["securityContext"][FIELD].clone();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in items_mut(pod, &["spec", list]) {
            let key = format!("{APP_ARMOR_PREFIX}{}", text(container, "name"));
            let Some(annotation) = annotations[&key].as_str() else {
                continue;
            };
            if container["securityContext"][FIELD].is_object() {
                continue;
            }
            let field = app_armor_field(annotation);
            if field.as_ref() == Some(&of_pod) {
                continue;
            }
            if let Some(field) = field {
                crate::object::child_mut(container, "securityContext")
                    .insert(FIELD.to_owned(), field);
            }
            found.push(old_profile("", &key, "deprecated since v1.30", FIELD));
        }
    }
    found
}

/// An annotation that a field has replaced.
fn old_profile(at: &str, key: &str, since: &str, field: &str) -> String {
    format!("{at}metadata.annotations[{key}]: {since}; use the \"{field}\" field instead")
}

/// All containers, in the order in which upstream visits them.
fn containers<'a>(spec: &'a Value, at: &str) -> Vec<(&'a Value, String)> {
    ["initContainers", "containers", "ephemeralContainers"]
        .iter()
        .flat_map(|key| {
            list(spec, key).map(move |(index, it)| (it, format!("{at}spec.{key}[{index}]")))
        })
        .collect()
}

fn labels(spec: &Value, at: &str, found: &mut Vec<String>) {
    for (label, _) in spec["nodeSelector"].as_object().into_iter().flatten() {
        if let Some(words) = deprecated_label(label) {
            found.push(format!("{at}spec.nodeSelector[{label}]: {words}"));
        }
    }
    let node = &spec["affinity"]["nodeAffinity"];
    let base = format!("{at}spec.affinity.nodeAffinity");
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let terms = list(&node[required], "nodeSelectorTerms")
        .map(|(index, term)| {
            let place = format!("{base}.{required}.nodeSelectorTerms[{index}]");
            (term, place, false)
        })
        .chain(list(node, preferred).map(|(index, term)| {
            let place = format!("{base}.{preferred}[{index}].preference");
            (&term["preference"], place, true)
        }));
    for (term, place, with_values) in terms {
        expressions(term, &place, found);
        if with_values {
            values(term, &place, found);
        }
    }
    for (index, constraint) in list(spec, "topologySpreadConstraints") {
        let place = format!("{at}spec.topologySpreadConstraints[{index}]");
        let key = text(constraint, "topologyKey");
        if let Some(words) = deprecated_label(key) {
            found.push(format!("{place}.topologyKey: {key} is {words}"));
        }
        if constraint["labelSelector"].is_null() {
            found.push(format!(
                "{place}.labelSelector: a null labelSelector results in matching no pod"
            ));
        }
    }
}

/// Old labels in the expressions of a node selector.
pub(crate) fn expressions(term: &Value, place: &str, found: &mut Vec<String>) {
    for (index, expression) in list(term, "matchExpressions") {
        let key = text(expression, "key");
        if let Some(words) = deprecated_label(key) {
            found.push(format!(
                "{place}.matchExpressions[{index}].key: {key} is {words}"
            ));
        }
    }
}

/// Values of preferences that no label has.
fn values(term: &Value, place: &str, found: &mut Vec<String>) {
    for (index, expression) in list(term, "matchExpressions") {
        for (at, value) in list(expression, "values") {
            let value = value.as_str().unwrap_or_default();
            found.extend(names::label_value(value).into_iter().map(|words| {
                format!(
                    "{place}.matchExpressions[{index}].values[{at}]: {value} is invalid, {words}"
                )
            }));
        }
    }
}

fn repeated(spec: &Value, key: &str, field: &str, at: &str, found: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, item) in list(spec, key) {
        let value = text(item, field);
        if !seen.insert(value) {
            found.push(format!(
                "{at}spec.{key}[{index}].{field}: duplicate {field} {value:?}"
            ));
        }
    }
}

/// Quantities in bytes should be integers.
fn fraction(amount: &Value, place: &str) -> Option<String> {
    let parsed = quantity(amount)?;
    (parsed.milli_value() % 1000 != 0).then(|| {
        format!(
            "{place}: fractional byte value {:?} is invalid, must be an integer",
            parsed.to_string()
        )
    })
}

/// Warnings about the spec of a claim of a volume.
pub(crate) fn claim_spec(spec: &Value, place: &str) -> Vec<String> {
    ["requests", "limits"]
        .iter()
        .filter_map(|key| {
            let amount = &spec["resources"][*key]["storage"];
            fraction(amount, &format!("{place}.resources.{key}[storage]"))
        })
        .collect()
}

/// A variable set twice, unless the second value refers to the first.
fn environment(container: &Value, place: &str, found: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, variable) in list(container, "env") {
        let (name, value) = (text(variable, "name"), text(variable, "value"));
        if seen.insert(name) {
            continue;
        }
        let reference = format!("$({name})");
        let refers = value != reference && value.contains(&reference);
        if variable["valueFrom"].is_object() || !refers {
            found.push(format!(
                "{place}.env[{index}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

fn ports(containers: &[(&Value, String)], found: &mut Vec<String>) {
    let mut all: BTreeMap<String, Vec<(String, &Value)>> = BTreeMap::new();
    for (container, place) in containers {
        for (index, port) in list(container, "ports") {
            let place = format!("{place}.ports[{index}]");
            let host = |port: &Value| port["hostPort"].as_i64().unwrap_or_default();
            let number = port["containerPort"].as_i64().unwrap_or_default();
            let address = text(port, "hostIP");
            if !address.is_empty() && host(port) == 0 {
                let (name, protocol) = (text(port, "name"), text(port, "protocol"));
                found.push(format!(
                    "{place}: hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{address}}}"
                ));
            }
            let others = all
                .entry(format!("{number}/{}", text(port, "protocol")))
                .or_default();
            for (other_place, other) in others.iter() {
                let (one, two) = (text(port, "hostIP"), text(other, "hostIP"));
                let words = if one == two && host(port) == host(other) {
                    "duplicate"
                } else if host(port) == 0 || host(other) == 0 {
                    "overlapping"
                } else if host(port) == host(other) && one.is_empty() != two.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                found.push(format!(
                    "{place}: {words} port definition with {other_place}"
                ));
            }
            others.push((place, port));
        }
    }
}

fn affinity(spec: &Value, at: &str, found: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let base = format!("{at}spec.affinity.{kind}");
        for (key, inner) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
            (
                "preferredDuringSchedulingIgnoredDuringExecution",
                "podAffinityTerm",
            ),
        ] {
            for (index, term) in list(&spec["affinity"][kind], key) {
                let (term, place) = if inner.is_empty() {
                    (term, format!("{base}.{key}[{index}]"))
                } else {
                    (&term[inner], format!("{base}.{key}[{index}].{inner}"))
                };
                if term["labelSelector"].is_null() {
                    found.push(format!(
                        "{place}.labelSelector: a null labelSelector results in matching no pod"
                    ));
                }
            }
        }
    }
}
