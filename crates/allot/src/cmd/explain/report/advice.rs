//! What can be done for a pod that is not tried, in a sentence.

use allot_scheduler::dra::resolve::{self, ResolveError};
use allot_scheduler::framework::Plugin;
use allot_scheduler::pod::PodInfo;
use allot_scheduler::podgroups::group_key;

use super::gang::Gang;
use crate::cmd::count;
use crate::cmd::explain::world::Loaded;

/// What to do; `None` where what was said is enough.
pub(super) fn advice(
    loaded: &Loaded,
    pod: &PodInfo,
    rejected: Option<&'static str>,
    gang: Option<&Gang>,
) -> Option<String> {
    let by = |plugin: Plugin| rejected == Some(plugin.name());
    if by(Plugin::DynamicResources) {
        return missing_template(loaded, pod).or_else(|| not_made(pod));
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
        None if by(Plugin::GangScheduling) => {
            let group = group_key(pod)?;
            Some(format!(
                "there is no PodGroup {group}: make it, or make the pod without spec.schedulingGroup"
            ))
        }
        None => {
            let group = group_key(pod).filter(|key| loaded.gangs_off.contains(key))?;
            Some(format!(
                "PodGroup {group} is a gang, which does not count here: GenericWorkload or GangScheduling is off, see --feature-gates"
            ))
        }
    }
}

/// Says which template is not there, of those that claims of the pod have to be made from.
pub(super) fn missing_template(loaded: &Loaded, pod: &PodInfo) -> Option<String> {
    let namespace = &pod.key.namespace;
    if loaded.unseen("ResourceClaimTemplate", namespace).is_some() {
        return None;
    }
    let missing = |template: &&str| {
        let key = (namespace.to_string(), (*template).to_owned());
        !loaded.templates.contains(&key)
    };
    let (claim, template) = templates(pod).find(|(_, template)| missing(template))?;
    Some(format!(
        "there is no ResourceClaimTemplate {namespace}/{template}, from which claim {claim:?} is to be made"
    ))
}

/// Says who is late.
fn not_made(pod: &PodInfo) -> Option<String> {
    let (claim, template) = templates(pod).next()?;
    let namespace = &pod.key.namespace;
    Some(format!(
        "claim {claim:?} is made from ResourceClaimTemplate {namespace}/{template} by the claim controller: if it does not come, events of the pod may say why"
    ))
}

/// The claims of a pod that have not been made yet, each with the template that it is made from.
fn templates(pod: &PodInfo) -> impl Iterator<Item = (&str, &str)> {
    let entries = pod.spec().resource_claims.iter().flatten();
    let made = |entry| !matches!(resolve::name(pod, entry), Err(ResolveError::NotCreated(_)));
    entries
        .filter(move |entry| !made(*entry))
        .filter_map(|e| Some((&*e.name, e.resource_claim_template_name.as_deref()?)))
}
