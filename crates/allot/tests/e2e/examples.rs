//! Every manifest of `examples/` does what its first lines say.

use std::process::Command;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{AttachParams, DeleteParams, ListParams, LogParams};
use kube::runtime::wait::{await_condition, conditions};

use super::harness::{ALLOT, PATIENCE, Up, example};

/// Starts a cluster in memory and creates what examples hold.
async fn with(files: &[&str]) -> Up {
    let up = Up::in_memory().await;
    for file in files {
        up.create(&example(file)).await;
    }
    up
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_the_gpu_of_its_template_and_gives_it_back() {
    let up = with(&[
        "example_resourceclaimtemplate.yaml",
        "example_claim_po.yaml",
    ])
    .await;
    up.running("example-claim").await;
    let claims: Api<ResourceClaim> = Api::default_namespaced(up.client.clone());
    let listed = claims
        .list(&ListParams::default())
        .await
        .expect("claims")
        .items;
    let [claim] = listed.as_slice() else {
        panic!("one claim, not {listed:#?}");
    };
    let name = claim.metadata.name.clone().expect("a name");
    assert!(name.starts_with("example-claim-example-"), "{name}");
    assert_eq!(
        claim.metadata.owner_references.as_ref().map(Vec::len),
        Some(1)
    );

    let seen = up.gpus("example-claim", "ctr").await;
    let status = claim.status.clone().expect("allocated");
    let result = &status
        .allocation
        .expect("allocated")
        .devices
        .expect("devices")
        .results
        .expect("results")[0];
    assert_eq!(seen.as_slice(), std::slice::from_ref(&result.device));
    // The pod runs when its program begins; what it prints comes later.
    allot_testing::wait::until("the device is logged", || async {
        let pods = up.pods();
        let log = pods.logs("example-claim", &LogParams::default()).await;
        let log = log.expect("log");
        log.contains(&result.device).then_some(()).ok_or(log)
    })
    .await;

    up.pods()
        .delete("example-claim", &DeleteParams::default())
        .await
        .expect("deleted");
    let uid = claim.metadata.uid.clone().expect("a uid");
    let gone = await_condition(claims, &name, conditions::is_deleted(&uid));
    tokio::time::timeout(PATIENCE, gone)
        .await
        .expect("in time")
        .expect("gone");
}

/// The driver asked for slices of v1 to v1beta1 only, and 1.31 was never ready.
#[tokio::test(flavor = "multi_thread")]
async fn regression_the_first_release_with_devices_has_a_driver() {
    let up = Up::in_memory_with(&["--emulated-version=1.31", "--dra"]).await;
    let template = example("1.32/example_resourceclaimtemplate.yaml");
    up.create(&template.replace("v1beta1", "v1alpha3")).await;
    up.create(&example("example_claim_po.yaml")).await;
    up.running("example-claim").await;
    assert_eq!(up.gpus("example-claim", "ctr").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_a_pod_share_a_time_sliced_gpu() {
    let up = with(&["shared-by-containers.yaml"]).await;
    up.running("shared-by-containers").await;
    let first = up.gpus("shared-by-containers", "ctr0").await;
    assert_eq!(first.len(), 1);
    assert_eq!(first, up.gpus("shared-by-containers", "ctr1").await);
    let environment = up.exec("shared-by-containers", "ctr0", &["printenv"]).await;
    assert!(
        environment.contains("_SHARING_STRATEGY=TimeSlicing"),
        "{environment}"
    );
    assert!(
        environment.contains("_TIMESLICE_INTERVAL=Long"),
        "{environment}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_share_a_claim_and_the_last_one_releases_it() {
    let up = with(&["shared-by-pods.yaml"]).await;
    up.running("shared-by-pods-0").await;
    up.running("shared-by-pods-1").await;
    let gpu = up.gpus("shared-by-pods-0", "ctr").await;
    assert_eq!(gpu, up.gpus("shared-by-pods-1", "ctr").await);

    let claims: Api<ResourceClaim> = Api::default_namespaced(up.client.clone());
    for (pod, left) in [("shared-by-pods-0", 1), ("shared-by-pods-1", 0)] {
        up.pods()
            .delete(pod, &DeleteParams::default())
            .await
            .expect("deleted");
        let reserved = move |claim: Option<&ResourceClaim>| {
            let status = claim.and_then(|claim| claim.status.as_ref());
            let users = status.and_then(|status| status.reserved_for.as_ref());
            users.map_or(0, Vec::len) == left
        };
        let released = await_condition(claims.clone(), "one-gpu", reserved);
        tokio::time::timeout(PATIENCE, released)
            .await
            .expect("in time")
            .expect("watch");
    }
    let free = |claim: Option<&ResourceClaim>| {
        claim.is_some_and(|claim| {
            claim
                .status
                .as_ref()
                .is_none_or(|status| status.allocation.is_none())
        })
    };
    let freed = await_condition(claims, "one-gpu", free);
    tokio::time::timeout(PATIENCE, freed)
        .await
        .expect("in time")
        .expect("watch");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_container_sees_the_device_of_its_request() {
    let up = with(&["two-requests.yaml"]).await;
    up.running("two-requests").await;
    let first = up.gpus("two-requests", "ctr0").await;
    let second = up.gpus("two-requests", "ctr1").await;
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first, second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_reads_which_device_it_has() {
    let up = with(&["device-metadata.yaml"]).await;
    let ended = |pod: Option<&Pod>| {
        let phase = pod
            .and_then(|pod| pod.status.as_ref())
            .and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let ended = await_condition(up.pods(), "device-metadata", ended);
    tokio::time::timeout(PATIENCE, ended)
        .await
        .expect("in time")
        .expect("watch");
    let log = up
        .pods()
        .logs("device-metadata", &LogParams::default())
        .await
        .expect("a log");
    let mut objects = serde_json::Deserializer::from_str(&log).into_iter::<serde_json::Value>();
    let newest = objects.next().expect("an object").expect("JSON");
    assert_eq!(newest["apiVersion"], "metadata.resource.k8s.io/v1beta1");
    assert_eq!(newest["podClaimName"], "my-gpu");
    let device = &newest["requests"][0]["devices"][0];
    assert_eq!(device["name"], "gpu-0");
    assert_eq!(device["attributes"]["index"], serde_json::json!({"int": 0}));
    let older = objects.next().expect("an object").expect("JSON");
    assert_eq!(older["apiVersion"], "metadata.resource.k8s.io/v1alpha1");
    assert_eq!(older["requests"], newest["requests"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expression_picks_the_device() {
    let up = with(&["cel-selector.yaml"]).await;
    up.running("cel-selector").await;
    assert_eq!(up.gpus("cel-selector", "ctr").await, ["gpu-5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_get_a_device_each() {
    let up = with(&["deployment.yaml"]).await;
    let deployments: Api<Deployment> = Api::default_namespaced(up.client.clone());
    let available = |deployment: Option<&Deployment>| {
        let status = deployment.and_then(|deployment| deployment.status.as_ref());
        status.and_then(|status| status.available_replicas) == Some(2)
    };
    let available = await_condition(deployments, "gpu-workers", available);
    tokio::time::timeout(PATIENCE, available)
        .await
        .expect("in time")
        .expect("watch");
    let pods = up
        .pods()
        .list(&ListParams::default().labels("app=gpu-workers"))
        .await
        .expect("pods");
    let mut seen = Vec::new();
    for pod in pods.items {
        seen.extend(up.gpus(&pod.metadata.name.expect("a name"), "worker").await);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 2, "two different GPUs: {seen:?}");
}

/// Whether a process of this machine has the argument.
fn is_running(argument: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.into_iter().any(|line| {
        line.split(|byte| *byte == 0)
            .any(|it| it == argument.as_bytes())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn regression_a_cluster_in_memory_leaves_no_container_behind() {
    // No other process sleeps for just as long.
    let seconds = format!("8640{}", std::process::id());
    let up = Up::in_memory().await;
    up.create(&format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: sleeper}}
spec:
  containers: [{{name: c, image: none, command: [sleep, '{seconds}']}}]
"
    ))
    .await;
    up.running("sleeper").await;
    // Until it has executed the program, its process has the arguments of the shim.
    allot_testing::wait::until_true("it sleeps", || is_running(&seconds)).await;
    assert!(up.stop());
    assert!(!is_running(&seconds));
}

/// A container kept the pipes open that `allot up` was started with: a script that waited for their end waited for it.
#[tokio::test(flavor = "multi_thread")]
async fn regression_containers_inherit_nothing_of_the_shell() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 7< /dev/null; exec \"$0\" \"$@\"", ALLOT]);
    let up = Up::launch_by(shell, &["--in-memory"]).await;
    up.create(
        "
apiVersion: v1
kind: Pod
metadata: {name: open-files}
spec:
  restartPolicy: Never
  containers: [{name: c, image: none, command: [sh, -c, 'test ! -e /proc/self/fd/7']}]
",
    )
    .await;
    up.wait_until("open-files", "ends well", succeeded).await;
}

fn succeeded(pod: Option<&Pod>) -> bool {
    let status = pod.and_then(|pod| pod.status.as_ref());
    status.and_then(|status| status.phase.as_deref()) == Some("Succeeded")
}

/// Programs such as tmux and gpg want to know the name of their terminal; it was one of the host's, "not a tty" inside.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_terminal_has_a_name_in_its_container() {
    let files = [
        "example_resourceclaimtemplate.yaml",
        "example_claim_po.yaml",
    ];
    let up = with(&files).await;
    up.running("example-claim").await;
    let terminal = AttachParams::interactive_tty();
    let name = up.exec_with(terminal, "example-claim", &["tty"]).await;
    assert!(name.starts_with("/dev/pts/"), "{name:?}");
    // For a container's first program as well, also for an unprivileged user.
    up.create(
        "
apiVersion: v1
kind: Pod
metadata: {name: terminal}
spec:
  restartPolicy: Never
  containers:
  - {name: c, image: none, tty: true, command: [sh, -c, 'tty && echo hello > $(tty)'], securityContext: {runAsUser: 1234}}
",
    )
    .await;
    up.wait_until("terminal", "ends well", succeeded).await;
    let log = up
        .pods()
        .logs("terminal", &LogParams::default())
        .await
        .expect("log");
    assert_eq!(log, "/dev/pts/0\r\nhello\r\n");
}
