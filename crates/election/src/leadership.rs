//! A Lease that is held, from its acquisition to its release.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::clock::millis;
use crate::elector::{Attempt, Elector};
use crate::fence::{Fence, Held};

impl Elector {
    /// Waits until this process leads; `None` after `shutdown`. A request without an answer is given up after the renewal deadline:
    /// what it would win then has been lost.
    pub async fn acquire(self, shutdown: &CancellationToken) -> Option<Leadership> {
        let elector = Arc::new(self);
        loop {
            let before = elector.clock.millis();
            let limit = elector.settings.renew_deadline;
            let attempt = {
                let mut attempt = std::pin::pin!(tokio::time::timeout(limit, elector.attempt()));
                tokio::select! {
                    biased;
                    attempt = &mut attempt => Ok(attempt),
                    // It may win at the server meanwhile: what is won has to be released.
                    () = shutdown.cancelled() => {
                        tokio::time::timeout(elector.settings.retry_period, attempt).await
                    }
                }
            };
            let Ok(attempt) = attempt else {
                return None;
            };
            let lease = &elector.settings.name;
            match attempt {
                Ok(Ok(Attempt::Ours)) => {
                    return Some(Leadership::start(elector, before, shutdown));
                }
                Ok(Ok(Attempt::Theirs)) => {}
                Ok(Err(error)) => tracing::warn!(%error, lease, "election failed"),
                Err(_) => tracing::warn!(?limit, lease, "election failed: no answer in time"),
            }
            tokio::select! {
                () = shutdown.cancelled() => return None,
                () = tokio::time::sleep(elector.pause()) => {}
            }
        }
    }
}

/// Acquired leadership; it is renewed in the background until it is lost or released.
pub struct Leadership {
    elector: Arc<Elector>,
    held: Arc<Held>,
    renewing: tokio::task::JoinHandle<()>,
}

impl Leadership {
    pub(crate) fn start(elector: Arc<Elector>, before: u64, shutdown: &CancellationToken) -> Self {
        let deadline = millis(elector.settings.renew_deadline);
        let held = Arc::new(Held {
            clock: elector.clock.clone(),
            until: AtomicU64::new(before + deadline),
            lost: CancellationToken::new(),
        });
        tracing::info!(
            lease = elector.settings.name,
            identity = elector.settings.identity,
            "leading"
        );
        let renewing = tokio::spawn(renew(elector.clone(), held.clone(), shutdown.clone()));
        Self {
            elector,
            held,
            renewing,
        }
    }

    /// Cancelled when leadership ends for any reason other than `release`.
    pub fn lost(&self) -> CancellationToken {
        self.held.lost.clone()
    }

    /// Whether this process certainly holds the Lease now.
    pub fn is_valid(&self) -> bool {
        self.held.is_valid()
    }

    /// The same client, but each request fails once leadership is not certain any longer.
    pub fn fence(&self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        Client::new(
            Fence {
                client,
                held: self.held.clone(),
            },
            namespace,
        )
    }

    /// Releases the Lease, so that another process need not wait for it to expire.
    pub async fn release(self) {
        self.renewing.abort();
        // Wait until a renewal in progress has ended: it must not arrive after the release.
        let _ = self.renewing.await;
        if !self.held.is_valid() {
            return;
        }
        self.held.until.store(0, Ordering::Release);
        let settings = &self.elector.settings;
        let lease = &settings.name;
        let released = tokio::time::timeout(settings.renew_deadline, self.elector.release()).await;
        match released {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, lease, "Lease not released: it has to expire");
            }
            Err(_) => tracing::warn!(
                lease,
                "Lease not released: no answer in time, it has to expire"
            ),
        }
    }
}

async fn renew(elector: Arc<Elector>, held: Arc<Held>, shutdown: CancellationToken) {
    let settings = &elector.settings;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(settings.retry_period) => {}
        }
        // Counted from before the request: the server may have stored the renewal at once.
        let before = held.clock.millis();
        let left = held.until.load(Ordering::Acquire).saturating_sub(before);
        let attempt = tokio::time::timeout(Duration::from_millis(left), elector.attempt()).await;
        match attempt {
            Ok(Ok(Attempt::Ours)) if held.is_valid() => {
                let until = before + millis(settings.renew_deadline);
                held.until.store(until, Ordering::Release);
                continue;
            }
            Ok(Ok(Attempt::Ours | Attempt::Theirs)) | Err(_) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, lease = settings.name, "Lease not renewed");
                if held.is_valid() {
                    continue;
                }
            }
        }
        tracing::error!(lease = settings.name, "leadership lost");
        held.lost.cancel();
        return;
    }
}
