//! Binding cycles that are canceled while claims are being written.

use allot_scheduler::actions::{ClaimTask, ExtendedResourceClaimTask};
use allot_scheduler::pod::Key;
use allot_scheduler::podgroups::claims::Consumer;
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::*;

impl Fixture {
    /// Starts the binding of a pod for which a claim has to be allocated.
    pub(super) fn bind_with_claim(&self, cancel: CancellationToken) {
        let claim = json!({"metadata": {"name": "c", "namespace": "ns", "uid": "c", "resourceVersion": "1"}, "spec": {}});
        let claim: ResourceClaim = serde_json::from_value(claim).expect("a claim");
        let pod = pod("ns", "p");
        let task = ClaimTask {
            key: Key::new("ns", "c"),
            uid: "c".into(),
            claim: Arc::new(claim),
            consumer: Consumer::pod(&pod),
            allocation: Some(Arc::default()),
            fence: false,
        };
        let job = BindJob {
            claims: vec![task],
            wait: true,
            cancel,
            ..job(pod)
        };
        self.writer.start(Action::Bind(Box::new(job)));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_for_a_pod_whose_binding_cycle_was_canceled_before() {
    let mut fixture = Fixture::new(|what| (200, stored(what)));
    let cancel = CancellationToken::new();
    cancel.cancel();
    fixture.bind_with_claim(cancel);
    assert!(fixture.bound().await.1.is_err());
    assert!(fixture.requests().is_empty(), "{:?}", fixture.requests());
}

#[tokio::test(start_paused = true)]
async fn a_binding_cycle_that_is_canceled_during_a_write_begins_no_other() {
    let cancel = CancellationToken::new();
    let during = cancel.clone();
    let mut fixture = Fixture::new(move |_| {
        during.cancel();
        let metadata = json!({
            "name": "c", "namespace": "ns", "uid": "c", "resourceVersion": "2",
            "finalizers": ["resource.kubernetes.io/delete-protection"],
        });
        (200, json!({"metadata": metadata, "spec": {}}))
    });
    fixture.bind_with_claim(cancel);
    assert!(fixture.bound().await.1.is_err());
    let finalizer = "PATCH /apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c";
    assert_eq!(fixture.requests(), [finalizer]);
}

/// The newer version tells the outcome of the request: the pod is gone, and nothing else may be written for it.
#[tokio::test(start_paused = true)]
async fn regression_a_write_whose_outcome_was_found_out_is_followed_by_no_other() {
    let cancel = CancellationToken::new();
    let during = cancel.clone();
    let mut fixture = Fixture::new(move |what| {
        if what.starts_with("PATCH") {
            return (504, status(504, "timed out"));
        }
        // It was carried out.
        during.cancel();
        let metadata = json!({
            "name": "c", "namespace": "ns", "uid": "c", "resourceVersion": "2",
            "finalizers": ["resource.kubernetes.io/delete-protection"],
        });
        (200, json!({"metadata": metadata, "spec": {}}))
    });
    fixture.bind_with_claim(cancel);
    assert!(fixture.bound().await.1.is_err());
    let claim = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c";
    let expected = [format!("PATCH {claim}"), format!("GET {claim}")];
    assert_eq!(fixture.requests(), expected);
}

/// A request that was not answered may have been carried out, or will be: the devices are in use until that is known.
#[tokio::test(start_paused = true)]
async fn the_outcome_of_a_write_is_found_out_after_the_binding_cycle_was_canceled() {
    let cancel = CancellationToken::new();
    let during = cancel.clone();
    let mut fixture = Fixture::new(move |what| {
        let metadata = |version: &str| {
            json!({
                "name": "c", "namespace": "ns", "uid": "c", "resourceVersion": version,
                "finalizers": ["resource.kubernetes.io/delete-protection"],
            })
        };
        match what {
            w if w.starts_with("PUT") => {
                during.cancel();
                (504, status(504, "timed out"))
            }
            w if w.starts_with("GET") => {
                let users = json!([{"resource": "pods", "name": "p", "uid": "p"}]);
                let status = json!({"allocation": {}, "reservedFor": users});
                (
                    200,
                    json!({"metadata": metadata("3"), "spec": {}, "status": status}),
                )
            }
            _ => (200, json!({"metadata": metadata("2"), "spec": {}})),
        }
    });
    fixture.bind_with_claim(cancel);
    let written = fixture.inputs.recv().await;
    assert!(
        matches!(written, Some(Input::ClaimWritten { .. })),
        "{written:?}"
    );
    let ready = fixture.inputs.recv().await;
    assert!(matches!(ready, Some(Input::ClaimsReady(_))), "{ready:?}");
}

#[tokio::test(start_paused = true)]
async fn regression_a_claim_that_is_created_before_the_cancellation_is_not_recorded_after_it() {
    let cancel = CancellationToken::new();
    let during = cancel.clone();
    let mut fixture = Fixture::new(move |what| {
        let metadata = |version: &str| {
            json!({
                "name": "c", "namespace": "ns", "uid": "c", "resourceVersion": version,
                "finalizers": ["resource.kubernetes.io/delete-protection"],
            })
        };
        if what.starts_with("POST") {
            return (201, json!({"metadata": metadata("1"), "spec": {}}));
        }
        during.cancel();
        let users = json!([{"resource": "pods", "name": "p", "uid": "p"}]);
        let status = json!({"allocation": {}, "reservedFor": users});
        (
            200,
            json!({"metadata": metadata("2"), "spec": {}, "status": status}),
        )
    });
    let claim = json!({"metadata": {"namespace": "ns", "generateName": "c"}, "spec": {}});
    let claim: ResourceClaim = serde_json::from_value(claim).expect("a claim");
    let task = ExtendedResourceClaimTask {
        uid: "in-memory".into(),
        claim: Arc::new(claim),
        allocation: Arc::default(),
        mappings: Vec::new(),
    };
    let job = BindJob {
        extended: Some(task),
        wait: true,
        cancel,
        ..job(pod("ns", "p"))
    };
    fixture.writer.start(Action::Bind(Box::new(job)));
    assert!(fixture.bound().await.1.is_err());
    let claims = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims";
    let expected = [format!("POST {claims}"), format!("PUT {claims}/c/status")];
    assert_eq!(fixture.requests(), expected);
}
