//! What all answers together may hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Result;
use crate::limits::too_many_requests;

/// The budget is counted in pieces of this size.
const UNIT: usize = 1 << 10;
/// Longest wait for the budget.
const WAIT: Duration = Duration::from_secs(15);

/// A bound on bytes that are in memory at the same time.
#[derive(Debug)]
pub struct Budget {
    free: Arc<Semaphore>,
    units: usize,
}

impl Budget {
    /// Of so many bytes.
    pub fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Budget {
            free: Arc::new(Semaphore::new(units)),
            units,
        }
    }

    /// Waits for a share; a size above a quarter of the budget is capped, or small requests would wait for it.
    ///
    /// # Errors
    /// 429 after a quarter of a minute.
    pub async fn reserve(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        self.take(bytes, self.units / 4).await
    }

    /// Waits for a share; a size above the budget is all of it.
    ///
    /// # Errors
    /// As for [`Budget::reserve`].
    pub async fn reserve_all(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        self.take(bytes, self.units).await
    }

    async fn take(&self, bytes: usize, most: usize) -> Result<OwnedSemaphorePermit> {
        let units = bytes.div_ceil(UNIT).min(most.max(1));
        // It is not larger than the budget, which fits.
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let free = self.free.clone();
        match tokio::time::timeout(WAIT, free.acquire_many_owned(units)).await {
            Ok(Ok(share)) => Ok(share),
            _ => Err(too_many_requests()),
        }
    }

    /// Bytes that are reserved.
    pub fn used(&self) -> usize {
        (self.units - self.free.available_permits()) * UNIT
    }
}

/// Counters of streamed answers.
#[derive(Debug, Default)]
pub struct Counters {
    sent: AtomicU64,
    abandoned: AtomicU64,
}

impl Counters {
    /// A piece has been given to a connection.
    pub fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A client did not read.
    pub fn abandoned(&self) {
        self.abandoned.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes that were given to connections in pieces.
    pub fn bytes_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Answers that ended because their clients did not read them.
    pub fn times_abandoned(&self) -> u64 {
        self.abandoned.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_budget_refuses_after_a_while_and_recovers() {
        let budget = Budget::new(8 * UNIT);
        // More than a quarter counts as a quarter.
        let mut shares = Vec::new();
        for _ in 0..4 {
            shares.push(budget.reserve(100 * UNIT).await.unwrap());
        }
        assert_eq!(budget.used(), 8 * UNIT);
        let refused = budget.reserve(1).await.unwrap_err();
        assert_eq!(refused.code(), 429);
        assert_eq!(refused.0.details.as_ref().unwrap().retry_after_seconds, 1);
        shares.clear();
        assert_eq!(budget.used(), 0);
        // The exception has all of it, and nothing else is under way.
        let all = budget.reserve_all(100 * UNIT).await.unwrap();
        assert_eq!(budget.used(), 8 * UNIT);
        assert_eq!(budget.reserve_all(1).await.unwrap_err().code(), 429);
        drop(all);
        drop(budget.reserve(1).await.unwrap());
    }
}
