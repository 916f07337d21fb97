//! The assume cache, as upstream's `util/assumecache`: of each object the version that a watch *saw*, and the version that
//! a write of the scheduler returned (*assumed*) until the watch is at least as new.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rustc_hash::FxHashMap;

use crate::pod::Key;
use crate::version::is_newer;

/// An object with metadata.
pub trait Object {
    /// `metadata` of the object.
    fn meta(&self) -> &ObjectMeta;

    /// `metadata.uid`; empty if not set.
    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    /// `metadata.resourceVersion`; empty if not set.
    fn version(&self) -> &str {
        self.meta().resource_version.as_deref().unwrap_or_default()
    }
}

impl Object for k8s_openapi::api::resource::v1::ResourceClaim {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl Object for allot_model::classic::objects::ResourceClaim {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// The newer one of two versions of an object.
pub fn newest<T: Object>(a: Arc<T>, b: Option<&Arc<T>>) -> Arc<T> {
    b.filter(|b| is_newer(b.version(), a.version()))
        .cloned()
        .unwrap_or(a)
}

/// An object of the cache in its observed and its assumed version.
#[derive(Debug)]
pub struct AssumedObject<T> {
    seen: Option<Arc<T>>,
    assumed: Option<Arc<T>>,
}

impl<T> Default for AssumedObject<T> {
    fn default() -> Self {
        let (seen, assumed) = (None, None);
        Self { seen, assumed }
    }
}

impl<T: Object> AssumedObject<T> {
    /// The newest version.
    pub fn effective(&self) -> Option<&Arc<T>> {
        self.assumed.as_ref().or(self.seen.as_ref())
    }

    /// The version that a watch showed last.
    pub fn seen(&self) -> Option<&Arc<T>> {
        self.seen.as_ref()
    }

    /// The observed and the assumed version, as far as they exist.
    pub fn versions(&self) -> impl Iterator<Item = &Arc<T>> {
        [&self.seen, &self.assumed].into_iter().flatten()
    }

    /// Whether only a write of this scheduler is known, and no watch has shown the object.
    pub fn is_unseen(&self) -> bool {
        self.seen.is_none()
    }

    /// Records a version from a watch. Returns whether it is new.
    pub fn observe(&mut self, object: Arc<T>) -> bool {
        let newer = |than: &Arc<T>| is_newer(than.version(), object.version());
        if self.seen.as_ref().is_some_and(newer) {
            return false;
        }
        // An answer about an object that was replaced meanwhile is older than what replaced it.
        if self
            .assumed
            .as_ref()
            .is_some_and(|a| a.uid() != object.uid() || !newer(a))
        {
            self.assumed = None;
        }
        self.seen = Some(object);
        true
    }

    /// Records the version that a write of this scheduler returned. Returns whether it is new. An answer about an
    /// object whose name now belongs to another object is ignored: the other one was created later.
    pub fn assume(&mut self, object: Arc<T>) -> bool {
        let news = self.effective().is_none_or(|known| {
            known.uid() == object.uid() && is_newer(object.version(), known.version())
        });
        if news {
            self.assumed = Some(object);
        }
        news
    }
}

/// The assume cache for one kind of objects.
#[derive(Debug)]
pub struct AssumeCache<T> {
    entries: FxHashMap<Key, AssumedObject<T>>,
}

impl<T> Default for AssumeCache<T> {
    fn default() -> Self {
        let entries = FxHashMap::default();
        Self { entries }
    }
}

impl<T: Object> AssumeCache<T> {
    /// The newest version of an object.
    pub fn get(&self, key: &Key) -> Option<&Arc<T>> {
        self.entries.get(key)?.effective()
    }

    /// The versions known for a name.
    pub fn entry(&self, key: &Key) -> Option<&AssumedObject<T>> {
        self.entries.get(key)
    }

    /// The versions known for a name; an empty entry is created if there is none.
    pub fn entry_mut(&mut self, key: Key) -> &mut AssumedObject<T> {
        self.entries.entry(key).or_default()
    }

    /// Forgets a name.
    pub fn remove(&mut self, key: &Key) -> Option<AssumedObject<T>> {
        self.entries.remove(key)
    }

    /// The newest version of every object.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.entries.values().filter_map(AssumedObject::effective)
    }

    /// All names with their known versions.
    pub fn entries(&self) -> impl Iterator<Item = (&Key, &AssumedObject<T>)> {
        self.entries.iter()
    }
}
