//! Numbers that identify objects for the whole life of the process.

use std::sync::atomic::{AtomicU64, Ordering};

/// A unique number, greater than all before; never zero.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
