//! Requests with large bodies: processing one, however long it takes, does not block other requests.
//!
//! Decoding, merging, validating and admitting an object is synchronous work. For a body of several megabytes, and for
//! steps that are quadratic in the length of a list, it can block a runtime thread for seconds. Such a request is
//! therefore processed with `block_in_place`: the thread's other tasks move to another thread first, and the number of
//! concurrent requests of this kind is limited. The operating system schedules the threads on the processors.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio_util::sync::PollSemaphore;

/// The maximum number of requests with large bodies that are processed concurrently: one per processor, at least two.
pub(crate) fn turns() -> Arc<Semaphore> {
    let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    Arc::new(Semaphore::new(processors.max(2)))
}

/// Polls `work` separately from other tasks, with a permit of `turns`. The permit is released while the work waits.
pub(crate) async fn aside<T>(turns: Arc<Semaphore>, work: impl Future<Output = T>) -> T {
    let mut turns = PollSemaphore::new(turns);
    let mut work = std::pin::pin!(work);
    poll_fn(|context| {
        let Poll::Ready(turn) = turns.poll_acquire(context) else {
            return Poll::Pending;
        };
        let polled = in_place(|| work.as_mut().poll(context));
        drop(turn);
        polled
    })
    .await
}

/// Calls `work` after the other tasks of the thread have moved to another thread, if the runtime has several threads.
pub(crate) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// The work does not end until another task has run on the only thread of the runtime.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn regression_others_get_their_turn_during_work_on_a_large_body() {
        let (sender, receiver) = mpsc::channel();
        let large = tokio::spawn(async move {
            let work = async move { receiver.recv_timeout(Duration::from_secs(60)) };
            aside(turns(), work).await
        });
        let other = tokio::spawn(async move { sender.send(7) });
        other.await.unwrap().unwrap();
        assert_eq!(large.await.unwrap(), Ok(7));
    }

    #[tokio::test]
    async fn work_waits_for_its_turn_and_has_none_while_it_waits() {
        let turns = Arc::new(Semaphore::new(1));
        let (sender, receiver) = tokio::sync::oneshot::channel::<u8>();
        let waiting = tokio::spawn(aside(turns.clone(), receiver));
        tokio::task::yield_now().await;
        assert_eq!(aside(turns.clone(), async { 1 }).await, 1);
        let taken = turns.clone().acquire_owned().await.unwrap();
        sender.send(2).unwrap();
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(taken);
        assert_eq!(waiting.await.unwrap(), Ok(2));
    }
}
