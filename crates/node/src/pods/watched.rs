//! Objects of the API that pods need something of, watched from the first pod on that does.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use allot_reflector::{Collection, Observed, Readable, everything, reflect};
use kube::ResourceExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Objects of a kind by namespace, which is empty for those of the whole cluster, and name.
pub(super) type Objects<K> = BTreeMap<(String, String), Arc<K>>;

/// The objects of a collection; `None` before they are listed.
pub(super) type Observations<K> = watch::Receiver<Option<Objects<K>>>;

/// A collection that is watched as soon as something asks for its objects, until this is dropped.
pub(super) struct Watched<K> {
    collection: Collection,
    started: OnceLock<(Observations<K>, AbortOnDropHandle<()>)>,
}

impl<K: Readable + ResourceExt + Send + Sync + 'static> Watched<K> {
    pub(super) fn new(collection: Collection) -> Self {
        Self {
            collection,
            started: OnceLock::new(),
        }
    }

    /// The objects as they are observed.
    pub(super) fn observe(&self) -> Observations<K> {
        let (objects, _) = self.started.get_or_init(|| start(self.collection.clone()));
        objects.clone()
    }

    /// The objects that there are, once they are listed; `None` if that takes longer than `patience`.
    pub(super) async fn listed(&self, patience: Duration) -> Option<Objects<K>> {
        let mut objects = self.observe();
        let listed = objects.wait_for(Option::is_some);
        let listed = tokio::time::timeout(patience, listed).await;
        listed.ok()?.ok()?.clone()
    }
}

fn start<K>(collection: Collection) -> (Observations<K>, AbortOnDropHandle<()>)
where
    K: Readable + ResourceExt + Send + Sync + 'static,
{
    let (sender, objects) = watch::channel(None);
    let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
    let sink = move |observed| {
        sender.send_modify(|known: &mut Option<Objects<K>>| match observed {
            Observed::Listed { items, .. } => {
                let items = items.into_iter().map(|it| (key(&it), Arc::new(it)));
                *known = Some(items.collect());
            }
            Observed::Applied(object) => {
                let known = known.get_or_insert_default();
                known.insert(key(&object), Arc::from(object));
            }
            Observed::Deleted(object) => {
                known.get_or_insert_default().remove(&key(&object));
            }
        });
        true
    };
    let watch = reflect::<K, _>(collection, everything, CancellationToken::new(), sink);
    (objects, AbortOnDropHandle::new(tokio::spawn(watch)))
}
