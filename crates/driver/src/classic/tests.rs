//! A controller against a real API server in this process, with hardware that records its calls.

use serde_json::json;

use super::queue;
use super::*;

mod fixture;
mod simulation;

use fixture::{DRIVER, Fixture, is_null};

const FINALIZER: &str = "cats.example.com/deletion-protection";

async fn allocates_for_the_selected_node(minor: u8) {
    let fixture = Fixture::start(minor).await;
    let controller = fixture.controller();
    fixture.pod("p", &["cat"]).await;
    fixture.claim("p-cat", "p", "WaitForFirstConsumer").await;
    fixture
        .negotiate(
            "p",
            json!({"selectedNode": "n1", "potentialNodes": ["n1", "n2"]}),
        )
        .await;
    let claim = fixture
        .until_claim("p-cat", |claim| !is_null(&claim["status"]["allocation"]))
        .await;
    assert_eq!(claim["metadata"]["finalizers"], json!([FINALIZER]));
    let status = &claim["status"];
    assert_eq!(status["driverName"], DRIVER);
    assert_eq!(status["reservedFor"][0]["name"], "p");
    assert_eq!(status["reservedFor"][0]["resource"], "pods");
    match minor {
        26 => assert_eq!(status["allocation"]["resourceHandle"], "tabby"),
        _ => {
            let handles = json!([{"driverName": DRIVER, "data": "tabby"}]);
            assert_eq!(status["allocation"]["resourceHandles"], handles);
        }
    }
    let node =
        &status["allocation"]["availableOnNodes"]["nodeSelectorTerms"][0]["matchExpressions"][0];
    assert_eq!(
        *node,
        json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]})
    );
    assert_eq!(fixture.hardware.on("n1"), 1);

    // The scheduler wants it back.
    fixture.deselect("p").await;
    let mut status = status.clone();
    status["reservedFor"] = json!([]);
    fixture.put_status("p-cat", &status).await;
    status["deallocationRequested"] = json!(true);
    fixture.put_status("p-cat", &status).await;
    let claim = fixture
        .until_claim("p-cat", |claim| is_null(&claim["metadata"]["finalizers"]))
        .await;
    for field in ["allocation", "driverName", "deallocationRequested"] {
        assert!(is_null(&claim["status"][field]), "{claim}");
    }
    assert_eq!(fixture.hardware.count(), 0);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v1alpha1_claims_are_allocated_and_deallocated() {
    allocates_for_the_selected_node(26).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v1alpha2_claims_are_allocated_and_deallocated() {
    allocates_for_the_selected_node(30).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn immediate_claims_need_no_pod() {
    let fixture = Fixture::start(27).await;
    let controller = fixture.controller();
    fixture.claim("now", "", "Immediate").await;
    fixture.claim("later", "", "WaitForFirstConsumer").await;
    let claim = fixture
        .until_claim("now", |claim| !is_null(&claim["status"]["allocation"]))
        .await;
    assert!(is_null(&claim["status"]["reservedFor"]));
    fixture.delete("resourceclaims", "now").await;
    fixture.until_claim("now", is_null).await;
    assert_eq!(fixture.hardware.count(), 0);
    assert!(is_null(
        &fixture.get_claim("later").await["status"]["allocation"]
    ));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_immediate_claim_waits_for_its_class() {
    let fixture = Fixture::start(27).await;
    let controller = fixture.controller();
    let claim = json!({"spec": {"resourceClassName": "new", "allocationMode": "Immediate"}});
    fixture.create("resourceclaims", "c", claim).await;
    fixture
        .until_event("resourceclass.resource.k8s.io \"new\" not found")
        .await;
    fixture
        .create("resourceclasses", "new", json!({"driverName": DRIVER}))
        .await;
    fixture
        .until_claim("c", |claim| !is_null(&claim["status"]["allocation"]))
        .await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_says_where_it_can_not() {
    let fixture = Fixture::start(27).await;
    fixture.hardware.refuse("n2");
    let controller = fixture.controller();
    fixture.pod("p", &["cat", "dog"]).await;
    fixture.claim("p-cat", "p", "WaitForFirstConsumer").await;
    let dog = json!({"metadata": {"ownerReferences": fixture.owner("p").await},
        "spec": {"resourceClassName": "dogs"}});
    fixture
        .create(
            "resourceclasses",
            "dogs",
            json!({"driverName": "dogs.example.com"}),
        )
        .await;
    fixture.create("resourceclaims", "p-dog", dog).await;
    fixture
        .negotiate("p", json!({"potentialNodes": ["n1", "n2", "n3"]}))
        .await;
    let answered = |it: &serde_json::Value| !is_null(&it["status"]["resourceClaims"]);
    let negotiation = fixture.until("podschedulingcontexts", "p", answered).await;
    // Nothing about the claim of the other driver.
    let expected = json!([{"name": "cat", "unsuitableNodes": ["n2"]}]);
    assert_eq!(negotiation["status"]["resourceClaims"], expected);
    // An unsuitable node is not allocated for, even if it is selected. It was not in the potential nodes before.
    fixture.hardware.refuse("n4");
    fixture
        .patch(
            "podschedulingcontexts",
            "p",
            json!({"spec": {"selectedNode": "n4"}}),
        )
        .await;
    fixture.hardware.until_asked("n4").await;
    assert!(is_null(
        &fixture.get_claim("p-cat").await["status"]["allocation"]
    ));
    fixture
        .patch(
            "podschedulingcontexts",
            "p",
            json!({"spec": {"selectedNode": "n3"}}),
        )
        .await;
    fixture
        .until_claim("p-cat", |claim| !is_null(&claim["status"]["allocation"]))
        .await;
    assert!(is_null(
        &fixture.get_claim("p-dog").await["status"]["allocation"]
    ));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_deleted_while_it_is_allocated_leaves_nothing() {
    let fixture = Fixture::start(27).await;
    let hold = fixture.hardware.hold().await;
    let controller = fixture.controller();
    fixture.pod("p", &["cat"]).await;
    fixture.claim("p-cat", "p", "WaitForFirstConsumer").await;
    fixture.negotiate("p", json!({"selectedNode": "n1"})).await;
    fixture
        .until_claim("p-cat", |claim| !is_null(&claim["metadata"]["finalizers"]))
        .await;
    fixture.delete("resourceclaims", "p-cat").await;
    drop(hold);
    fixture.until_claim("p-cat", is_null).await;
    assert_eq!(fixture.hardware.count(), 0);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wherever_the_controller_is_killed_the_next_one_goes_on() {
    // Three writes lead to an allocation and its end each: finalizer, status; status, finalizer.
    for write in 0..4 {
        for after in [false, true] {
            let fixture = Fixture::start(27).await;
            let mut killed = fixture.killed_at(write, after);
            fixture.pod("p", &["cat"]).await;
            fixture.claim("p-cat", "p", "WaitForFirstConsumer").await;
            fixture.negotiate("p", json!({"selectedNode": "n1"})).await;
            if write < 2 {
                killed.ended().await;
            }
            let next = (write < 2).then(|| fixture.controller());
            let claim = fixture
                .until_claim("p-cat", |claim| !is_null(&claim["status"]["allocation"]))
                .await;
            assert_eq!(claim["metadata"]["finalizers"], json!([FINALIZER]));
            assert_eq!(
                claim["status"]["reservedFor"].as_array().map(Vec::len),
                Some(1)
            );
            assert_eq!(fixture.hardware.count(), 1);
            let mut status = claim["status"].clone();
            status["reservedFor"] = json!([]);
            fixture.delete("pods", "p").await;
            fixture.put_status("p-cat", &status).await;
            fixture.delete("resourceclaims", "p-cat").await;
            let next = match next {
                Some(next) => next,
                None => {
                    killed.ended().await;
                    fixture.controller()
                }
            };
            fixture.until_claim("p-cat", is_null).await;
            assert_eq!(
                fixture.hardware.count(),
                0,
                "killed at write {write}, after it: {after}"
            );
            next.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_the_newer_form_are_left_alone() {
    let fixture = Fixture::start(36).await;
    let spec =
        json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "cats"}}]}});
    fixture
        .post(
            "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "p-cat"}, "spec": spec}),
        )
        .await;
    let controller = fixture.controller();
    fixture.pod("p", &["cat", "old"]).await;
    fixture.claim("p-old", "p", "WaitForFirstConsumer").await;
    fixture.negotiate("p", json!({"selectedNode": "n1"})).await;
    fixture
        .until_claim("p-old", |claim| !is_null(&claim["status"]["allocation"]))
        .await;
    assert_eq!(fixture.hardware.count(), 1);
    controller.stop().await;
}

#[tokio::test]
async fn an_api_server_without_the_kinds_is_refused_with_advice() {
    let fixture = Fixture::bare(36, "").await;
    let controller = Controller::new(DRIVER, fixture.hardware.driver(), fixture.client.clone());
    let error = controller
        .run(Default::default())
        .await
        .expect_err("nothing there");
    assert!(
        error
            .to_string()
            .contains("--runtime-config=resource.k8s.io/v1alpha2=true"),
        "{error}"
    );
}

#[tokio::test]
async fn a_queue_has_the_metrics_of_client_go() {
    let queue = queue::new();
    queue.add("a");
    queue.add("b");
    assert_eq!(queue.next().await.0, "a");
    queue.retry("a");
    let metrics = queue::metrics(&queue, "q");
    for line in [
        "workqueue_adds_total{name=\"q\"} 2\n",
        "workqueue_retries_total{name=\"q\"} 1\n",
        "workqueue_depth{name=\"q\"} 1\n",
        "workqueue_unfinished_work{name=\"q\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[test]
fn an_allocation_of_v1alpha1_has_room_for_one_handle() {
    let two = Allocation {
        handles: vec![ResourceHandle::default(), ResourceHandle::default()],
        ..Allocation::default()
    };
    assert!(two.to_wire("d", true).is_err());
    let other = Allocation::opaque("other", "data");
    assert!(other.to_wire("d", true).is_err());
    assert_eq!(
        other.to_wire("d", false),
        Ok(json!({"resourceHandles": [{"driverName": "other", "data": "data"}]}))
    );
}
