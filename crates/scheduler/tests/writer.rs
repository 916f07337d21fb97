//! What is written when the API server misbehaves, on a paused clock.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use allot_election::clock::Clock;
use allot_scheduler::Metrics;
use allot_scheduler::actions::{Action, BindJob, Nominate, Preemptor, Rejected};
use allot_scheduler::core::Input;
use allot_scheduler::pod::PodInfo;
use allot_scheduler::writer::{Options, Recorder, Writer};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::sync::CancellationToken;
use tower::service_fn;

mod writer {
    use super::*;

    mod canceled;
    mod conflicts;
}

/// A request: method and path, and what was sent.
type Asked = (String, Value);

struct Fixture {
    writer: Writer,
    inputs: UnboundedReceiver<Input>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Fixture {
    /// A writer whose server answers as `answer` says: a status and a body.
    fn new(answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (Arc::new(answer), asked.clone());
        let service = service_fn(move |request: Request<Body>| {
            let (answer, log) = (answer.clone(), log.clone());
            async move {
                let what = format!("{} {}", request.method(), request.uri().path());
                let body = request.into_body().collect().await.map(|b| b.to_bytes());
                let body = serde_json::from_slice(&body.unwrap_or_default());
                log.lock().push((what.clone(), body.unwrap_or_default()));
                // As long as a request takes, others can be under way.
                tokio::time::sleep(Duration::from_millis(5)).await;
                let (code, body) = answer(&what);
                let body = Full::new(Bytes::from(body.to_string()));
                let response = Response::builder().status(code).body(body);
                Ok::<_, Infallible>(response.expect("a response"))
            }
        });
        let client = Client::new(service, "default");
        let stop = CancellationToken::new();
        let (sender, inputs) = unbounded_channel();
        let (recorder, writing) = Recorder::new(client.clone(), stop.clone());
        tokio::spawn(writing);
        let options = Options {
            parallel: 4,
            timestamps: false,
        };
        let clock = Clock::tokio("2026-01-02T00:00:00Z".parse().expect("a time"));
        let writer = Writer::new(
            client,
            clock,
            sender,
            recorder,
            options,
            Metrics::new(),
            stop,
        );
        Self {
            writer,
            inputs,
            asked,
        }
    }

    fn bind(&self, namespace: &str, name: &str) {
        let job = job(pod(namespace, name));
        self.writer.start(Action::Bind(Box::new(job)));
    }

    /// The requests so far, without events.
    fn requests(&self) -> Vec<String> {
        let asked = self.asked.lock();
        let asked = asked.iter().map(|(what, _)| what.clone());
        asked.filter(|what| !what.contains("/events")).collect()
    }

    fn preempt(&self) {
        self.writer.start(Action::Preempt {
            preemptor: Preemptor {
                pod: pod("ns", "p"),
                group: None,
            },
            node: "n".into(),
            victims: vec![pod("ns", "victim")],
        });
    }

    /// The next pod whose binding has ended, and its result.
    async fn bound(&mut self) -> (String, Result<(), String>) {
        loop {
            if let Some(Input::Bound { pod, outcome }) = self.inputs.recv().await {
                return (pod.to_string(), outcome.map_err(|e| e.message));
            }
        }
    }
}

/// The binding of a pod for which nothing else is to be written.
fn job(pod: Arc<PodInfo>) -> BindJob {
    BindJob {
        pod,
        node: "n".into(),
        claims: Vec::new(),
        plugin_claims: None,
        extended: None,
        volumes: Default::default(),
        node_allocatable: Default::default(),
        wait: false,
        announce: false,
        cancel: CancellationToken::new(),
    }
}

fn object(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "7"},
        "spec": {"containers": []},
    })
}

fn pod(namespace: &str, name: &str) -> Arc<PodInfo> {
    let pod = serde_json::from_value(object(namespace, name)).expect("a pod");
    Arc::new(PodInfo::new(Arc::new(pod)))
}

fn status(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": ""})
}

