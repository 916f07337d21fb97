//! How to handle writes that fail, or whose answer is lost.

use super::*;

const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Whether the server answered at all: otherwise a write may have happened or not.
pub(super) fn answered(error: &kube::Error) -> bool {
    // A server that is overloaded or shutting down may answer after the write.
    matches!(error, kube::Error::Api(status) if status.code < 500)
}

pub(super) fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

/// Makes the writes for one claim sequential.
pub(super) struct ClaimLocks<T>(Mutex<FxHashMap<Uid, ClaimLock<T>>>);

/// One claim's turn, with what the last writer of ours left.
pub(super) type ClaimLock<T> = Arc<tokio::sync::Mutex<Option<Arc<T>>>>;

impl<T> Default for ClaimLocks<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> ClaimLocks<T> {
    pub(super) fn of(&self, uid: &str) -> ClaimLock<T> {
        let mut turns = self.0.lock();
        if turns.len() > 1024 {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        turns.entry(uid.into()).or_default().clone()
    }
}

impl<T: Object> ClaimLocks<T> {
    /// Waits for the turn of a writer with a possibly outdated claim. Returns the newest known version.
    pub(super) async fn take(
        &self,
        claim: &Arc<T>,
    ) -> (tokio::sync::OwnedMutexGuard<Option<Arc<T>>>, Arc<T>) {
        let last = self.of(claim.uid()).lock_owned().await;
        let newest = assume_cache::newest(claim.clone(), last.as_ref());
        (last, newest)
    }
}

/// Repeats an idempotent write until its outcome is known. Returns the current object; `None` when it was deleted.
pub(super) async fn until_known<T, W, R>(
    write: impl Fn() -> W,
    read: impl Fn() -> R,
) -> Result<Option<T>, kube::Error>
where
    W: Future<Output = Result<T, kube::Error>>,
    R: Future<Output = Result<Option<T>, kube::Error>>,
{
    let mut pause = Pause::default();
    loop {
        match write().await {
            Ok(written) => return Ok(Some(written)),
            Err(error) if code(&error) == 404 => return Ok(None),
            // A write of another component, or this one, whose answer was lost.
            Err(error) if code(&error) == 409 => break,
            Err(error) if !answered(&error) || code(&error) == 429 => pause.wait().await,
            Err(error) => return Err(error),
        }
    }
    loop {
        match read().await {
            Ok(found) => return Ok(found),
            // Invalid data remains invalid: retrying does not help.
            Err(error @ kube::Error::SerdeError(_)) => return Err(error),
            Err(_) => pause.wait().await,
        }
    }
}

/// How often a write that got a conflict is repeated.
pub(super) const CONFLICTS: u32 = 3;

/// How often a server may answer with an internal error before that is the outcome.
const FAILURES: u32 = 3;

/// Whether repeating a write can still help, and the pauses in between.
///
/// A server that is overloaded, or does not answer, is retried without limit: the outcome of the write is not known.
/// But status 500 can be permanent, for example for objects that a broken webhook rejects. Then the write fails, the
/// pod is retried with its backoff, and an event reports it.
#[derive(Default)]
pub(super) struct Failures {
    internal: u32,
    pause: Pause,
}

impl Failures {
    pub(super) fn is_final(&mut self, error: &kube::Error) -> bool {
        match code(error) {
            429 => false,
            500 => {
                self.internal += 1;
                self.internal >= FAILURES
            }
            _ => answered(error),
        }
    }

    pub(super) async fn wait(&mut self) {
        self.pause.wait().await;
    }
}

/// Pauses between repetitions.
pub(super) struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(RETRY_MIN)
    }
}

impl Pause {
    pub(super) async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(RETRY_MAX);
    }
}
