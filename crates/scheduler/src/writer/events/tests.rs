//! The order and the times in which events are written.

use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

use super::*;

struct Fixture {
    recorder: Recorder,
    /// When events were written, and their bodies.
    written: UnboundedReceiver<(Instant, Value)>,
    stop: CancellationToken,
    writing: JoinHandle<()>,
}

impl Fixture {
    fn new() -> Self {
        let (sent, written) = unbounded_channel();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let sent = sent.clone();
            async move {
                let body = request.into_body().collect_bytes().await.expect("a body");
                let body: Value = serde_json::from_slice(&body).expect("JSON");
                let _ = sent.send((Instant::now(), body));
                let answer = http::Response::new(kube::client::Body::from(b"{}".to_vec()));
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        let stop = CancellationToken::new();
        let (recorder, writing) = Recorder::new(Client::new(service, "ns"), stop.clone());
        Self {
            recorder,
            written,
            stop,
            writing: tokio::spawn(writing),
        }
    }

    async fn next(&mut self) -> (Instant, Value) {
        self.written.recv().await.expect("an event")
    }
}

fn bound() -> PendingEvent {
    let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": []}});
    let pod = serde_json::from_value(pod).expect("a pod");
    PendingEvent::scheduled(&PodInfo::new(Arc::new(pod)), "n")
}

#[tokio::test(start_paused = true)]
async fn events_wait_for_bindings_but_not_for_ever() {
    let mut it = Fixture::new();
    let (begin, busy) = (Instant::now(), it.recorder.pause());
    it.recorder.note(bound());
    let noted = jiff::Timestamp::now();
    let (first, event) = it.next().await;
    assert!(first - begin >= MAX_DELAY);
    let time = event["eventTime"].as_str().expect("a time");
    let time: jiff::Timestamp = time.parse().expect("a time");
    assert!(time <= noted, "{time} is after {noted}");
    it.recorder.note(bound());
    tokio::time::sleep(MAX_DELAY / 2).await;
    let free = Instant::now();
    drop(busy);
    let (second, _) = it.next().await;
    assert_eq!(second, free);
    it.stop.cancel();
    it.writing.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn many_events_do_not_wait() {
    let mut it = Fixture::new();
    let (begin, _busy) = (Instant::now(), it.recorder.pause());
    it.recorder.note(bound());
    // It waits already when the others come.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for _ in 0..=NO_DELAY_FROM {
        it.recorder.note(bound());
    }
    let (first, _) = it.next().await;
    assert!(first - begin < MAX_DELAY);
}

#[tokio::test(start_paused = true)]
async fn the_last_events_are_written_at_the_end() {
    let mut it = Fixture::new();
    let (begin, _busy) = (Instant::now(), it.recorder.pause());
    for _ in 0..3 * PARALLEL {
        it.recorder.note(bound());
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    it.stop.cancel();
    it.writing.await.expect("no panic");
    assert!(begin.elapsed() < MAX_DELAY);
    let mut count = 0;
    while it.written.try_recv().is_ok() {
        count += 1;
    }
    assert_eq!(count, 3 * PARALLEL);
}

#[test]
fn events_of_pods_with_long_names_have_names() {
    let stamp = jiff::Timestamp::now();
    assert!(event_name("p", stamp).starts_with("p."));
    let of_long = event_name(&"p".repeat(240), stamp);
    assert_eq!(of_long.len(), 36, "{of_long}");
}
