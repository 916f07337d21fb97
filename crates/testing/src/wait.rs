//! Waiting for a condition by polling.
//!
//! For states that no event reports. If there is an event (a watch, a channel, the end of a process), await that.

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

/// How long a test waits before it fails: much longer than needed on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The polling interval.
const PAUSE: Duration = Duration::from_millis(10);

/// Polls until `look` returns `Ok`, and returns the value.
///
/// # Panics
///
/// If there is no value after [`PATIENCE`]. The message contains `what` and the last `Err`, which describes the current state.
pub async fn until<T, E: Debug, F>(what: &str, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, E>>,
{
    let start = Instant::now();
    loop {
        match look().await {
            Ok(found) => return found,
            Err(instead) => assert!(
                start.elapsed() < PATIENCE,
                "waited {PATIENCE:?} until {what}; now: {instead:#?}"
            ),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Polls a synchronous condition until it holds.
///
/// # Panics
///
/// If it does not hold after [`PATIENCE`].
pub async fn until_true(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || {
        let answer = holds();
        async move { answer.then_some(()).ok_or("it is not so") }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_value_is_returned_once_it_is_there() {
        let mut looks = 0;
        let found = until("three looks", || {
            looks += 1;
            let now = looks;
            async move { if now == 3 { Ok(now) } else { Err(now) } }
        })
        .await;
        assert_eq!(found, 3);
    }
}
