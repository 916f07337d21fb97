//! Items of the seeds that are about one component: the scheduler's plugin (2, 36), what it does when it gets no further
//! (11), pods that go around it (14, 33), the driver's two parts (15), the container runtime (16), the script that starts
//! a cluster (17), monitoring (32, 46), many pods at a time (42, 44).

use allot_protos::podresources_v1::ListPodResourcesRequest;
use allot_protos::podresources_v1::pod_resources_lister_client::PodResourcesListerClient;

use super::harness::{Cluster, pod_for_cat, pod_with_cat};

const NO_DRIVER: &str = "--emulated-version 1.26 --dra --driver none";

/// A scheduler with two profiles, one of which has no plugin for claims.
const PROFILES: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: without
  plugins: {multiPoint: {disabled: [{name: DynamicResources}]}}
";

/// The default profile allocates a pod's claim; the one without the plugin binds the pod and leaves the claim alone.
fn the_plugin_is_in_the_default_profile(release: &str, version: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("scheduler.yaml");
    std::fs::write(&config, PROFILES).expect("written");
    let flags = format!(
        "--emulated-version {release} --dra --driver test --scheduler-config {}",
        config.display()
    );
    let Some(cluster) = Cluster::up(&flags) else {
        return;
    };
    cluster.ok(&format!("create -f classic/{release}/resourceclass.yaml"));
    let without = pod_with_cat(version, "unplugged", "schedulerName: without");
    assert!(cluster.create(&without).success);
    cluster.ok("wait --for=condition=PodScheduled pod/unplugged --timeout=120s");
    assert_eq!(cluster.rows("get resourceclaim cat")[1][3], "pending");
    cluster.ok("delete pod unplugged --grace-period=0 --force");
    assert!(cluster.create(&pod_for_cat("plugged", "")).success);
    cluster.ready("plugged");
    assert_eq!(
        cluster.rows("get resourceclaim cat")[1][3],
        "allocated,reserved"
    );
}

#[test]
fn seed_003_item_02_the_plugin_is_in_the_default_profile_and_another_may_lack_it() {
    the_plugin_is_in_the_default_profile("1.26", "v1alpha1");
}

#[test]
fn seed_004_item_36_the_plugin_is_on_by_default_in_the_configuration_of_v1() {
    the_plugin_is_in_the_default_profile("1.27", "v1alpha2");
}

