//! What the containers of a pod have together: the limits of its cgroup.

use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::oci;
use crate::runtime::{PodChange, RuntimeError};
use crate::shim::spec::PodLimits;

/// Changes the limits of the cgroup of a pod, where cgroups can be written. A limit below the memory that is used now is refused
/// before anything has changed.
pub(super) fn limit(
    enforced: bool,
    uid: String,
    limits: PodLimits,
    which: PodChange,
) -> BoxFuture<'static, Result<(), RuntimeError>> {
    let change = move || {
        if let Some(limit) = limits.memory
            && oci::pod::memory_limit(&uid).is_none_or(|now| now > limit)
            && let Some(used) = oci::pod::used_memory(&uid).filter(|it| *it >= limit.unsigned_abs())
        {
            return Err(RuntimeError::PodMemory { limit, used });
        }
        oci::pod::change(&uid, &limits, which).map_err(RuntimeError::Limit)
    };
    async move {
        match enforced {
            // Blocking: the kernel may have to reclaim memory first.
            true => tokio::task::spawn_blocking(change).await?,
            false => Ok(()),
        }
    }
    .boxed()
}

/// Removes the cgroup of a pod whose containers have been removed.
pub(super) fn forget(enforced: bool, uid: String) -> BoxFuture<'static, ()> {
    async move {
        if enforced {
            // It only fails if removing panics, and then nothing can be done about the cgroup.
            let _ = tokio::task::spawn_blocking(move || oci::pod::remove(&uid)).await;
        }
    }
    .boxed()
}
