//! When a standby takes over from a leader that died.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allot_election::clock::Clock;
use allot_election::{Elector, Settings};
use http::{Method, Request, Response};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const LEASE: &str = r#"{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
    "metadata": {"name": "leader", "namespace": "default", "resourceVersion": "1"},
    "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 15, "leaseTransitions": 0,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z"}}"#;

/// A candidate, and a server with nothing but this Lease, which is also the answer to writes.
fn standby(lease: String) -> Elector {
    standby_of(lease, |_| true)
}

/// The same, where the server never answers the requests with the numbers that `answers` refuses.
fn standby_of(lease: String, answers: fn(usize) -> bool) -> Elector {
    let requests = AtomicUsize::new(0);
    let server = tower::service_fn(move |request: Request<Body>| {
        let known = [Method::GET, Method::PUT].contains(request.method());
        let answer = Response::builder().status(if known { 200 } else { 405 });
        let answer = answer.body(Body::from(lease.clone().into_bytes()));
        let is_answered = answers(requests.fetch_add(1, Ordering::Relaxed));
        async move {
            if !is_answered {
                std::future::pending::<()>().await;
            }
            answer
        }
    });
    let settings = Settings {
        clock: Clock::tokio(Timestamp::UNIX_EPOCH),
        ..Settings::new("default", "leader", "standby")
    };
    Elector::new(Client::new(server, "default"), settings)
}

/// Pods that a dead leader leaves wait for a standby. It looks at the Lease every two seconds, and took over with the first
/// look after the end, up to 2.4 s later.
#[tokio::test(start_paused = true)]
async fn a_standby_leads_as_soon_as_the_lease_has_expired() {
    let started = Instant::now();
    let elector = standby(LEASE.to_owned());
    let leadership = elector.acquire(&CancellationToken::new()).await;
    let waited = started.elapsed();
    assert!(leadership.is_some_and(|it| it.is_valid()));
    let lease = Duration::from_secs(15);
    assert!(
        lease <= waited && waited < lease + Duration::from_millis(20),
        "{waited:?}"
    );
}

/// A Lease with the largest number of transitions. One more was a panic in a debug build, and otherwise a negative number, which API
/// servers refuse: no process led any more.
#[tokio::test(start_paused = true)]
async fn regression_the_number_of_transitions_does_not_overflow() {
    let many = format!("\"leaseTransitions\": {}", i32::MAX);
    let lease = LEASE.replace("\"leaseTransitions\": 0", &many);
    assert!(lease.contains(&many));
    let elector = standby(lease);
    let leadership = elector.acquire(&CancellationToken::new()).await;
    assert!(leadership.is_some_and(|it| it.is_valid()));
}

/// An expired Lease, which the first attempt wins.
fn expired() -> String {
    LEASE.replace("\"holderIdentity\": \"dead\"", "\"holderIdentity\": \"\"")
}

/// A standby whose request was lost waited for its answer for as long as the connection lasted, and never led.
#[tokio::test(start_paused = true)]
async fn regression_an_attempt_without_an_answer_is_followed_by_another() {
    let elector = standby_of(expired(), |request| request > 0);
    let leadership = elector.acquire(&CancellationToken::new()).await;
    assert!(leadership.is_some_and(|it| it.is_valid()));
}

/// It also kept the process from ending.
#[tokio::test(start_paused = true)]
async fn regression_an_attempt_without_an_answer_ends_with_the_process() {
    let elector = standby_of(expired(), |_| false);
    let shutdown = CancellationToken::new();
    let (leadership, ()) = tokio::join!(elector.acquire(&shutdown), async { shutdown.cancel() });
    assert!(leadership.is_none());
}

/// A leader whose API server is gone did not end.
#[tokio::test(start_paused = true)]
async fn regression_a_release_without_an_answer_ends() {
    // Those of the attempt: reading and writing.
    let elector = standby_of(expired(), |request| request < 2);
    let leadership = elector.acquire(&CancellationToken::new()).await;
    leadership.expect("it leads").release().await;
}

/// An attempt that was under way at the shutdown was dropped: the Lease that it won was not released.
#[tokio::test(start_paused = true)]
async fn regression_what_is_won_at_the_end_of_the_process_can_be_released() {
    let elector = standby_of(expired(), |_| true);
    let shutdown = CancellationToken::new();
    let (leadership, ()) = tokio::join!(elector.acquire(&shutdown), async { shutdown.cancel() });
    leadership.expect("it has won").release().await;
}