#[test]
fn seed_003_item_11_a_claim_on_the_wrong_node_is_deallocated_and_tried_on_another() {
    let Some(cluster) = Cluster::up(&format!("{NO_DRIVER} --nodes 2")) else {
        return;
    };
    cluster.ok("create -f classic/1.26/resourceclass.yaml");
    let resources = cluster.file("resources.json", r#"{"NodeLocal": true}"#);
    let _controller = cluster.allot(&[
        "driver",
        "test",
        "controller",
        "--resource-config",
        &resources,
    ]);
    let on = |node: &str| format!("nodeSelector: {{kubernetes.io/hostname: {node}}}");
    let usable = "get resourceclaim cat -o jsonpath={.status.allocation.availableOnNodes.nodeSelectorTerms[*].matchExpressions[*].values[*]}";

    assert!(
        cluster
            .create(&pod_with_cat("v1alpha1", "first", &on("node-0")))
            .success
    );
    cluster.ok("wait --for=condition=PodScheduled pod/first --timeout=120s");
    assert_eq!(cluster.ok(usable), "node-0");
    // Not `get resourceclaim cat -w`: of one object kubectl drops the first event, which may be the one.
    let watch = cluster.follow("get resourceclaim -w --no-headers");
    cluster.ok("delete pod first --grace-period=0 --force");
    // Up to 1.27 a claim stays allocated after its last use.
    std::iter::repeat_with(|| watch.next())
        .find(|row| row[3] == "allocated")
        .expect("endless");

    assert!(
        cluster
            .create(&pod_for_cat("second", &on("node-1")))
            .success
    );
    cluster.ok("wait --for=condition=PodScheduled pod/second --timeout=120s");
    assert_eq!(cluster.ok(usable), "node-1");
}

/// The node does not start a pod whose claim is not allocated, and an event says why.
fn placed_by_hand(release: &str, version: &str) {
    let flags = format!("--emulated-version {release} --dra --driver test");
    let Some(cluster) = Cluster::up(&flags) else {
        return;
    };
    cluster.ok(&format!("create -f classic/{release}/resourceclass.yaml"));
    let events = cluster.follow("get events -w --no-headers");
    let pod = pod_with_cat(version, "placed", "nodeName: node-0");
    assert!(cluster.create(&pod).success);
    let refused = std::iter::repeat_with(|| events.next().join(" "))
        .find(|event| {
            event.contains("pod/placed") && event.contains("FailedPrepareDynamicResources")
        })
        .expect("endless");
    assert!(refused.contains("resource claim"), "{refused}");
    assert_eq!(
        cluster.ok("get pod placed -o jsonpath={.status.phase}"),
        "Pending"
    );
    assert_eq!(cluster.rows("get resourceclaim cat")[1][3], "pending");
}

#[test]
fn seed_003_item_14_a_pod_that_went_around_the_scheduler_does_not_start() {
    placed_by_hand("1.26", "v1alpha1");
}

#[test]
fn seed_004_item_33_a_pod_that_went_around_the_scheduler_does_not_start() {
    placed_by_hand("1.27", "v1alpha2");
}

#[test]
fn seed_003_item_16_the_container_runtime_applies_cdi_files() {
    let Some(cluster) = Cluster::up("--emulated-version 1.26 --dra --driver test") else {
        return;
    };
    cluster.ok("create -f classic/1.26/resourceclass.yaml");
    let parameters = "
apiVersion: v1
kind: ConfigMap
metadata: {name: cat}
data: {color: black}
---";
    let pod = pod_with_cat("v1alpha1", "with-cat", "").replace(
        "{resourceClassName: example}",
        "{resourceClassName: example, parametersRef: {kind: ConfigMap, name: cat}}",
    );
    assert!(cluster.create(&format!("{parameters}{pod}")).success);
    cluster.ready("with-cat");
    let files = std::fs::read_dir(cluster.directory().join("nodes/node-0/cdi"));
    let specs: Vec<String> = files
        .expect("the driver's directory")
        .map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("text"))
        .collect();
    let [spec] = &specs[..] else {
        panic!("one claim, one file: {specs:?}");
    };
    assert!(
        spec.contains("cdiVersion") && spec.contains("user_color=black"),
        "{spec}"
    );
    let environment = cluster.ok("exec with-cat -- printenv");
    assert!(environment.contains("user_color=black\n"), "{environment}");
}

#[test]
fn seed_003_item_17_one_command_starts_a_cluster_with_the_script_s_switches() {
    // RUNTIME_CONFIG, FEATURE_GATES and LOG_LEVEL of the printed command.
    let flags = "--emulated-version 1.26 --runtime-config=resource.k8s.io/v1alpha1=true \
                 --feature-gates=DynamicResourceAllocation=true -v=2";
    let Some(cluster) = Cluster::up(flags) else {
        return;
    };
    assert_eq!(cluster.ok("get resourceclasses"), "");
    assert_eq!(cluster.ok("auth can-i * *"), "yes\n");
    assert_eq!(cluster.rows("get nodes")[1][..2], ["node-0", "Ready"]);
}

