//! What services have been given that are on their way into the store.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::key;
use crate::object::meta;

/// Services that are about to be stored.
#[derive(Default)]
pub(crate) struct Pending {
    /// Locked only during an allocation, which accesses nothing but the store.
    choosing: tokio::sync::Mutex<()>,
    services: Arc<Mutex<Services>>,
}

#[derive(Default)]
struct Services {
    next: u64,
    all: Vec<(u64, Value)>,
}

/// No other allocation runs while this exists.
pub(super) struct AllocationLock<'a>(
    #[expect(dead_code, reason = "held")] tokio::sync::MutexGuard<'a, ()>,
);

/// The reserved addresses and ports of one service, until this is dropped.
pub(crate) struct Reserved {
    number: u64,
    services: Arc<Mutex<Services>>,
}

impl Pending {
    pub(super) async fn alone(&self) -> AllocationLock<'_> {
        AllocationLock(self.choosing.lock().await)
    }

    /// All pending services except for those that would replace `service`: of them at most one will
    /// be stored.
    pub(super) fn pending(&self, service: &Value) -> Vec<Value> {
        let named = !meta(service, "name").is_empty();
        let services = self.services.lock();
        let all = services.all.iter().map(|(_, other)| other);
        all.filter(|other| !(named && key(other) == key(service)))
            .cloned()
            .collect()
    }

    /// Records the allocation of a service; a dry run needs none.
    pub(super) fn reserve(
        &self,
        _: &AllocationLock<'_>,
        service: &Value,
        dry_run: bool,
    ) -> Reserved {
        let mut services = self.services.lock();
        services.next += 1;
        let number = services.next;
        if !dry_run {
            services.all.push((number, service.clone()));
        }
        let services = self.services.clone();
        Reserved { number, services }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut services = self.services.lock();
        services.all.retain(|(number, _)| *number != self.number);
    }
}
