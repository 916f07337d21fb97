//! How to handle writes that fail, or whose answer is lost.

use std::time::Duration;

const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Whether the server answered at all: otherwise a write may have happened or not.
pub fn answered(error: &kube::Error) -> bool {
    // A server that is overloaded or shutting down may answer after the write.
    matches!(error, kube::Error::Api(status) if status.code < 500)
}

/// The status code of the answer; zero if the server did not answer with a Status.
pub fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

/// Repeats an idempotent write until its outcome is known. Returns the current object; `None` when it was deleted.
///
/// # Errors
/// The server refused the write, or the object cannot be read.
pub async fn until_known<T, W, R>(
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

/// How often a server may answer with an internal error before that is the outcome.
const FAILURES: u32 = 3;

/// Whether repeating a write can still help, and the pauses in between.
///
/// A server that is overloaded, or does not answer, is retried without limit: the outcome of the write is not known.
/// But status 500 can be permanent, for example for objects that a broken webhook rejects. Then the write fails, the
/// pod is retried with its backoff, and an event reports it.
#[derive(Default)]
pub struct Failures {
    internal: u32,
    pause: Pause,
}

impl Failures {
    /// Whether the failure is the outcome. Counts internal errors.
    pub fn is_final(&mut self, error: &kube::Error) -> bool {
        match code(error) {
            429 => false,
            500 => {
                self.internal += 1;
                self.internal >= FAILURES
            }
            _ => answered(error),
        }
    }

    /// Waits before the next repetition.
    pub async fn wait(&mut self) {
        self.pause.wait().await;
    }
}

/// Pauses between repetitions: 50 ms at first, then twice as long each time, up to five seconds.
pub struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(RETRY_MIN)
    }
}

impl Pause {
    /// Waits for the next pause.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(RETRY_MAX);
    }
}
