use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;

use super::*;
use crate::controller::metrics::Metrics;

fn queue() -> Queue<&'static str> {
    Queue::new("test", Metrics::new().queue("test"))
}

#[tokio::test(start_paused = true)]
async fn failures_wait_longer_each_time_and_success_forgets_them() {
    let queue = queue();
    let attempts = Arc::new(AtomicUsize::new(0));
    let stop = CancellationToken::new();
    let count = attempts.clone();
    let work = queue.clone().run(4, stop.clone(), move |_| {
        let count = count.clone();
        async move {
            if count.fetch_add(1, Ordering::SeqCst) < 6 {
                return Err(Error::Invalid("not yet".to_owned()));
            }
            Ok(Next::Done)
        }
    });
    let work = tokio::spawn(work);
    let start = Instant::now();
    queue.add("a");
    while attempts.load(Ordering::SeqCst) < 7 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // 5 + 10 + 20 + 40 + 80 + 160 ms.
    assert!(
        (315..400).contains(&start.elapsed().as_millis()),
        "{:?}",
        start.elapsed()
    );
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(queue.failures(&"a"), 0);
    stop.cancel();
    work.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_key_is_never_handled_twice_at_the_same_time() {
    let queue: Queue<u32> = Queue::new("test", Metrics::new().queue("test"));
    let busy = Arc::new(Mutex::new(FxHashSet::default()));
    let handled = Arc::new(AtomicUsize::new(0));
    let stop = CancellationToken::new();
    let (in_work, count) = (busy.clone(), handled.clone());
    let work = tokio::spawn(queue.clone().run(8, stop.clone(), move |key| {
        let (busy, handled) = (in_work.clone(), count.clone());
        async move {
            assert!(busy.lock().insert(key), "{key} is handled already");
            tokio::time::sleep(Duration::from_millis(5)).await;
            busy.lock().remove(&key);
            handled.fetch_add(1, Ordering::SeqCst);
            Ok(Next::Done)
        }
    }));
    for round in 0..50u32 {
        queue.add(round % 5);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    while !queue.is_idle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(handled.load(Ordering::SeqCst) >= 5);
    stop.cancel();
    work.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn it_is_behind_while_more_keys_wait_than_are_handled() {
    let queue = queue();
    queue.add("a");
    assert_eq!(queue.next().await, "a");
    queue.add("b");
    assert!(!queue.is_behind());
    // What is handled now and has to be again does not wait yet.
    queue.add("a");
    assert!(!queue.is_behind());
    queue.add("c");
    assert!(queue.is_behind());
    assert_eq!(queue.next().await, "b");
    assert!(!queue.is_behind());
}

#[tokio::test(start_paused = true)]
async fn a_panic_does_not_lose_the_key() {
    let queue = queue();
    let attempts = Arc::new(AtomicUsize::new(0));
    let stop = CancellationToken::new();
    let count = attempts.clone();
    let work = tokio::spawn(queue.clone().run(1, stop.clone(), move |_| {
        let count = count.clone();
        async move {
            assert!(
                count.fetch_add(1, Ordering::SeqCst) > 0,
                "the first attempt panics"
            );
            Ok(Next::Done)
        }
    }));
    queue.add("a");
    tokio::time::sleep(Duration::from_millis(10)).await;
    queue.add("a");
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(attempts.load(Ordering::SeqCst), 2);
    stop.cancel();
    work.await.unwrap();
}
