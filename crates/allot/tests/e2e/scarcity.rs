//! More pods than devices.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams};

use super::harness::{PATIENCE, Up};

pub(super) fn unschedulable(pod: Option<&Pod>) -> bool {
    let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ninth_pod_waits_for_one_of_eight_gpus_and_says_why() {
    let up = Up::in_memory().await;
    let pod = up.eight_gpu_pods().await;
    let mut seen = Vec::new();
    for index in 0..8 {
        seen.extend(up.gpus(&format!("pod-{index}"), "ctr").await);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 8, "eight different GPUs: {seen:?}");

    up.create(&pod.replace("name: example-claim", "name: ninth"))
        .await;
    up.wait_until("ninth", "become unschedulable", unschedulable)
        .await;
    let events: Api<Event> = Api::default_namespaced(up.client.clone());
    let of_ninth =
        ListParams::default().fields("involvedObject.name=ninth,reason=FailedScheduling");
    // The event is written beside the condition.
    let written = async {
        loop {
            let listed = events.list(&of_ninth).await.expect("events").items;
            if let Some(event) = listed.into_iter().next() {
                break event.message.expect("a message");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let message = tokio::time::timeout(PATIENCE, written)
        .await
        .expect("an event");
    assert!(
        message.starts_with("0/1 nodes are available: 1 cannot allocate all claims"),
        "{message}"
    );
    assert!(
        message.contains("8 seen, 0 not in use"),
        "says why: {message}"
    );

    up.pods()
        .delete("pod-3", &DeleteParams::default())
        .await
        .expect("deleted");
    up.running("ninth").await;
}
