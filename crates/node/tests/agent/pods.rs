//! Limits for all containers of a pod together.

use std::path::{Path, PathBuf};

use allot_testing::wait::{until, until_true};
use http::Method;
use serde_json::{Value, json};

use super::harness::{Cluster, pod_path, shell, with};
use super::resize::{enforces_limits, wait_until_resized};

/// The files about a resource in the cgroup of a pod, by the versions of cgroups.
fn file(uid: &str, first: (&str, &str), second: &str) -> Option<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let pod = Path::new("allot").join(format!("pod{uid}"));
    let files = [
        root.join(first.0).join(&pod).join(first.1),
        root.join(pod).join(second),
    ];
    files.into_iter().find(|file| file.exists())
}

/// What is in force for a pod: memory, quota, shares or weight, and processes.
fn in_force(uid: &str) -> [String; 4] {
    let files = [
        file(uid, ("memory", "memory.limit_in_bytes"), "memory.max"),
        file(uid, ("cpu", "cpu.cfs_quota_us"), "cpu.max"),
        file(uid, ("cpu", "cpu.shares"), "cpu.weight"),
        file(uid, ("pids", "pids.max"), "pids.max"),
    ];
    files.map(|file| {
        let text = file.and_then(|file| std::fs::read_to_string(file).ok());
        let text = text.unwrap_or_default();
        text.split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn all_containers_of_a_pod_have_its_limits_together() {
    let mut cluster = Cluster::start().await;
    if !enforces_limits(&cluster).await {
        eprintln!("skipped: cgroups cannot be written here");
        return;
    }
    cluster.stop_agent().await;
    cluster.adjust = |config| config.pod_pids_limit = Some(64);
    cluster.start_agent().await;
    let of = |cpu: &str, memory: &str| json!({"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": cpu, "memory": memory}});
    let second_version = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let expected = |memory: &str, quota: &str, shares: (&str, &str)| {
        let shares = if second_version { shares.1 } else { shares.0 };
        [memory, quota, shares, "64"].map(str::to_owned)
    };
    let spec = json!({"resources": of("500m", "64Mi"), "terminationGracePeriodSeconds": 0,
        "containers": [with(shell("sleep 1000"), "c", json!({})), with(shell("sleep 1000"), "d", json!({}))]});
    let uid = cluster.pod("p", spec).await;
    cluster.wait_for_phase("p", "Running").await;
    assert_eq!(in_force(&uid), expected("67108864", "50000", ("102", "17")));

    // Lower, and higher again, with containers that have the limits of the pod.
    for (cpu, memory, found) in [
        ("300m", "48Mi", expected("50331648", "30000", ("102", "17"))),
        (
            "600m",
            "96Mi",
            expected("100663296", "60000", ("102", "17")),
        ),
    ] {
        let path = format!("{}/resize", pod_path("p"));
        let patch = json!({"spec": {"resources": of(cpu, memory)}});
        let resized = cluster.call(Method::PATCH, &path, Some(patch)).await;
        resized.expect("a resize");
        let holds = || async {
            let now = in_force(&uid);
            if now == found {
                Ok(())
            } else {
                Err(json!(now))
            }
        };
        until("the cgroup has the limits", holds).await;
        let pod = cluster
            .wait_until(&pod_path("p"), "resized", |pod: &Value| {
                pod["status"]["resources"]["limits"]["cpu"] == cpu
                    && !pod["status"]["conditions"]
                        .to_string()
                        .contains("PodResize")
            })
            .await;
        assert_eq!(pod["status"]["allocatedResources"]["cpu"], "100m");
    }
    // The next agent leaves it so.
    cluster.stop_agent().await;
    cluster.start_agent().await;
    assert_eq!(
        in_force(&uid),
        expected("100663296", "60000", ("102", "17"))
    );
    cluster.delete(&pod_path("p")).await;
    until_true("nothing is left", || {
        ["memory", "cpu", "pids", ""].iter().all(|controller| {
            let root = Path::new("/sys/fs/cgroup").join(controller);
            !root.join("allot").join(format!("pod{uid}")).exists()
        })
    })
    .await;
}

/// A container's own resize changes the share that its pod has of the processors.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_the_share_of_what_its_containers_request() {
    let cluster = Cluster::start().await;
    if !enforces_limits(&cluster).await {
        eprintln!("skipped: cgroups cannot be written here");
        return;
    }
    let of = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let own = |name: &str| with(shell("sleep 1000"), name, json!({"resources": of("250m")}));
    let uid = cluster
        .pod("p", json!({"containers": [own("c"), own("d")]}))
        .await;
    wait_until_resized(&cluster, "p", &of("250m")).await;
    let [memory, quota, before, _] = in_force(&uid);
    let second_version = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    assert_eq!(quota, if second_version { "max" } else { "-1" });
    assert!(second_version || before == "512", "{before}");
    assert!(
        memory == "max" || memory.parse::<u64>().is_ok_and(|it| it > 1 << 60),
        "{memory}"
    );
    super::resize::resize(&cluster, "p", of("750m"))
        .await
        .expect("a resize");
    wait_until_resized(&cluster, "p", &of("750m")).await;
    let after = in_force(&uid)[2].clone();
    let number = |text: &str| text.parse::<u64>().expect("a number");
    assert!(number(&after) > number(&before), "{before} {after}");
    assert!(second_version || after == "1024", "{after}");
}
