//! What pods of the API can reach, and what they are refused. The helper's own tests have the details.

use serde_json::json;

use super::harness::{Cluster, has_isolation, pod_path, shell, status, with};

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_one_container_prepared_does_not_uncover_the_host_for_the_next() {
    let cluster = Cluster::start().await;
    if !has_isolation(&cluster).await {
        return;
    }
    let volume = |path: &str| json!({"volumeMounts": [{"name": "v", "mountPath": path}]});
    let prepare =
        "mkdir -p /v/etc; ln -s /etc /v/link; ln -sf ../../../../../../.. /v/up; ln -s / /v/dev";
    let mut main = with(
        shell(
            "ls /.allot-host/shadow /.allot-host/pki 2>/dev/null; ls /.allot-host | tr '\\n' ' '",
        ),
        "c",
        volume("/.allot-host"),
    );
    main["terminationMessagePath"] = json!("/.allot-host/dev/allot-message");
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [with(shell(prepare), "i", volume("/v"))],
        "containers": [main],
        "volumes": [{"name": "v", "emptyDir": {}}],
    });
    cluster.pod("p", spec).await;
    cluster.wait_for_phase("p", "Succeeded").await;
    assert_eq!(cluster.log("p", "c", 0), "dev etc link up \n");
    for path in ["/allot-message", "/.allot-host"] {
        assert!(!std::path::Path::new(path).exists(), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_of_a_container_is_in_its_status() {
    let mut cluster = Cluster::start().await;
    if !has_isolation(&cluster).await {
        return;
    }
    let mut context = json!({"runAsUser": 1234, "runAsGroup": 55});
    let mut groups = json!([55]);
    // Others cannot be given without root.
    if rustix::process::geteuid().is_root() {
        context["supplementalGroups"] = json!([77, 66]);
        groups = json!([55, 66, 77]);
    }
    let spec = json!({"restartPolicy": "Never", "securityContext": context,
        "containers": [shell("sleep 1000")]});
    cluster.pod("p", spec).await;
    let user = json!({"linux": {"uid": 1234, "gid": 55, "supplementalGroups": groups}});
    let pod = cluster.wait_for_phase("p", "Running").await;
    assert_eq!(status(&pod, "c")["user"], user);
    // The next agent reports it, too.
    cluster.stop_agent().await;
    cluster.start_agent().await;
    let spec = json!({"restartPolicy": "Never", "containers": [shell("true")]});
    cluster.pod("later", spec).await;
    let pod = cluster.wait_for_phase("later", "Succeeded").await;
    assert_eq!(status(&pod, "c")["user"]["linux"]["uid"], 0);
    let pod = cluster.get(&pod_path("p")).await;
    assert_eq!(status(&pod, "c")["user"], user);
}

/// The attack: a container without limits forks until the machine has no process left, and the agent cannot start any.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_leaves_processes_to_others() {
    let cluster = Cluster::start().await;
    let node = cluster.get("/api/v1/nodes/n1").await;
    let conditions = node["status"]["conditions"].as_array().cloned();
    let limits = conditions
        .iter()
        .flatten()
        .any(|condition| condition["type"] == "ContainerLimits" && condition["status"] == "True");
    let controllers = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers");
    let counted = controllers.is_ok_and(|all| all.contains("pids"))
        || std::path::Path::new("/sys/fs/cgroup/pids").is_dir();
    if !limits || !counted {
        eprintln!("skipped: processes are not counted");
        return;
    }
    let script = "cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null; cat /proc/sys/kernel/pid_max";
    let spec = json!({"restartPolicy": "Never", "containers": [shell(script)]});
    cluster.pod("p", spec).await;
    cluster.wait_for_phase("p", "Succeeded").await;
    let log = cluster.log("p", "c", 0);
    if log.lines().any(|line| line == "max") {
        eprintln!("skipped: no limit for processes can be set");
        return;
    }
    let numbers: Vec<u64> = log.lines().map(|line| line.parse().expect(&log)).collect();
    assert!(matches!(*numbers, [own, all] if own <= all / 2), "{log}");
}

/// Where layers cannot be laid over each other, programs of images are there that run as their owner.
#[tokio::test(flavor = "multi_thread")]
async fn directories_of_containers_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let cluster = Cluster::start().await;
    let spec = json!({"restartPolicy": "Never", "containers": [shell("true")]});
    cluster.pod("p", spec).await;
    cluster.wait_for_phase("p", "Succeeded").await;
    for name in ["containers", "logs", "pods"] {
        let found = std::fs::metadata(cluster.root().join(name)).unwrap();
        assert_eq!(found.permissions().mode() & 0o007, 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn root_is_refused_where_the_pod_does_not_want_it() {
    let cluster = Cluster::start().await;
    let mut container = shell("id -u");
    container["securityContext"] = json!({"runAsNonRoot": true});
    cluster.pod("p", json!({"containers": [container]})).await;
    let pod = cluster
        .wait_until(&pod_path("p"), "refused", |pod| {
            status(pod, "c")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
        })
        .await;
    let message = status(&pod, "c")["state"]["waiting"]["message"].to_string();
    assert!(
        message.contains("container has runAsNonRoot and image will run as root (pod: "),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn links_out_of_a_volume_are_no_sub_paths() {
    let cluster = Cluster::start().await;
    if !has_isolation(&cluster).await {
        return;
    }
    let volume = |more: serde_json::Value| {
        let mut mount = json!({"name": "v", "mountPath": "/v"});
        for (key, value) in more.as_object().into_iter().flatten() {
            mount[key] = value.clone();
        }
        json!({"volumeMounts": [mount]})
    };
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [with(shell("ln -s /etc /v/out"), "i", volume(json!({})))],
        "containers": [with(shell("ls /v"), "c", volume(json!({"subPath": "out"})))],
        "volumes": [{"name": "v", "emptyDir": {}}],
    });
    cluster.pod("p", spec).await;
    let message = cluster.wait_for_event("p", "Failed").await;
    assert!(
        message.contains("failed to prepare subPath for volumeMount \"v\" of container \"c\""),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_with_forbidden_kernel_parameters_fail() {
    let cluster = Cluster::start().await;
    // The kernel has the second for each namespace, but what it permits is the memory of the machine.
    for (pod, name) in [("machine", "kernel.panic"), ("unsafe", "kernel.shmmax")] {
        let spec = json!({"containers": [shell("sleep 1000")],
            "securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
        cluster.pod(pod, spec).await;
        let failed = cluster.wait_for_phase(pod, "Failed").await;
        assert_eq!(failed["status"]["reason"], "SysctlForbidden");
        let message = format!("forbidden sysctl: {name:?} not allowlisted");
        let expected = format!("Pod was rejected: {message}");
        assert_eq!(failed["status"]["message"], expected);
        assert_eq!(
            cluster.wait_for_event(pod, "SysctlForbidden").await,
            message
        );
    }
    let spec = json!({"os": {"name": "windows"}, "containers": [shell("sleep 1000")]});
    cluster.pod("windows", spec).await;
    let failed = cluster.wait_for_phase("windows", "Failed").await;
    assert_eq!(failed["status"]["reason"], "PodOSNotSupported");
}
