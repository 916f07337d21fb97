//! Volumes by name, and indexed for the search.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Volume;
use crate::pod::Key;

/// The PersistentVolumes, indexed by what VolumeBinding looks them up by.
///
/// The free volumes of a class are offered to a pod whose claim waits for its first consumer; most volumes are not
/// free.
#[derive(Debug, Clone, Default)]
pub struct Volumes {
    all: FxHashMap<String, Arc<Volume>>,
    /// Volumes without a claim, by class and name.
    free: FxHashMap<String, BTreeMap<String, Arc<Volume>>>,
    /// Names of the others, by the claim that they are for.
    taken: FxHashMap<Key, BTreeSet<String>>,
}

impl Volumes {
    /// A volume by name.
    pub fn get(&self, name: &str) -> Option<&Volume> {
        self.all.get(name).map(|volume| &**volume)
    }

    /// Adds or replaces a volume; returns the previous one.
    pub fn insert(&mut self, name: String, volume: Volume) -> Option<Arc<Volume>> {
        let before = self.remove(&name);
        let volume = Arc::new(volume);
        match &volume.claim {
            None => {
                let free = self.free.entry(volume.class.clone()).or_default();
                free.insert(name.clone(), volume.clone());
            }
            Some(claim) => {
                let taken = self.taken.entry(claim.key.clone()).or_default();
                taken.insert(name.clone());
            }
        }
        self.all.insert(name, volume);
        before
    }

    /// Removes a volume; returns it.
    pub fn remove(&mut self, name: &str) -> Option<Arc<Volume>> {
        let volume = self.all.remove(name)?;
        match &volume.claim {
            None => {
                if let Some(free) = self.free.get_mut(&volume.class) {
                    free.remove(name);
                    if free.is_empty() {
                        self.free.remove(&volume.class);
                    }
                }
            }
            Some(claim) => {
                if let Some(taken) = self.taken.get_mut(&claim.key) {
                    taken.remove(name);
                    if taken.is_empty() {
                        self.taken.remove(&claim.key);
                    }
                }
            }
        }
        Some(volume)
    }

    /// Volumes of a class that are for no claim, by name.
    pub fn free(&self, class: &str) -> impl Iterator<Item = (&str, &Volume)> {
        let free = self.free.get(class).into_iter().flatten();
        free.map(|(name, volume)| (name.as_str(), &**volume))
    }

    /// Names of the volumes that are for a claim with this name, if not for this very one.
    pub fn pre_bound_to(&self, claim: &Key) -> impl Iterator<Item = &str> {
        self.taken
            .get(claim)
            .into_iter()
            .flatten()
            .map(String::as_str)
    }
}

impl FromIterator<(String, Volume)> for Volumes {
    fn from_iter<T: IntoIterator<Item = (String, Volume)>>(volumes: T) -> Self {
        let mut all = Self::default();
        for (name, volume) in volumes {
            all.insert(name, volume);
        }
        all
    }
}