#[test]
fn seed_003_item_15_a_driver_is_a_controller_and_a_plugin_on_each_node() {
    let Some(cluster) = Cluster::up(NO_DRIVER) else {
        return;
    };
    cluster.ok("create -f classic/1.26/resourceclass.yaml");
    cluster.ok("create -f classic/1.26/pod-inline.yaml");
    let _controller = cluster.allot(&["driver", "test", "controller"]);
    cluster.ok("wait --for=condition=PodScheduled pod/test-inline-claim --timeout=120s");
    // Allocated by the one, it waits for the other.
    let node = cluster.directory().join("nodes/node-0");
    let node = node.to_str().expect("UTF-8");
    assert_eq!(
        cluster.ok("get pod test-inline-claim -o jsonpath={.status.phase}"),
        "Pending"
    );
    let _plugin = cluster.allot(&[
        "driver",
        "test",
        "kubelet-plugin",
        "--kubelet-dir",
        node,
        "--node-name",
        "node-0",
    ]);
    cluster.completed("test-inline-claim");
}

#[test]
fn seed_004_item_32_46_monitoring_agents_learn_the_claims_of_running_pods() {
    let Some(cluster) = Cluster::up("--emulated-version 1.27 --dra --driver test") else {
        return;
    };
    cluster.ok("create -f classic/1.27/resourceclass.yaml");
    assert!(
        cluster
            .create(&pod_with_cat("v1alpha2", "watched", ""))
            .success
    );
    cluster.ready("watched");
    let socket = cluster
        .directory()
        .join("nodes/node-0/pod-resources/kubelet.sock");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let list = runtime.block_on(async {
        let channel = allot_protos::transport::connect(&socket).await?;
        let mut lister = PodResourcesListerClient::new(channel);
        let answer = lister.list(ListPodResourcesRequest {}).await?;
        anyhow::Ok(answer.into_inner().pod_resources)
    });
    let pods = list.expect("the node answers");
    let [pod] = &pods[..] else {
        panic!("one pod: {pods:?}");
    };
    let claims = &pod.containers[0].dynamic_resources;
    assert_eq!(
        (pod.name.as_str(), claims[0].claim_name.as_str()),
        ("watched", "cat")
    );
}

#[test]
fn seed_001_item_42_a_negotiation_that_gets_no_answer_holds_up_no_other_pod() {
    let Some(cluster) = Cluster::up("--emulated-version 1.30 --dra --driver none") else {
        return;
    };
    cluster.ok("create -f classic/1.30/resourceclass.yaml");
    assert!(
        cluster
            .create(&pod_with_cat("v1alpha2", "waiting", ""))
            .success
    );
    cluster.ok("wait --for=create podschedulingcontext/waiting --timeout=120s");
    cluster.ok("run plain --image=busybox --command -- sleep 9999");
    cluster.ready("plain");
    assert_eq!(
        cluster.ok("get pod waiting -o jsonpath={.spec.nodeName}"),
        ""
    );
}

#[test]
fn seed_001_item_44_many_pods_at_once_never_get_the_same_instance() {
    let flags =
        "--emulated-version 1.30 --dra --driver test --drivername resource-driver.example.com";
    let Some(cluster) = Cluster::up(flags) else {
        return;
    };
    cluster.ok("create -f classic/1.30/structured-class-of-cats.yaml");
    let template = "
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaimTemplate
metadata: {name: cat}
spec: {spec: {resourceClassName: resource.example.com}}
---
";
    let deployment = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: cats}
spec:
  replicas: 8
  selector: {matchLabels: {app: cats}}
  template:
    metadata: {labels: {app: cats}}
    spec:
      containers:
      - {name: c, image: busybox, command: [sleep, '9999'], resources: {claims: [{name: cat}]}}
      resourceClaims: [{name: cat, source: {resourceClaimTemplateName: cat}}]
";
    assert!(cluster.create(&format!("{template}{deployment}")).success);
    cluster.ok("rollout status deployment/cats --timeout=120s");
    let instances = cluster.ok(
        "get resourceclaims -o jsonpath={.items[*].status.allocation.resourceHandles[0].structuredData.results[0].namedResources.name}",
    );
    let mut instances: Vec<_> = instances.split(' ').collect();
    instances.sort_unstable();
    instances.dedup();
    assert_eq!(instances.len(), 8, "{instances:?}");
}
