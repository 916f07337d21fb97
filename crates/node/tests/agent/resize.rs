//! Resizes of running pods.

use std::path::Path;

use allot_testing::wait::until_true;
use http::Method;
use serde_json::{Value, json};

use super::complete::{app, start};
use super::harness::{Cluster, pod_path, shell, status, with};

/// Requests other resources for the first container of a pod.
pub(super) async fn resize(
    cluster: &Cluster,
    pod: &str,
    resources: Value,
) -> Result<Value, kube::Error> {
    let now = cluster.get(&pod_path(pod)).await;
    let mut containers = now["spec"]["containers"].clone();
    containers[0]["resources"] = resources;
    let patch = json!({"spec": {"containers": containers}});
    let path = format!("{}/resize", pod_path(pod));
    cluster.call(Method::PATCH, &path, Some(patch)).await
}

fn resources(request: (&str, &str), limit: (&str, &str)) -> Value {
    json!({"requests": {"cpu": request.0, "memory": request.1}, "limits": {"cpu": limit.0, "memory": limit.1}})
}

fn condition<'a>(pod: &'a Value, kind: &str) -> &'a Value {
    let all = pod["status"]["conditions"].as_array();
    let found = all.into_iter().flatten().find(|it| it["type"] == kind);
    found.unwrap_or(&Value::Null)
}

