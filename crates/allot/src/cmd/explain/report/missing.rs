//! Objects that a pod names and that do not exist: claims, templates, groups, classes, drivers; with suggestions.

use allot_apimachinery::suggest;
use allot_scheduler::pod::PodInfo;
use allot_scheduler::pod::claims::{ResolveError, claim_key};
use serde_json::Value;

use super::Answer;
use crate::cmd::explain::cluster_objects::LoadedScheduler;
use crate::cmd::some;

/// Reports a claim that the pod names and that does not exist.
pub(super) fn claim(loaded: &LoadedScheduler, pod: &PodInfo) -> Option<String> {
    let namespace = &*pod.key.namespace;
    if loaded.unseen("ResourceClaim", namespace).is_some() {
        return None;
    }
    let known = loaded.names_of("ResourceClaim", namespace);
    let entries = pod.spec().resource_claims.iter().flatten();
    let mut named = entries.filter_map(|entry| entry.resource_claim_name.as_deref());
    let missing = named.find(|name| !known.contains(name))?;
    let is_template = loaded
        .names_of("ResourceClaimTemplate", namespace)
        .contains(&missing);
    let hint = match is_template {
        true => "; there is a ResourceClaimTemplate of that name: use resourceClaimTemplateName"
            .to_owned(),
        false => meant(loaded, "ResourceClaim", missing, known),
    };
    Some(format!(
        "there is no ResourceClaim {namespace}/{missing}{hint}"
    ))
}

/// Reports a template of the pod's claims that does not exist.
pub(super) fn template(loaded: &LoadedScheduler, pod: &PodInfo) -> Option<String> {
    let namespace = &*pod.key.namespace;
    if loaded.unseen("ResourceClaimTemplate", namespace).is_some() {
        return None;
    }
    let missing = |template: &&str| {
        let key = (namespace.to_owned(), (*template).to_owned());
        !loaded.templates.contains(&key)
    };
    let (claim, template) = templates(pod).find(|(_, template)| missing(template))?;
    let known = loaded.names_of("ResourceClaimTemplate", namespace);
    let is_claim = loaded
        .names_of("ResourceClaim", namespace)
        .contains(&template);
    let hint = match is_claim {
        true => "; there is a ResourceClaim of that name: use resourceClaimName".to_owned(),
        false => meant(loaded, "ResourceClaimTemplate", template, known),
    };
    Some(format!(
        "there is no ResourceClaimTemplate {namespace}/{template}, from which claim {claim:?} is to be made{hint}"
    ))
}

/// Refuses to answer about a pod that exists in files only, whose claims would be made from a template that is not shown.
///
/// # Errors
/// There is such a template.
pub(super) fn hidden_template(loaded: &LoadedScheduler, pod: &PodInfo) -> anyhow::Result<()> {
    let (namespace, name) = (&*pod.key.namespace, &*pod.key.name);
    let is_new = loaded
        .new
        .contains(&(namespace.to_owned(), name.to_owned()));
    if let (true, Some(hidden)) = (is_new, loaded.unseen("ResourceClaimTemplate", namespace))
        && let Some((claim, template)) = templates(pod).next()
    {
        anyhow::bail!(
            "claim {claim:?} of pod {namespace}/{name} is made from ResourceClaimTemplate {namespace}/{template}, and \
             there is no right to list {hidden}: add the template with -f"
        );
    }
    Ok(())
}

/// Reports a PodGroup that the pod names and that does not exist.
pub(super) fn group(loaded: &LoadedScheduler, pod: &PodInfo) -> Option<String> {
    let namespace = &*pod.key.namespace;
    let missing = pod.group()?;
    let known = loaded.names_of("PodGroup", namespace);
    if loaded.unseen("PodGroup", namespace).is_some() || known.contains(&missing) {
        return None;
    }
    let hint = match meant(loaded, "PodGroup", missing, known) {
        hint if hint.is_empty() => {
            ": make it, or make the pod without spec.schedulingGroup".to_owned()
        }
        hint => hint,
    };
    Some(format!("there is no PodGroup {namespace}/{missing}{hint}"))
}

/// The object that was probably meant by a name that does not exist: a similar name, or the same in another namespace.
fn meant(loaded: &LoadedScheduler, kind: &str, name: &str, known: Vec<&str>) -> String {
    match suggest::hint(name, known) {
        hint if hint.is_empty() => elsewhere(loaded, kind, name),
        hint => hint,
    }
}

/// `; there is one in namespace x`.
fn elsewhere(loaded: &LoadedScheduler, kind: &str, name: &str) -> String {
    let same = loaded
        .of_kind(kind)
        .filter(|object| object.pointer("/metadata/name").and_then(Value::as_str) == Some(name));
    let mut namespaces: Vec<&str> = same
        .filter_map(|object| object.pointer("/metadata/namespace")?.as_str())
        .collect();
    namespaces.sort_unstable();
    match namespaces.is_empty() {
        true => String::new(),
        false => format!("; there is one in namespace {}", some(&namespaces)),
    }
}

/// The claims of a pod that are not generated yet, each with its template.
pub(super) fn templates(pod: &PodInfo) -> impl Iterator<Item = (&str, &str)> {
    let entries = pod.spec().resource_claims.iter().flatten();
    let made = |entry| !matches!(claim_key(pod, entry), Err(ResolveError::NotCreated(_)));
    entries
        .filter(move |entry| !made(*entry))
        .filter_map(|e| Some((&*e.name, e.resource_claim_template_name.as_deref()?)))
}

