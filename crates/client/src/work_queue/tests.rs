use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(5),
    longest: Duration::from_secs(60),
    bucket: None,
};

fn queue() -> WorkQueue<&'static str> {
    WorkQueue::new(BACKOFF, ())
}

async fn next<O: Observer>(queue: &WorkQueue<&'static str, O>) -> &'static str {
    queue.next().await.0
}

async fn is_empty(queue: &WorkQueue<&'static str>) -> bool {
    let waited = tokio::time::timeout(Duration::from_secs(60), queue.next()).await;
    waited.is_err()
}

#[tokio::test(start_paused = true)]
async fn a_key_is_handed_out_once_however_often_it_was_added() {
    let queue = queue();
    queue.add("a");
    queue.add("a");
    queue.add("b");
    assert_eq!(next(&queue).await, "a");
    // Added while it is processed: again, but only after that.
    queue.add("a");
    assert_eq!(next(&queue).await, "b");
    assert!(is_empty(&queue).await);
    queue.done(&"a");
    assert_eq!(queue.next().await, ("a", Duration::from_secs(60)));
}

#[tokio::test(start_paused = true)]
async fn the_earliest_of_several_times_counts() {
    let queue = queue();
    let start = Instant::now();
    queue.add_after("a", Duration::from_secs(10));
    queue.add_after("a", Duration::from_secs(3));
    queue.add_after("a", Duration::from_secs(7));
    assert_eq!(next(&queue).await, "a");
    assert_eq!(start.elapsed().as_secs(), 3);
    queue.done(&"a");
    assert!(is_empty(&queue).await);
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn errors_in_a_row_delay_a_key_longer_each_time() {
    let queue = queue();
    let mut delays = Vec::new();
    for _ in 0..18 {
        let start = Instant::now();
        queue.retry("a");
        assert_eq!(next(&queue).await, "a");
        delays.push(start.elapsed().as_millis());
        queue.done(&"a");
    }
    assert_eq!(delays[..5], [5, 10, 20, 40, 80]);
    assert_eq!(delays[14..], [60_000; 4]);
    assert_eq!(queue.failures(&"a"), 18);
    queue.forget(&"a");
    assert_eq!(queue.failures(&"a"), 0);
    let start = Instant::now();
    queue.retry("a");
    assert_eq!(next(&queue).await, "a");
    assert_eq!(start.elapsed().as_millis(), 5);
}

#[tokio::test(start_paused = true)]
async fn errors_of_all_keys_together_are_limited() {
    let bucket = Bucket {
        size: 3,
        period: Duration::from_secs(1),
    };
    let backoff = Backoff {
        bucket: Some(bucket),
        ..BACKOFF
    };
    let queue = WorkQueue::new(backoff, ());
    let start = Instant::now();
    let mut delays = Vec::new();
    for key in ["a", "b", "c", "d", "e"] {
        queue.retry(key);
    }
    for _ in 0..5 {
        next(&queue).await;
        delays.push(start.elapsed().as_millis());
    }
    assert_eq!(delays, [5, 5, 5, 1000, 2000]);
}

/// Objects name times in thousands of years: their keys were kept for as long, also when the objects were gone.
#[tokio::test(start_paused = true)]
async fn regression_no_key_waits_for_years() {
    let queue = queue();
    queue.add_after("a", Duration::MAX);
    let start = Instant::now();
    assert_eq!(next(&queue).await, "a");
    assert!((LONGEST..2 * LONGEST).contains(&start.elapsed()));
    queue.done(&"a");
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn each_of_several_workers_gets_a_key() {
    let queue = queue();
    let workers = async { tokio::join!(queue.next(), queue.next(), queue.next()) };
    let add = async {
        tokio::task::yield_now().await;
        for key in ["a", "b", "c"] {
            queue.add(key);
        }
    };
    let (taken, ()) = tokio::join!(workers, add);
    let mut taken = [taken.0.0, taken.1.0, taken.2.0];
    taken.sort_unstable();
    assert_eq!(taken, ["a", "b", "c"]);
    assert_eq!(queue.lengths(), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn an_observer_is_told() {
    #[derive(Default)]
    struct Counts([AtomicU64; 3]);
    impl Observer for Counts {
        fn added(&self) {
            self.0[0].fetch_add(1, Ordering::Relaxed);
        }
        fn retried(&self) {
            self.0[1].fetch_add(1, Ordering::Relaxed);
        }
        fn depth(&self, keys: usize) {
            self.0[2].store(keys as u64, Ordering::Relaxed);
        }
    }
    let queue = WorkQueue::new(BACKOFF, Counts::default());
    let counts = || {
        queue
            .observer()
            .0
            .each_ref()
            .map(|it| it.load(Ordering::Relaxed))
    };
    queue.add("a");
    queue.add("a");
    queue.add("b");
    assert_eq!(counts(), [2, 0, 2]);
    next(&queue).await;
    assert_eq!(counts(), [2, 0, 1]);
    queue.retry("a");
    assert_eq!(counts(), [2, 1, 1]);
    queue.add("a");
    queue.done(&"a");
    assert_eq!(counts(), [3, 1, 2]);
}