/// Waits until the container `c` of a pod has these resources and the resize is complete.
pub(super) async fn wait_until_resized(cluster: &Cluster, pod: &str, wanted: &Value) -> Value {
    let has = |pod: &Value| {
        status(pod, "c")["resources"] == *wanted
            && status(pod, "c")["allocatedResources"] == wanted["requests"]
            && pod["status"]["observedGeneration"] == pod["metadata"]["generation"]
            && condition(pod, "PodResizePending").is_null()
            && condition(pod, "PodResizeInProgress").is_null()
    };
    cluster.wait_until(&pod_path(pod), "resized", has).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runtime_gives_a_container_other_resources_in_place() {
    let (fake, mut cluster, _directory) = start().await;
    let first = resources(("100m", "64Mi"), ("200m", "128Mi"));
    let own = app(json!({"resources": first, "securityContext": {"runAsUser": 7}}));
    cluster.pod("p", json!({"containers": [own]})).await;
    let pod = wait_until_resized(&cluster, "p", &first).await;
    let user = json!({"linux": {"uid": 7, "gid": 7, "supplementalGroups": [7]}});
    assert_eq!(status(&pod, "c")["user"], user);
    let id = fake.running("c").expect("a container");
    let given = || {
        let state = fake.state.lock().expect("a state");
        let resources = state.containers[&id].status.resources.clone();
        resources.and_then(|it| it.linux).expect("resources")
    };
    assert_eq!((given().cpu_quota, given().cpu_shares), (20_000, 102));

    let second = resources(("200m", "64Mi"), ("400m", "256Mi"));
    let asked = resize(&cluster, "p", second.clone()).await;
    assert_eq!(asked.expect("a resize")["metadata"]["generation"], 2);
    let pod = wait_until_resized(&cluster, "p", &second).await;
    assert_eq!(fake.running("c").as_ref(), Some(&id));
    assert_eq!(status(&pod, "c")["restartCount"], 0);
    let now = given();
    assert_eq!((now.cpu_quota, now.cpu_shares), (40_000, 204));
    assert_eq!(now.memory_limit_in_bytes, 256 << 20);
    let started = cluster.wait_for_event("p", "ResizeStarted").await;
    assert!(
        started.starts_with("Pod resize started: {\"containers\":[{\"name\":\"c\",\"resources\":{"),
        "{started}"
    );
    assert!(started.ends_with("\"generation\":2}"), "{started}");
    cluster.wait_for_event("p", "ResizeCompleted").await;

    // The container uses 65 MiB: with less it would be killed.
    let third = resources(("200m", "64Mi"), ("400m", "64Mi"));
    resize(&cluster, "p", third.clone())
        .await
        .expect("a resize");
    let failed = |pod: &Value| condition(pod, "PodResizeInProgress")["reason"] == "Error";
    let pod = cluster
        .wait_until(&pod_path("p"), "not resized", failed)
        .await;
    let progress = condition(&pod, "PodResizeInProgress");
    assert_eq!(
        progress["message"],
        "cannot decrease memory limits: attempting to set container \"c\" memory limit (67108864) below current usage (68157440)"
    );
    assert_eq!(progress["observedGeneration"], 3);
    assert_eq!(given().memory_limit_in_bytes, 256 << 20);
    assert_eq!(status(&pod, "c")["resources"], second);
    let event = cluster.wait_for_event("p", "ResizeError").await;
    assert!(
        event.contains("\"error\":\"cannot decrease memory limits"),
        "{event}"
    );

    // An error of the runtime is reported as well, also by the next agent.
    cluster.stop_agent().await;
    fake.state.lock().expect("a state").update_error = Some("no room".into());
    let fourth = resources(("200m", "64Mi"), ("400m", "96Mi"));
    resize(&cluster, "p", fourth.clone())
        .await
        .expect("a resize");
    cluster.start_agent().await;
    let refused = |pod: &Value| {
        let message = condition(pod, "PodResizeInProgress")["message"].to_string();
        message.contains("no room")
    };
    let pod = cluster.wait_until(&pod_path("p"), "refused", refused).await;
    assert_eq!(status(&pod, "c")["resources"], second);
    fake.state.lock().expect("a state").update_error = None;
    // A further resize does not wait for the next attempt of the one that failed.
    let fifth = resources(("200m", "64Mi"), ("400m", "128Mi"));
    resize(&cluster, "p", fifth.clone())
        .await
        .expect("a resize");
    wait_until_resized(&cluster, "p", &fifth).await;
    assert_eq!(given().memory_limit_in_bytes, 128 << 20);
    assert_eq!(fake.running("c").as_ref(), Some(&id));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_that_does_not_fit_waits_for_another_pod() {
    let (fake, mut cluster, _directory) = start().await;
    cluster.stop_agent().await;
    cluster.capacity = [("cpu".to_owned(), "2".to_owned())].into();
    cluster.start_agent().await;
    let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let own = |name: &str, cpu: &str| app(json!({"name": name, "resources": requests(cpu)}));
    let first = json!({"containers": [own("d", "1")]});
    cluster.pod("first", first).await;
    cluster.wait_for_phase("first", "Running").await;
    let second = json!({"containers": [own("c", "500m")]});
    cluster.pod("second", second).await;
    wait_until_resized(&cluster, "second", &requests("500m")).await;

    resize(&cluster, "second", requests("1500m"))
        .await
        .expect("a resize");
    let deferred = |pod: &Value| condition(pod, "PodResizePending")["reason"] == "Deferred";
    let pod = cluster
        .wait_until(&pod_path("second"), "deferred", deferred)
        .await;
    let pending = condition(&pod, "PodResizePending");
    let message =
        "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000";
    assert_eq!(pending["message"], message);
    assert_eq!(pending["observedGeneration"], 2);
    let event = cluster.wait_for_event("second", "ResizeDeferred").await;
    assert!(event.starts_with("Pod resize OutOfcpu: {"), "{event}");
    let has_first = |pod: &Value| {
        status(pod, "c")["allocatedResources"]["cpu"] == "500m"
            && status(pod, "c")["resources"] == requests("500m")
    };
    assert!(has_first(&pod), "{pod}");
    // What the node can never have is no matter of waiting.
    let refused = resize(&cluster, "second", requests("3")).await;
    let refused = refused.expect_err("a refusal").to_string();
    assert!(
        refused.contains("node didn't have enough allocatable resources"),
        "{refused}"
    );

    // The next agent knows what was granted, and what was not.
    cluster.stop_agent().await;
    cluster.start_agent().await;
    let id = fake.running("d").expect("a container");
    let pod = cluster.get(&pod_path("second")).await;
    assert!(has_first(&pod) && deferred(&pod), "{pod}");
    fake.state.lock().expect("a state").end(&id, 1, "Error");
    cluster
        .wait_until(&pod_path("first"), "restarted", |pod| {
            status(pod, "d")["restartCount"] == 1
        })
        .await;
    let pod = cluster.get(&pod_path("second")).await;
    assert!(has_first(&pod) && deferred(&pod), "{pod}");

    let force = format!("{}?gracePeriodSeconds=0", pod_path("first"));
    cluster.delete(&force).await;
    wait_until_resized(&cluster, "second", &requests("1500m")).await;
    until_true("the runtime is told", || {
        let state = fake.state.lock().expect("a state");
        let mut all = state.containers.values().filter_map(|it| {
            let linux = it.status.resources.as_ref()?.linux.as_ref()?;
            Some(linux.cpu_shares)
        });
        all.any(|shares| shares == 1536)
    })
    .await;
}

/// What is in force for the container `c` of a pod, by files that the versions of cgroups have.
fn in_force(pod: &Value, first: (&str, &str), second: &str) -> Option<String> {
    let id = status(pod, "c")["containerID"].as_str()?;
    let id = id.strip_prefix("process://")?;
    let root = Path::new("/sys/fs/cgroup");
    let uid = pod["metadata"]["uid"].as_str()?;
    let own = Path::new("allot").join(format!("pod{uid}")).join(id);
    let old = root.join(first.0).join(&own).join("processes");
    let files = [old.join(first.1), root.join(own).join(second)];
    let text = files
        .iter()
        .find_map(|file| std::fs::read_to_string(file).ok())?;
    Some(text.trim().to_owned())
}

fn memory(pod: &Value) -> Option<String> {
    in_force(pod, ("memory", "memory.limit_in_bytes"), "memory.max")
}

pub(super) async fn enforces_limits(cluster: &Cluster) -> bool {
    let node = cluster.get("/api/v1/nodes/n1").await;
    let conditions = node["status"]["conditions"].as_array().cloned();
    let mut conditions = conditions.unwrap_or_default().into_iter();
    conditions.any(|it| it["type"] == "ContainerLimits" && it["status"] == "True")
}

/// Where cgroups cannot be written, a resize is as any limit: it is accepted, and the Node says that it is not enforced.
#[tokio::test(flavor = "multi_thread")]
async fn the_kernel_gives_a_container_other_resources_in_place() {
    let mut cluster = Cluster::start().await;
    let first = resources(("100m", "32Mi"), ("200m", "64Mi"));
    let own = with(shell("sleep 1000"), "c", json!({"resources": first}));
    cluster.pod("p", json!({"containers": [own]})).await;
    let before = wait_until_resized(&cluster, "p", &first).await;
    let second = resources(("150m", "48Mi"), ("300m", "96Mi"));
    resize(&cluster, "p", second.clone())
        .await
        .expect("a resize");
    let after = wait_until_resized(&cluster, "p", &second).await;
    let id = |pod: &Value| status(pod, "c")["containerID"].clone();
    assert_eq!(id(&before), id(&after));
    assert_eq!(status(&after, "c")["restartCount"], 0);
    if !enforces_limits(&cluster).await {
        eprintln!("skipped: cgroups cannot be written here");
        return;
    }
    assert_eq!(memory(&after).as_deref(), Some("100663296"));
    let found = in_force(&after, ("cpu", "cpu.cfs_quota_us"), "cpu.max").expect("a quota");
    assert!(
        matches!(found.as_str(), "30000" | "30000 100000"),
        "{found}"
    );
    // Back again, and the next agent has nothing to do.
    resize(&cluster, "p", first.clone())
        .await
        .expect("a resize");
    let pod = wait_until_resized(&cluster, "p", &first).await;
    assert_eq!(memory(&pod).as_deref(), Some("67108864"));
    cluster.stop_agent().await;
    cluster.start_agent().await;
    let pod = wait_until_resized(&cluster, "p", &first).await;
    assert_eq!(id(&pod), id(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_restarted_for_resources_if_it_says_so() {
    let cluster = Cluster::start().await;
    let first = resources(("100m", "32Mi"), ("200m", "64Mi"));
    let policy = json!([{"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    let more = json!({"resources": first, "resizePolicy": policy});
    let script = "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done";
    let own = with(shell(script), "c", more);
    // Its program ends well, so that its own policy would not restart it.
    let spec = json!({"restartPolicy": "OnFailure", "terminationGracePeriodSeconds": 5, "containers": [own]});
    cluster.pod("p", spec).await;
    wait_until_resized(&cluster, "p", &first).await;
    cluster.wait_for_logs("p", &["c"]).await;
    let second = resources(("150m", "32Mi"), ("300m", "64Mi"));
    resize(&cluster, "p", second.clone())
        .await
        .expect("a resize");
    let pod = wait_until_resized(&cluster, "p", &second).await;
    assert_eq!(status(&pod, "c")["restartCount"], 0);
    let third = resources(("150m", "48Mi"), ("300m", "96Mi"));
    resize(&cluster, "p", third.clone())
        .await
        .expect("a resize");
    let pod = wait_until_resized(&cluster, "p", &third).await;
    let of = status(&pod, "c");
    assert_eq!(of["restartCount"], 1);
    assert_eq!(of["lastState"]["terminated"]["exitCode"], 0);
    assert!(of["state"]["running"].is_object(), "{of}");
    assert_eq!(pod["status"]["phase"], "Running");
    let killing = cluster.wait_for_event("p", "Killing").await;
    assert_eq!(killing, "Container c resize requires restart");
    if enforces_limits(&cluster).await {
        assert_eq!(memory(&pod).as_deref(), Some("100663296"));
    }
}

/// The program ends well while no agent runs, so that its own policy would not restart it.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_restart_for_a_resize_outlives_the_agent() {
    let mut cluster = Cluster::start().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().to_str().expect("a path");
    let first = resources(("100m", "32Mi"), ("200m", "64Mi"));
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    let more = json!({"resources": first, "resizePolicy": policy,
        "volumeMounts": [{"name": "v", "mountPath": path}]});
    let script = format!(
        "trap 'echo asked; until [ -e {path}/go ]; do sleep 0.05; done; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    );
    let own = with(shell(&script), "c", more);
    let spec = json!({"restartPolicy": "OnFailure", "terminationGracePeriodSeconds": 300, "containers": [own],
        "volumes": [{"name": "v", "hostPath": {"path": path}}]});
    cluster.pod("p", spec).await;
    let pod = wait_until_resized(&cluster, "p", &first).await;
    cluster.wait_for_logs("p", &["c"]).await;
    let second = resources(("100m", "48Mi"), ("200m", "96Mi"));
    resize(&cluster, "p", second.clone())
        .await
        .expect("a resize");
    until_true("the container is asked to terminate", || {
        cluster.log("p", "c", 0).contains("asked")
    })
    .await;
    cluster.stop_agent().await;
    std::fs::write(directory.path().join("go"), "").expect("a file");
    let id = status(&pod, "c")["containerID"].as_str().expect("an id");
    let id = id.strip_prefix("process://").expect("an id");
    let exit = cluster.root().join("containers").join(id).join("exit.json");
    until_true("the container has ended", || {
        std::fs::read(&exit).is_ok_and(|text| text.starts_with(b"{"))
    })
    .await;
    cluster.start_agent().await;
    let pod = wait_until_resized(&cluster, "p", &second).await;
    let of = status(&pod, "c");
    assert_eq!(of["restartCount"], 1);
    assert_eq!(of["lastState"]["terminated"]["exitCode"], 0);
    assert!(of["state"]["running"].is_object(), "{of}");
    assert_eq!(pod["status"]["phase"], "Running");
}

#[tokio::test(flavor = "multi_thread")]
async fn regression_a_damaged_record_of_resources_is_put_aside_and_the_pod_goes_on() {
    let (fake, mut cluster, _directory) = start().await;
    cluster.stop_agent().await;
    cluster.capacity = [("cpu".to_owned(), "2".to_owned())].into();
    cluster.start_agent().await;
    let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let own = |name: &str, cpu: &str| app(json!({"name": name, "resources": requests(cpu)}));
    cluster
        .pod("first", json!({"containers": [own("d", "1")]}))
        .await;
    cluster.wait_for_phase("first", "Running").await;
    let second = json!({"containers": [own("c", "500m")]});
    let uid = cluster.pod("second", second).await;
    wait_until_resized(&cluster, "second", &requests("500m")).await;
    resize(&cluster, "second", requests("1500m"))
        .await
        .expect("a resize");
    let deferred = |pod: &Value| condition(pod, "PodResizePending")["reason"] == "Deferred";
    cluster
        .wait_until(&pod_path("second"), "deferred", deferred)
        .await;
    let id = fake.running("c");
    cluster.stop_agent().await;
    let directory = cluster.root().join("pods").join(uid);
    let record = directory.join("resources.json");
    std::fs::write(&record, "{\"allocated\": 7").expect("a file");
    cluster.start_agent().await;
    let event = cluster
        .wait_for_event("second", "ResourcesRecordDamaged")
        .await;
    assert!(
        event.contains("renamed to resources.json.damaged"),
        "{event}"
    );
    let kept = std::fs::read_to_string(directory.join("resources.json.damaged"));
    assert_eq!(kept.expect("a file"), "{\"allocated\": 7");
    // What was not granted is not taken for granted.
    until_true("the record is written again", || {
        std::fs::read_to_string(&record).is_ok_and(|text| text.contains("500m"))
    })
    .await;
    let pod = cluster.get(&pod_path("second")).await;
    assert_eq!(status(&pod, "c")["allocatedResources"]["cpu"], "500m");
    assert!(deferred(&pod), "{pod}");
    assert_eq!(fake.running("c"), id);
}

/// The resize changes nothing of a container that runs. A directory stands in for a disk that takes no record.
#[tokio::test(flavor = "multi_thread")]
async fn regression_resources_that_cannot_be_recorded_are_an_error_of_the_resize() {
    let (fake, cluster, _directory) = start().await;
    let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let ends = app(json!({"resources": requests("500m")}));
    let stays = app(json!({"name": "d"}));
    let spec = json!({"restartPolicy": "OnFailure", "containers": [ends, stays]});
    let uid = cluster.pod("p", spec).await;
    wait_until_resized(&cluster, "p", &requests("500m")).await;
    let id = fake.running("c").expect("a container");
    fake.state.lock().expect("a state").end(&id, 0, "Completed");
    cluster
        .wait_until(&pod_path("p"), "half done", |pod| {
            status(pod, "c")["state"]["terminated"].is_object()
                && status(pod, "d")["state"]["running"].is_object()
        })
        .await;
    let record = cluster.root().join("pods").join(uid).join("resources.json");
    std::fs::remove_file(&record).expect("a record");
    std::fs::create_dir_all(record.join("x")).expect("a directory");
    resize(&cluster, "p", requests("600m"))
        .await
        .expect("a resize");
    let failed = |pod: &Value| condition(pod, "PodResizeInProgress")["reason"] == "Error";
    let pod = cluster
        .wait_until(&pod_path("p"), "not resized", failed)
        .await;
    let message = condition(&pod, "PodResizeInProgress")["message"].to_string();
    assert!(message.contains("resources.json"), "{message}");
    std::fs::remove_dir_all(&record).expect("removed");
    let last = requests("700m");
    resize(&cluster, "p", last.clone()).await.expect("a resize");
    wait_until_resized(&cluster, "p", &last).await;
    assert!(record.is_file());
}