/// Lists the existing classes, when the scheduler did not find one.
pub(super) fn class(loaded: &LoadedScheduler, reason: &str) -> Option<String> {
    let (_, rest) = reason.split_once(": device class ")?;
    let missing = rest.strip_suffix(" does not exist")?;
    let mut known = loaded.names_of("DeviceClass", "");
    known.sort_unstable();
    if known.is_empty() {
        return Some(
            "there are no device classes: they come with a driver, or from an administrator"
                .to_owned(),
        );
    }
    let hint = suggest::hint(missing, known.iter().copied());
    Some(format!("device classes that exist: {}{hint}", some(&known)))
}

/// Reports that a driver publishes nothing, when its devices are missing on all nodes: the driver of the class of a
/// request that no node satisfies.
pub(super) fn driver(loaded: &LoadedScheduler, pod: &PodInfo, nodes: &[Answer]) -> Option<String> {
    if loaded.unseen("ResourceSlice", "").is_some() || nodes.iter().any(|n| n.fits) {
        return None;
    }
    let slices = loaded.of_kind("ResourceSlice");
    let mut published: Vec<&str> = slices
        .filter_map(|slice| slice.pointer("/spec/driver")?.as_str())
        .collect();
    published.sort_unstable();
    published.dedup();
    let absent = wanted(loaded, pod)
        .into_iter()
        .find(|(_, driver)| !published.contains(&&**driver));
    let (class, driver) = absent?;
    let hint = match suggest::hint(&driver, published.iter().copied()) {
        hint if !hint.is_empty() => hint,
        _ if published.is_empty() => "; no driver publishes any".to_owned(),
        _ => format!("; drivers that do: {}", some(&published)),
    };
    Some(format!(
        "class {class} wants devices of driver {driver}, which publishes none: it runs on no node{hint}"
    ))
}

/// Reports an extended resource that is offered by no node, and by no device class.
pub(super) fn extended(loaded: &LoadedScheduler, nodes: &[Answer]) -> Option<String> {
    if loaded.unseen("DeviceClass", "").is_some() || loaded.unseen("Node", "").is_some() {
        return None;
    }
    let rejected = nodes.iter().filter_map(|node| node.rejected.as_ref());
    let mut lacking = rejected.flat_map(|rejected| rejected.reason.split(", "));
    let resource = lacking.find_map(|reason| {
        let name = reason.strip_prefix("Insufficient ")?;
        name.contains('/').then_some(name)
    })?;
    let classes = loaded.of_kind("DeviceClass");
    let of_classes = classes.filter_map(|class| {
        let name = class.pointer("/spec/extendedResourceName");
        name.and_then(Value::as_str)
    });
    let all = loaded.of_kind("Node");
    let of_nodes = all.filter_map(|node| node.pointer("/status/allocatable")?.as_object());
    let of_nodes = of_nodes.flat_map(|it| it.keys().map(String::as_str));
    let mut known: Vec<&str> = of_classes
        .chain(of_nodes)
        .filter(|name| name.contains('/'))
        .collect();
    known.sort_unstable();
    known.dedup();
    if known.contains(&resource) {
        return None;
    }
    let hint = suggest::hint(resource, known);
    Some(format!(
        "no node has {resource}, and no device class has it as its extendedResourceName{hint}"
    ))
}

/// The drivers that the classes of a pod's claims name, each with its class.
fn wanted(loaded: &LoadedScheduler, pod: &PodInfo) -> Vec<(String, String)> {
    let entries = pod.spec().resource_claims.iter().flatten();
    let keys = entries.filter_map(|entry| claim_key(pod, entry).ok().flatten());
    let claims = keys.filter_map(|key| loaded.core.claims().get(&key));
    let mut classes: Vec<String> = Vec::new();
    for claim in claims {
        let requests = claim
            .spec
            .devices
            .iter()
            .flat_map(|d| d.requests.iter().flatten());
        for request in requests {
            let exactly = request.exactly.iter().map(|r| r.device_class_name.clone());
            classes.extend(exactly);
        }
    }
    let expressions = |class: &str| {
        let mut found = loaded.of_kind("DeviceClass");
        let found =
            found.find(|c| c.pointer("/metadata/name").and_then(Value::as_str) == Some(class));
        let selectors = found.and_then(|c| c.pointer("/spec/selectors")?.as_array().cloned());
        selectors.unwrap_or_default()
    };
    let mut wanted = Vec::new();
    for class in classes {
        for selector in expressions(&class) {
            let expression = selector.pointer("/cel/expression").and_then(Value::as_str);
            let driver = expression.and_then(driver_of);
            wanted.extend(driver.map(|driver| (class.clone(), driver)));
        }
    }
    wanted
}

/// The driver that an expression compares with at its beginning: `device.driver == "gpu.example.com"`.
fn driver_of(expression: &str) -> Option<String> {
    let rest = expression.trim().trim_start_matches('(').trim_start();
    let rest = rest.strip_prefix("device.driver")?.trim_start();
    let rest = rest.strip_prefix("==")?.trim_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let (name, rest) = rest[1..].split_once(quote)?;
    // With another alternative it may be any driver.
    (!rest.contains("||")).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::driver_of;

    #[test]
    fn the_driver_of_a_selector() {
        for (expression, expected) in [
            ("device.driver == \"d\"", Some("d")),
            (" (device.driver=='d') && true", Some("d")),
            ("device.driver == \"d\" || device.driver == \"e\"", None),
            ("device.driver != \"d\"", None),
            ("true", None),
        ] {
            assert_eq!(driver_of(expression).as_deref(), expected, "{expression}");
        }
    }
}
