//! Pods that run together or not at all.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind};
use kube::runtime::wait::await_condition;
use serde_json::Value;

use super::harness::{PATIENCE, Up};

/// A group of which three pods run together, and its pods with so many of the eight GPUs each.
fn gang(gpus: usize) -> (String, String) {
    let group = "apiVersion: scheduling.k8s.io/v1alpha2\nkind: PodGroup\nmetadata: {name: train}\n\
        spec: {schedulingPolicy: {gang: {minCount: 3}}}\n";
    let mut pods = format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {{name: gpus-{gpus}}}\n\
        spec: {{spec: {{devices: {{requests: [{{name: gpus, exactly: \
        {{deviceClassName: gpu.example.com, allocationMode: ExactCount, count: {gpus}}}}}]}}}}}}\n"
    );
    for n in 0..3 {
        pods += &format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: worker-{n}}}\nspec:\n  \
            schedulingGroup: {{podGroupName: train}}\n  \
            containers: [{{name: c, image: none, command: [sleep, \"1000\"], resources: {{claims: [{{name: g}}]}}}}]\n  \
            resourceClaims: [{{name: g, resourceClaimTemplateName: gpus-{gpus}}}]\n"
        );
    }
    (group.to_owned(), pods)
}

/// Waits until the condition `PodGroupScheduled` has a status; returns its reason and message.
async fn wait_for_condition(up: &Up, status: &'static str) -> (String, String) {
    let kind = GroupVersionKind::gvk("scheduling.k8s.io", "v1alpha2", "PodGroup");
    let resource = ApiResource::from_gvk_with_plural(&kind, "podgroups");
    let groups: Api<DynamicObject> = Api::default_namespaced_with(up.client.clone(), &resource);
    let condition = |group: &DynamicObject| -> Option<Value> {
        let conditions = group.data["status"]["conditions"].as_array()?;
        conditions
            .iter()
            .find(|c| c["type"] == "PodGroupScheduled")
            .cloned()
    };
    let is_told = move |group: Option<&DynamicObject>| {
        group
            .and_then(condition)
            .is_some_and(|c| c["status"] == status)
    };
    let waited = tokio::time::timeout(PATIENCE, await_condition(groups, "train", is_told)).await;
    let group = waited.expect("in time").expect("a watch").expect("a group");
    let condition = condition(&group).expect("a condition");
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("message"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_runs_as_soon_as_all_of_it_fits() {
    let up = Up::in_memory_with(&[
        "--feature-gates=GenericWorkload=true,GangScheduling=true",
        "--nodes=2",
        "--runtime=simulated",
    ])
    .await;
    let (group, pods) = gang(6);
    up.create(&group).await;
    up.create(&pods).await;
    let (reason, message) = wait_for_condition(&up, "False").await;
    assert_eq!(reason, "Unschedulable");
    let why =
        "pod group is unschedulable (minCount 3, 2 fit, worker-2 does not: 0/2 nodes are available";
    assert!(message.starts_with(why), "{message}");
    // Two of them would fit, and hold nothing.
    let waits = |pod: Option<&Pod>| {
        let status = pod.and_then(|p| p.status.as_ref());
        let mut conditions = status.iter().flat_map(|s| s.conditions.iter().flatten());
        conditions.any(|c| {
            let message = c.message.as_deref().unwrap_or_default();
            message.starts_with("waiting for minCount pods from a gang to be scheduled")
        })
    };
    for pod in ["worker-0", "worker-1"] {
        up.wait_until(pod, "wait for the third", waits).await;
    }
    for n in 0..3 {
        let name = format!("worker-{n}");
        let now = DeleteParams::default().grace_period(0);
        up.pods().delete(&name, &now).await.expect("deleted");
        up.wait_until(&name, "go", |pod: Option<&Pod>| pod.is_none())
            .await;
    }
    up.create(&gang(4).1).await;
    for n in 0..3 {
        up.running(&format!("worker-{n}")).await;
    }
    assert_eq!(wait_for_condition(&up, "True").await.0, "Scheduled");
}
