//! When the slices have to be compared with what the driver publishes: a while after another client changed them.

use std::sync::Arc;
use std::time::Duration;

use allot_reflector::{Collection, Observed, everything, reflect};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::api::ResourceApi;
use crate::bounds::LARGEST_ANSWER;

/// Delay before a change by another client is reverted.
const SYNC_DELAY: Duration = Duration::from_secs(30);
/// Deleted slices are created again sooner: an agent that restarts deletes all slices of its node, and the devices must
/// not be missing for half a minute because of that.
const DELETED_DELAY: Duration = Duration::from_millis(500);

/// A watch of the driver's slices. It keeps a time and no events: however many a server sends while the driver is busy, they
/// take no memory.
pub(super) struct Changes {
    shared: Arc<Shared>,
    _watch: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Shared {
    due: Mutex<Option<Instant>>,
    changed: Notify,
}

impl Changes {
    /// Watches the slices that `selector` selects, in the version that answered last.
    pub(super) fn watch(api: &ResourceApi, selector: &str) -> Self {
        let version = api.version().name();
        let kind = GroupVersionKind::gvk(allot_model::GROUP, version, "ResourceSlice");
        let resource = ApiResource::from_gvk_with_plural(&kind, "resourceslices");
        let slices: kube::Api<DynamicObject> = kube::Api::all_with(api.client().clone(), &resource);
        let slices = Collection::new(slices, Some(selector)).largest(LARGEST_ANSWER);
        let shared = Arc::<Shared>::default();
        let seen = Arc::clone(&shared);
        let watch = reflect::<DynamicObject, _>(
            slices,
            everything,
            CancellationToken::new(),
            move |observed| {
                seen.observe(&observed);
                true
            },
        );
        Self {
            shared,
            _watch: AbortOnDropHandle::new(tokio::spawn(watch)),
        }
    }

    /// Waits until it is time to compare the slices.
    pub(super) async fn due(&self) {
        loop {
            let due = *self.shared.due.lock();
            match due {
                None => self.shared.changed.notified().await,
                Some(due) => tokio::select! {
                    () = tokio::time::sleep_until(due) => {
                        *self.shared.due.lock() = None;
                        return;
                    }
                    // It may be due sooner.
                    () = self.shared.changed.notified() => {}
                },
            }
        }
    }
}

impl Shared {
    fn observe(&self, observed: &Observed<DynamicObject>) {
        let delay = match observed {
            Observed::Applied(_) => SYNC_DELAY,
            // Deletions before the watch began are not reported as such.
            Observed::Deleted(_) | Observed::Listed { .. } => DELETED_DELAY,
        };
        let at = Instant::now() + delay;
        let mut due = self.due.lock();
        *due = Some(due.map_or(at, |due| due.min(at)));
        drop(due);
        self.changed.notify_one();
    }
}
