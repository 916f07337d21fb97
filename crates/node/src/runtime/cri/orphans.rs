//! Sandboxes and containers that the agent does not know: the runtime created them after the agent had given up the call. They are
//! removed, because the next attempt needs their names.

use std::collections::HashMap;
use std::sync::Arc;

use allot_protos::cri_v1 as v1;
use parking_lot::Mutex;

use super::calls::CallError;
use super::removals::Removal;
use super::translate::label;
use super::{Inner, follow};

/// UIDs of the pods for which sandboxes or containers are being created, with the number of calls.
pub(super) type Creating = Arc<Mutex<HashMap<String, usize>>>;

/// A call that creates something for a pod, until it is dropped.
#[derive(Debug)]
pub(super) struct Creation {
    creating: Creating,
    uid: String,
}

impl Creation {
    pub(super) fn begin(creating: &Creating, uid: &str) -> Self {
        *creating.lock().entry(uid.to_owned()).or_default() += 1;
        Self {
            creating: Arc::clone(creating),
            uid: uid.to_owned(),
        }
    }
}

impl Drop for Creation {
    fn drop(&mut self) {
        let mut creating = self.creating.lock();
        if let Some(count) = creating.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                creating.remove(&self.uid);
            }
        }
    }
}

impl Inner {
    /// The pods whose objects are all recorded at this moment: everything else of theirs in a list that was requested before is
    /// an orphan.
    fn is_settled(&self, labels: &HashMap<String, String>) -> bool {
        let uid = labels.get(label::POD_UID);
        uid.is_some_and(|uid| !self.creating.lock().contains_key(uid))
    }

    /// Removes sandboxes that are not recorded.
    pub(super) async fn look_for_orphaned_sandboxes(&self) -> Result<(), CallError> {
        let filter = v1::PodSandboxFilter {
            label_selector: follow::own(self),
            ..v1::PodSandboxFilter::default()
        };
        let request = v1::ListPodSandboxRequest {
            filter: Some(filter),
        };
        let listed = self.calls.list_pod_sandbox(request).await?.items;
        if !self.is_recovered() {
            return Ok(());
        }
        for sandbox in listed {
            // In this order: what is created is recorded before its call ends.
            let settled = self.is_settled(&sandbox.labels);
            let known = self.sandboxes.lock().values().any(|it| it.id == sandbox.id);
            if settled && !known {
                self.remove_orphan(Removal::Sandbox(sandbox.id));
            }
        }
        Ok(())
    }

    /// Removes containers of a list that are not recorded.
    pub(super) fn remove_orphaned_containers(&self, listed: &[v1::Container]) {
        if !self.is_recovered() {
            return;
        }
        let unknown: Vec<&v1::Container> = {
            let settled = listed.iter().filter(|it| self.is_settled(&it.labels));
            let settled: Vec<_> = settled.collect();
            let known = self.containers.lock();
            let unknown = settled.into_iter().filter(|it| !known.contains_key(&it.id));
            unknown.collect()
        };
        for container in unknown {
            // Otherwise it is removed with its sandbox.
            let sandbox = Removal::Sandbox(container.pod_sandbox_id.clone());
            if !self.removals.contains(&sandbox) {
                self.remove_orphan(Removal::Container(container.id.clone()));
            }
        }
    }

    fn remove_orphan(&self, removal: Removal) {
        if !self.removals.contains(&removal) {
            tracing::warn!(?removal, "not known to the agent: it is removed");
            self.removals.add(removal);
        }
    }
}
