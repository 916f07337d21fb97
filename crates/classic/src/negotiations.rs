//! The state of each negotiation: what the scheduler published, what the drivers answered.

use std::sync::Arc;

use allot_framework::pod::{Key, PodInfo, Uid, key_of};
use allot_framework::version::is_newer;
use allot_model::classic::objects::{PodScheduling, SchedulingSpec};
use allot_reflector::Observed;
use rustc_hash::{FxHashMap, FxHashSet};

#[derive(Debug, Default)]
struct Entry {
    known: Option<Arc<PodScheduling>>,
    /// The specification being written, neither observed nor answered yet.
    wanted: Option<SchedulingSpec>,
    /// Version of a deletion that was observed while a write was in flight: answers up to it are about the deleted
    /// object.
    gone: Option<String>,
}

/// Negotiations by the name of their pod.
#[derive(Debug, Default)]
pub struct Negotiations {
    entries: FxHashMap<Key, Entry>,
}

/// The change of a negotiation because of which its pod may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryReason {
    /// No relevant change.
    None,
    /// A driver answered.
    Answer,
    /// The negotiation has to begin again.
    Lost,
}

/// The negotiation belongs to another pod of the same name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("PodSchedulingContext object with UID {uid} is not owned by Pod {pod}")]
pub struct NotOwned {
    uid: String,
    pod: String,
}

/// Whether a negotiation is that of the pod with this identity.
pub fn is_owned_by(scheduling: &PodScheduling, pod: &str) -> bool {
    let mut owners = scheduling.metadata.owner_references.iter().flatten();
    owners.any(|o| o.controller == Some(true) && o.uid == pod)
}

fn version_of(scheduling: &PodScheduling) -> &str {
    scheduling
        .metadata
        .resource_version
        .as_deref()
        .unwrap_or_default()
}

impl Negotiations {
    /// The negotiation of a pod.
    ///
    /// # Errors
    /// When there is one of another pod of the same name.
    pub fn of(&self, pod: &PodInfo) -> Result<Option<&Arc<PodScheduling>>, NotOwned> {
        let known = self.entries.get(&pod.key).and_then(|e| e.known.as_ref());
        match known {
            Some(other) if !is_owned_by(other, &pod.uid) => Err(NotOwned {
                uid: other.metadata.uid.clone().unwrap_or_default(),
                pod: pod.key.to_string(),
            }),
            known => Ok(known),
        }
    }

    /// Whether anything was published, or is being published, for a pod.
    pub fn exists(&self, key: &Key) -> bool {
        let entry = self.entries.get(key);
        entry.is_some_and(|e| e.known.is_some() || e.wanted.is_some())
    }

    /// UID of the pod that a known negotiation belongs to.
    pub fn owner(&self, key: &Key) -> Option<Uid> {
        let known = self.entries.get(key)?.known.as_ref()?;
        let mut owners = known.metadata.owner_references.iter().flatten();
        let owner = owners.find(|owner| owner.controller == Some(true))?;
        Some(owner.uid.as_str().into())
    }

    /// UID of the object that is known to exist.
    pub fn uid(&self, key: &Key) -> Option<String> {
        self.entries.get(key)?.known.as_ref()?.metadata.uid.clone()
    }

    /// The specification that the drivers see, or will see.
    pub fn spec(&self, key: &Key) -> SchedulingSpec {
        let Some(entry) = self.entries.get(key) else {
            return SchedulingSpec::default();
        };
        let published = || entry.known.as_ref().map(|k| k.spec.clone());
        entry.wanted.clone().or_else(published).unwrap_or_default()
    }

    /// Records the specification that is about to be written.
    pub fn begin_publish(&mut self, key: &Key, spec: SchedulingSpec) {
        self.entries.entry(key.clone()).or_default().wanted = Some(spec);
    }

    /// The write of the specification failed.
    pub fn failed(&mut self, key: &Key) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.wanted = None;
        }
    }

    /// The pod is bound or deleted: its negotiation is no longer needed.
    pub fn forget(&mut self, key: &Key) {
        self.entries.remove(key);
    }

    /// The specification was written.
    pub fn published(&mut self, scheduling: Arc<PodScheduling>) -> RetryReason {
        let key = key_of(&scheduling.metadata);
        if self.exists(&key) {
            self.see(scheduling)
        } else {
            RetryReason::None
        }
    }

    fn see(&mut self, scheduling: Arc<PodScheduling>) -> RetryReason {
        let entry = self
            .entries
            .entry(key_of(&scheduling.metadata))
            .or_default();
        let known = entry.known.as_deref().map(version_of);
        let newest = [known, entry.gone.as_deref()];
        if newest
            .into_iter()
            .flatten()
            .any(|v| !is_newer(version_of(&scheduling), v))
        {
            return RetryReason::None;
        }
        if entry.wanted.as_ref() == Some(&scheduling.spec) {
            entry.wanted = None;
        }
        let before = entry.known.replace(scheduling.clone());
        let answers = |s: &PodScheduling| s.status.clone();
        if before.as_deref().map(answers).unwrap_or_default() == scheduling.status {
            RetryReason::None
        } else {
            RetryReason::Answer
        }
    }

    fn delete(&mut self, scheduling: &PodScheduling) -> RetryReason {
        let key = key_of(&scheduling.metadata);
        let Some(entry) = self.entries.get_mut(&key) else {
            return RetryReason::Lost;
        };
        if entry
            .known
            .as_ref()
            .is_some_and(|k| is_newer(version_of(k), version_of(scheduling)))
        {
            return RetryReason::None;
        }
        let publishing = entry.wanted.is_some();
        *entry = Entry {
            gone: Some(version_of(scheduling).to_owned()),
            ..Entry::default()
        };
        if !publishing {
            self.entries.remove(&key);
        }
        RetryReason::Lost
    }

    /// Records an observation. Returns which pods it affects, and how.
    pub fn observe(&mut self, observed: Observed<PodScheduling>) -> Vec<(Key, RetryReason)> {
        match observed {
            Observed::Applied(scheduling) => {
                let key = key_of(&scheduling.metadata);
                vec![(key, self.see(Arc::new(*scheduling)))]
            }
            Observed::Deleted(scheduling) => {
                let key = key_of(&scheduling.metadata);
                vec![(key, self.delete(&scheduling))]
            }
            Observed::Listed { items, .. } => {
                let listed: FxHashSet<Key> = items.iter().map(|i| key_of(&i.metadata)).collect();
                let mut news = Vec::new();
                self.entries.retain(|key, entry| {
                    if entry.known.is_some() && !listed.contains(key) {
                        entry.known = None;
                        news.push((key.clone(), RetryReason::Lost));
                    }
                    entry.known.is_some() || entry.wanted.is_some()
                });
                for item in items {
                    let key = key_of(&item.metadata);
                    news.push((key, self.see(Arc::new(item))));
                }
                news
            }
        }
    }
}
