//! Writes that get a conflict, because other components write the same object at the same time.

use std::sync::atomic::{AtomicU32, Ordering};

use allot_scheduler::pod::Key;
use allot_scheduler::podgroups::Condition;
use kube::core::{ApiResource, GroupVersionKind};

use super::*;

impl Fixture {
    /// Removes an extended resource claim that the server does not delete at once.
    fn delete_claim(&self) {
        let claim = json!({
            "metadata": {
                "name": "c", "namespace": "ns", "uid": "c", "resourceVersion": "1",
                "finalizers": ["resource.kubernetes.io/delete-protection"],
            },
            "spec": {},
        });
        let claim = serde_json::from_value(claim).expect("a claim");
        self.writer
            .start(Action::DeleteExtendedResourceClaim(Arc::new(claim)));
    }

    /// Reports that a group was placed.
    fn update_group(&mut self) {
        let kind = GroupVersionKind::gvk("scheduling.k8s.io", "v1alpha2", "PodGroup");
        let resource = ApiResource::from_gvk_with_plural(&kind, "podgroups");
        self.writer = self.writer.clone().with_groups(Some(resource));
        self.writer.start(Action::UpdatePodGroupStatus {
            group: Key::new("ns", "g"),
            uid: "g".into(),
            condition: Condition {
                status: "True".to_owned(),
                reason: "Scheduled".to_owned(),
                message: String::new(),
                observed_generation: None,
                last_transition_time: None,
            },
        });
    }

    fn patches(&self) -> usize {
        let requests = self.requests();
        let patches = requests.iter().filter(|r| r.starts_with("PATCH"));
        patches.count()
    }
}

/// A server gives up a patch without a version after some conflicts with other writes. If that were taken for the end of
/// the victim, its preemptor would wait forever.
#[tokio::test(start_paused = true)]
async fn regression_a_victim_that_others_write_at_the_same_time_is_deleted() {
    let conflicts = AtomicU32::new(0);
    let fixture = Fixture::new(move |what| match what {
        w if w.starts_with("PATCH") && conflicts.fetch_add(1, Ordering::Relaxed) < 2 => {
            (409, status(409, "the object has been modified"))
        }
        w => (200, stored(w)),
    });
    fixture.preempt();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let deleted = "DELETE /api/v1/namespaces/ns/pods/victim".to_owned();
    let requests = fixture.requests();
    assert!(requests.contains(&deleted), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_victim_that_was_replaced_by_another_pod_is_left_alone() {
    let fixture = Fixture::new(|what| {
        let mut other = stored(what);
        other["metadata"]["uid"] = json!("other");
        match what.starts_with("PATCH") {
            true => (409, status(409, "the UID in the precondition differs")),
            false => (200, other),
        }
    });
    fixture.preempt();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let requests = fixture.requests();
    assert!(
        !requests.iter().any(|r| r.starts_with("DELETE")),
        "{requests:?}"
    );
}

/// Otherwise the extended resource claim would be kept by its finalizer, and with it the device.
#[tokio::test(start_paused = true)]
async fn regression_a_claim_that_others_write_at_the_same_time_loses_its_finalizer() {
    let conflicts = AtomicU32::new(0);
    let fixture = Fixture::new(move |what| {
        let claim = |version: &str, finalizers: Value| {
            let metadata = json!({
                "name": "c", "namespace": "ns", "uid": "c", "resourceVersion": version, "finalizers": finalizers,
            });
            json!({"metadata": metadata, "spec": {}})
        };
        let both = json!([
            "resource.kubernetes.io/delete-protection",
            "example.com/keep"
        ]);
        match what {
            w if w.starts_with("PATCH") && conflicts.fetch_add(1, Ordering::Relaxed) == 0 => {
                (409, status(409, "the object has been modified"))
            }
            w if w.starts_with("PATCH") => (200, claim("3", json!(["example.com/keep"]))),
            _ => (200, claim("2", both)),
        }
    });
    fixture.delete_claim();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = fixture.asked.lock();
    let patches = asked.iter().filter(|(what, _)| what.starts_with("PATCH"));
    let written: Vec<&Value> = patches
        .map(|(_, body)| &body["metadata"]["finalizers"])
        .collect();
    assert_eq!(
        written,
        [&json!([]), &json!(["example.com/keep"])],
        "{asked:?}"
    );
    let last = asked.last().map(|(what, _)| &**what);
    let deleted = "DELETE /apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c";
    assert_eq!(last, Some(deleted), "{asked:?}");
}

/// It would not be written again: the core reports each condition once.
#[tokio::test(start_paused = true)]
async fn regression_a_group_that_others_write_at_the_same_time_gets_its_condition() {
    let conflicts = AtomicU32::new(0);
    let mut fixture = Fixture::new(move |what| {
        match what.starts_with("PATCH") && conflicts.fetch_add(1, Ordering::Relaxed) == 0 {
            true => (409, status(409, "the object has been modified")),
            false => {
                let metadata = json!({"name": "g", "namespace": "ns", "uid": "g"});
                (200, json!({"metadata": metadata}))
            }
        }
    });
    fixture.update_group();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(fixture.patches(), 2, "{:?}", fixture.requests());
}

/// Otherwise a component that writes an object all the time keeps the scheduler busy without end.
#[tokio::test(start_paused = true)]
async fn regression_writes_that_get_conflicts_again_and_again_are_given_up() {
    let mut fixture = Fixture::new(|what| match what.starts_with("PATCH") {
        true => (409, status(409, "the object has been modified")),
        false => {
            let metadata = json!({"name": "g", "namespace": "ns", "uid": "g"});
            (200, json!({"metadata": metadata}))
        }
    });
    fixture.update_group();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(fixture.patches(), 4, "{:?}", fixture.requests());
    let fixture = Fixture::new(|what| match what.starts_with("PATCH") {
        true => (409, status(409, "the object has been modified")),
        false => {
            let metadata = json!({
                "name": "c", "namespace": "ns", "uid": "c", "resourceVersion": "2",
                "finalizers": ["resource.kubernetes.io/delete-protection"],
            });
            (200, json!({"metadata": metadata, "spec": {}}))
        }
    });
    fixture.delete_claim();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let requests = fixture.requests();
    assert_eq!(fixture.patches(), 4, "{requests:?}");
    assert!(
        !requests.iter().any(|r| r.starts_with("DELETE")),
        "{requests:?}"
    );
}

/// It would be allocated again, with devices that another claim may have by then.
#[tokio::test(start_paused = true)]
async fn regression_a_claim_that_is_deallocated_after_another_pod_allocated_it_stays_so() {
    let reads = AtomicU32::new(0);
    let mut fixture = Fixture::new(move |what| {
        if !what.starts_with("GET") {
            return (409, status(409, "the object has been modified"));
        }
        let metadata = |version: &str| {
            json!({
                "name": "c", "namespace": "ns", "uid": "c", "resourceVersion": version,
                "finalizers": ["resource.kubernetes.io/delete-protection"],
            })
        };
        match reads.fetch_add(1, Ordering::Relaxed) {
            0 => {
                let users = json!([{"resource": "pods", "name": "q", "uid": "q"}]);
                let status = json!({"allocation": {}, "reservedFor": users});
                (
                    200,
                    json!({"metadata": metadata("2"), "spec": {}, "status": status}),
                )
            }
            _ => (200, json!({"metadata": metadata("3"), "spec": {}})),
        }
    });
    fixture.bind_with_claim(CancellationToken::new());
    let message = fixture.bound().await.1.expect_err("an error");
    let text = "claim ns/c got deallocated elsewhere in the meantime";
    assert!(message.contains(text), "{message}");
}
