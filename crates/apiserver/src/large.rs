//! Requests with large bodies: however long it takes to work on one, others get their turn.
//!
//! Reading, merging, validating and admitting an object is work that nothing interrupts. For a body of some megabytes, and
//! with whatever grows with the square of a list, that can be seconds, in which a thread of the runtime serves nobody. Such
//! a request is therefore worked on aside: the thread hands its other tasks on first, and few requests have a turn at the
//! same time. The operating system shares the processors among the threads.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio_util::sync::PollSemaphore;

/// How many requests with large bodies are worked on at the same time: one for each processor, and at least two.
pub(crate) fn turns() -> Arc<Semaphore> {
    let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    Arc::new(Semaphore::new(processors.max(2)))
}

/// Does the work in turns, aside from other tasks. While it waits for something it has no turn.
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

/// Calls `work` after the thread has handed its other tasks on, where there are other threads.
fn in_place<T>(work: impl FnOnce() -> T) -> T {
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

    /// Work that does not end until another task has run on the only thread of the runtime.
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
