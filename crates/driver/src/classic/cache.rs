//! Observed objects, kept up to date by a watch, and newer versions that this process wrote.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allot_reflector::{Collection, Observed, observe};
use futures::StreamExt;
use kube::Api;
use kube::api::DynamicObject;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long an own write outweighs the watch, which may be behind.
const OWN_WRITES: Duration = Duration::from_secs(60);

/// Namespace and name; the namespace is empty for kinds without one.
pub(super) type Name = (String, String);

pub(super) fn name_of(object: &DynamicObject) -> Name {
    let metadata = &object.metadata;
    (
        metadata.namespace.clone().unwrap_or_default(),
        metadata.name.clone().unwrap_or_default(),
    )
}

/// The objects of one kind.
#[derive(Default)]
pub(super) struct Cache {
    watched: Mutex<HashMap<Name, Arc<DynamicObject>>>,
    /// The versions that this process wrote, if newer than the observed ones.
    written: Mutex<HashMap<Name, (Arc<DynamicObject>, Instant)>>,
}

/// Revisions of one object are growing numbers; client-go compares them as well.
fn revision(object: &DynamicObject) -> u64 {
    let revision = object.metadata.resource_version.as_deref();
    revision.and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl Cache {
    /// The newest known state of an object.
    pub(super) fn get(&self, name: &Name) -> Option<Arc<DynamicObject>> {
        // Without an observed object it was deleted, whatever was written to it.
        let watched = self.watched.lock().get(name).cloned()?;
        let mut written = self.written.lock();
        if let Some((own, at)) = written.get(name) {
            let newer =
                own.metadata.uid == watched.metadata.uid && revision(own) > revision(&watched);
            if newer && at.elapsed() < OWN_WRITES {
                return Some(Arc::clone(own));
            }
            written.remove(name);
        }
        Some(watched)
    }

    /// Remembers what the API server answered to a write.
    pub(super) fn wrote(&self, object: Arc<DynamicObject>) {
        let name = name_of(&object);
        self.written.lock().insert(name, (object, Instant::now()));
    }

    /// The namespaces and names of the observed objects.
    pub(super) fn names(&self) -> Vec<Name> {
        self.watched.lock().keys().cloned().collect()
    }
}

/// What the watch of a kind has seen: the object before and after.
pub(super) struct Change {
    pub(super) name: Name,
    pub(super) before: Option<Arc<DynamicObject>>,
    pub(super) after: Option<Arc<DynamicObject>>,
}

/// Keeps `cache` up to date until dropped; `synced` becomes true with the first complete list.
pub(super) async fn keep(
    api: Api<DynamicObject>,
    cache: Arc<Cache>,
    synced: watch::Sender<bool>,
    mut changed: impl FnMut(Change),
) {
    let mut stream = observe::<DynamicObject>(Collection::new(api, None));
    while let Some(observed) = stream.next().await {
        let changes: Vec<Change> = match observed {
            Observed::Listed { items, .. } => {
                let items = items.into_iter();
                let fresh: HashMap<_, _> = items.map(|it| (name_of(&it), Arc::new(it))).collect();
                let mut before = {
                    let mut watched = cache.watched.lock();
                    std::mem::replace(&mut *watched, fresh.clone())
                };
                let mut changes: Vec<_> = fresh
                    .into_iter()
                    .map(|(name, after)| Change {
                        before: before.remove(&name),
                        after: Some(after),
                        name,
                    })
                    .collect();
                changes.extend(before.into_iter().map(|(name, before)| Change {
                    name,
                    before: Some(before),
                    after: None,
                }));
                changes
            }
            Observed::Applied(object) => {
                let (name, after) = (name_of(&object), Arc::from(object));
                let before = cache
                    .watched
                    .lock()
                    .insert(name.clone(), Arc::clone(&after));
                vec![Change {
                    name,
                    before,
                    after: Some(after),
                }]
            }
            Observed::Deleted(object) => {
                let name = name_of(&object);
                let before = cache.watched.lock().remove(&name);
                cache.written.lock().remove(&name);
                vec![Change {
                    name,
                    before,
                    after: None,
                }]
            }
        };
        changes.into_iter().for_each(&mut changed);
        synced.send_if_modified(|done| !std::mem::replace(done, true));
    }
}
