//! The consumers of a claim, in words: its pods, its PodGroup, or why it has neither yet.

use allot_scheduler::pod::Key;

use super::LoadedScheduler;
use crate::cmd::some;

/// Before the name of a PodGroup among the consumers of a claim.
const PODGROUPS: &str = "podgroups/";

impl LoadedScheduler {
    /// `pod team/full-2`, of the claim `namespace/name`.
    pub fn consumers_of(&self, claim: &str) -> String {
        let Some(consumers) = self.reserved.get(claim) else {
            return format!("claim {claim}");
        };
        let namespace = claim.split('/').next().unwrap_or_default();
        match consumers.as_slice() {
            [] => format!("claim {claim}{}", self.waits_for(claim)),
            [one] => match one.strip_prefix(PODGROUPS) {
                Some(group) => self.group_words(namespace, group),
                None => format!("pod {one}"),
            },
            many => format!("pods {}", some(many)),
        }
    }

    /// The consumers of a claim: names of pods, PodGroups in words.
    pub fn consumer_list(&self, claim: &str) -> Vec<String> {
        let namespace = claim.split('/').next().unwrap_or_default();
        let consumers = self.reserved.get(claim).into_iter().flatten();
        let words = consumers.map(|one| match one.strip_prefix(PODGROUPS) {
            Some(group) => self.group_words(namespace, group),
            None => one.clone(),
        });
        words.collect()
    }

    /// Why a claim is reserved for no pod: ` of PodGroup team/train, of which no pod is there yet`.
    pub fn waits_for(&self, claim: &str) -> String {
        let (namespace, name) = claim.split_once('/').unwrap_or(("", claim));
        let found = self.core.claims().get(&Key::new(namespace, name));
        let owners = found.and_then(|claim| claim.metadata.owner_references.as_ref());
        let owner = owners
            .into_iter()
            .flatten()
            .find(|o| o.controller == Some(true));
        match owner {
            Some(owner) if owner.kind == "PodGroup" => {
                format!(" of {}", self.group_words(namespace, &owner.name))
            }
            Some(owner) if owner.kind == "Pod" => {
                let pod = format!("{namespace}/{}", owner.name);
                let key = (namespace.to_owned(), owner.name.clone());
                match self.pods.get(&key) {
                    Some(found) if *found.uid == *owner.uid => format!(" of pod {pod}"),
                    None if self.unseen("Pod", namespace).is_some() => format!(" of pod {pod}"),
                    _ => format!(" of pod {pod}, which is gone"),
                }
            }
            _ => ", reserved for no pod".to_owned(),
        }
    }

    /// `PodGroup team/train`; with a note if none of its pods exists.
    fn group_words(&self, namespace: &str, group: &str) -> String {
        let is_seen = self.unseen("Pod", namespace).is_none();
        let mut pods = self.pods.iter();
        let has_pod = pods.any(|((of, _), pod)| of == namespace && pod.group() == Some(group));
        match is_seen && !has_pod {
            true => format!("PodGroup {namespace}/{group}, of which no pod is there yet"),
            false => format!("PodGroup {namespace}/{group}"),
        }
    }
}
