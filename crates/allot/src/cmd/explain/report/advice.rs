//! What can be done for a pod that is not tried, in a sentence.

use allot_scheduler::framework::Plugin;
use allot_scheduler::pod::PodInfo;
use allot_scheduler::podgroups::group_key;
use serde_json::Value;

use super::Rejected;
use super::gang::Gang;
use super::missing::{self, templates};
use crate::cmd::count;
use crate::cmd::explain::cluster_objects::LoadedScheduler;
use crate::cmd::explain::quota::Quotas;

/// What to do; `None` if the explanation is sufficient.
pub(super) fn advice(
    loaded: &LoadedScheduler,
    pod: &PodInfo,
    rejected: Option<&Rejected>,
    gang: Option<&Gang>,
) -> Option<String> {
    let by = |plugin: Plugin| rejected.is_some_and(|r| r.plugin == plugin.name());
    if let (true, Some(rejected)) = (by(Plugin::DynamicResources), rejected) {
        return missing::template(loaded, pod)
            .or_else(|| missing::claim(loaded, pod))
            .or_else(|| missing::class(loaded, &rejected.reason))
            .or_else(|| not_made(loaded, pod));
    }
    match gang {
        Some(gang) if gang.lacks() > 0 => {
            let more = count(gang.lacks(), "more pod");
            Some(format!(
                "the gang is tried when {more} of it {} there",
                if gang.lacks() == 1 { "is" } else { "are" }
            ))
        }
        Some(_) => None,
        None if by(Plugin::GangScheduling) => missing::group(loaded, pod),
        None => {
            let group = group_key(pod).filter(|key| loaded.gangs_off.contains(key))?;
            Some(format!(
                "PodGroup {group} is a gang, which does not count here: GenericWorkload or GangScheduling is off, see --feature-gates"
            ))
        }
    }
}

/// Says which component is late, or what it waits for.
fn not_made(loaded: &LoadedScheduler, pod: &PodInfo) -> Option<String> {
    let (claim, template) = templates(pod).next()?;
    // Whether the claim is the pod's own or its group's is known when the group is.
    if let Some(group) = missing::group(loaded, pod) {
        return Some(group);
    }
    let namespace = &pod.key.namespace;
    let from = format!("claim {claim:?} is made from ResourceClaimTemplate {namespace}/{template}");
    Some(match over_quota(loaded, namespace, template) {
        Some(why) => format!("{from}, which a quota does not allow now: {why}"),
        None => format!("{from} by the claim controller, which has not done it yet"),
    })
}

/// Whether a quota forbids one more claim of a template.
fn over_quota(loaded: &LoadedScheduler, namespace: &str, template: &str) -> Option<String> {
    let text = |object: &Value, pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let mut templates = loaded.of_kind("ResourceClaimTemplate");
    let template = templates.find(|object| {
        text(object, "/metadata/namespace").as_deref() == Some(namespace)
            && text(object, "/metadata/name").as_deref() == Some(template)
    })?;
    let claim = serde_json::json!({"spec": template.pointer("/spec/spec")?});
    let mut quotas = Quotas::new(&loaded.objects);
    let claims = ("resource.k8s.io", "resourceclaims");
    quotas.charge(namespace, claims, &claim).err()
}