/// The pod that a path is about, as the server has it.
fn stored(what: &str) -> Value {
    let mut parts = what.split('/').skip(4);
    let (namespace, name) = (parts.next(), parts.nth(1));
    object(namespace.unwrap_or_default(), name.unwrap_or_default())
}

const BROKEN: &str = "Internal error occurred: failed calling webhook \"x\"";

#[tokio::test(start_paused = true)]
async fn a_broken_webhook_in_one_namespace_does_not_hold_up_the_others() {
    let mut fixture = Fixture::new(|what| match what {
        w if w.starts_with("POST") && w.contains("/bad/") => (500, status(500, BROKEN)),
        w if w.starts_with("POST") => (201, json!({"kind": "Status"})),
        w => (200, stored(w)),
    });
    for i in 0..20 {
        fixture.bind("bad", &format!("bad-{i}"));
    }
    fixture.bind("good", "good");
    let begin = tokio::time::Instant::now();
    let mut failed = 0;
    loop {
        let (pod, outcome) = fixture.bound().await;
        match outcome {
            Ok(()) => {
                assert_eq!(pod, "good");
                break;
            }
            Err(message) => {
                assert!(message.contains(BROKEN), "{message}");
                failed += 1;
            }
        }
    }
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "{:?}",
        begin.elapsed()
    );
    // The broken ones return an error.
    while failed < 20 {
        assert!(fixture.bound().await.1.is_err());
        failed += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_for_one_pod_keeps_no_turn() {
    let mut fixture = Fixture::new(|what| match what {
        w if w.contains("/bad/") => (504, status(504, "timed out")),
        w if w.starts_with("POST") => (201, json!({"kind": "Status"})),
        w => (200, stored(w)),
    });
    for i in 0..20 {
        fixture.bind("bad", &format!("bad-{i}"));
    }
    fixture.bind("good", "good");
    let (pod, outcome) = fixture.bound().await;
    assert_eq!((&*pod, outcome), ("good", Ok(())));
}

#[tokio::test(start_paused = true)]
async fn nothing_old_is_said_about_a_pod_that_has_a_place() {
    let mut fixture = Fixture::new(|what| match what {
        w if w.starts_with("POST") => (201, json!({"kind": "Status"})),
        w => (200, stored(w)),
    });
    // More than are written at the same time, so that the last one waits.
    for i in 0..40 {
        fixture.writer.start(Action::Reject(Box::new(Rejected {
            pod: pod("ns", &format!("p{i}")),
            reason: "Unschedulable",
            message: "no".to_owned(),
            explanation: None,
            nominate: Nominate::Keep,
        })));
    }
    for at in ["p0", "p39"] {
        fixture.bind("ns", at);
    }
    for _ in 0..2 {
        assert_eq!(fixture.bound().await.1, Ok(()));
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = fixture.asked.lock();
    let at = |what: &str| asked.iter().position(|(w, _)| w == what);
    assert!(at("PATCH /api/v1/namespaces/ns/pods/p38/status").is_some());
    assert_eq!(at("PATCH /api/v1/namespaces/ns/pods/p39/status"), None);
    // What was under way is done before the binding.
    let said = at("PATCH /api/v1/namespaces/ns/pods/p0/status");
    let bound = at("POST /api/v1/namespaces/ns/pods/p0/binding");
    assert!(
        said.is_none_or(|said| bound.is_some_and(|bound| said < bound)),
        "{asked:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_victim_that_can_not_be_deleted_is_told_of_and_not_called_preempted() {
    let mut fixture = Fixture::new(|what| match what {
        w if w.starts_with("DELETE") => (403, status(403, "forbidden")),
        w => (200, stored(w)),
    });
    fixture.preempt();
    let told = fixture.inputs.recv().await;
    assert!(matches!(told, Some(Input::NotPreempted(uid)) if &*uid == "victim"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = fixture.asked.lock();
    assert!(
        asked.iter().all(|(what, _)| !what.ends_with("/events")),
        "{asked:?}"
    );
}
