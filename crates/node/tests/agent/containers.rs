//! Containers: environment, volumes, ends, restarts.

use serde_json::{Value, json};

use super::harness::{Cluster, pod_path, shell};

fn status(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_decide_the_phase() {
    let cluster = Cluster::start().await;
    cluster
        .pod(
            "good",
            json!({"restartPolicy": "Never", "containers": [shell("exit 0")]}),
        )
        .await;
    cluster
        .pod(
            "bad",
            json!({"restartPolicy": "Never", "containers": [shell("exit 3")]}),
        )
        .await;
    cluster
        .pod(
            "killed",
            json!({"restartPolicy": "Never", "containers": [shell("kill -9 $$$$")]}),
        )
        .await;
    let good = cluster.wait_for_phase("good", "Succeeded").await;
    assert_eq!(status(&good)["state"]["terminated"]["reason"], "Completed");
    let bad = cluster.wait_for_phase("bad", "Failed").await;
    assert_eq!(status(&bad)["state"]["terminated"]["exitCode"], 3);
    assert_eq!(status(&bad)["state"]["terminated"]["reason"], "Error");
    let killed = cluster.wait_for_phase("killed", "Failed").await;
    assert_eq!(status(&killed)["state"]["terminated"]["exitCode"], 137);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_restart_is_immediate_and_the_second_waits() {
    let cluster = Cluster::start().await;
    cluster
        .pod("p", json!({"containers": [shell("echo run; exit 1")]}))
        .await;
    let pod = cluster
        .wait_until(&pod_path("p"), "backing off", |pod| {
            status(pod)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
                && status(pod)["restartCount"] == 1
        })
        .await;
    let message = status(&pod)["state"]["waiting"]["message"]
        .as_str()
        .unwrap();
    assert!(
        message.starts_with("back-off 10s restarting failed container=c pod=p_default("),
        "{message}"
    );
    assert_eq!(status(&pod)["lastState"]["terminated"]["exitCode"], 1);
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(cluster.log("p", "c", 1), "run\n");
    let event = cluster.wait_for_event("p", "BackOff").await;
    assert!(
        event.starts_with("Back-off restarting failed container c in pod p_default("),
        "{event}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn init_containers_run_one_after_the_other_and_before_the_rest() {
    let cluster = Cluster::start().await;
    let volume = json!([{"name": "v", "mountPath": "/mnt/v"}]);
    let mut parts: Vec<Value> = ["echo 1 > /mnt/v/f", "echo 2 >> /mnt/v/f", "cat /mnt/v/f"]
        .map(shell)
        .into();
    for (part, name) in parts.iter_mut().zip(["i1", "i2", "c"]) {
        part["name"] = json!(name);
        part["volumeMounts"] = volume.clone();
    }
    // Without namespaces nothing can be mounted.
    let isolated = cluster.get("/api/v1/nodes/n1").await["status"]["conditions"]
        .to_string()
        .contains("\"Applied\"");
    if !isolated {
        eprintln!("skipped: namespaces are not permitted here");
        return;
    }
    let last = parts.pop().unwrap();
    let spec = json!({"restartPolicy": "Never", "initContainers": parts, "containers": [last],
        "volumes": [{"name": "v", "emptyDir": {}}]});
    cluster.pod("p", spec).await;
    let pod = cluster.wait_for_phase("p", "Succeeded").await;
    assert_eq!(cluster.log("p", "c", 0), "1\n2\n");
    assert_eq!(
        pod["status"]["initContainerStatuses"][1]["state"]["terminated"]["exitCode"],
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_comes_from_everywhere() {
    let cluster = Cluster::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "from-map"}});
    cluster.post(maps, map).await;
    let mut container = shell("echo $NAME $KEY $P_k $TWICE $CPU $0");
    container["args"] = json!(["$(KEY)-arg"]);
    container["resources"] = json!({"limits": {"cpu": "1500m"}});
    container["envFrom"] = json!([{"prefix": "P_", "configMapRef": {"name": "m"}}]);
    container["env"] = json!([
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
        {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
        {"name": "TWICE", "value": "$(KEY)$(KEY)$$(KEY)$(NONE)"},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
    ]);
    cluster
        .pod(
            "p",
            json!({"restartPolicy": "Never", "containers": [container]}),
        )
        .await;
    cluster.wait_for_phase("p", "Succeeded").await;
    let expected = "test from-map from-map from-mapfrom-map$(KEY)$(NONE) 1500 from-map-arg\n";
    assert_eq!(cluster.log("p", "c", 0), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_start_says_why() {
    let cluster = Cluster::start().await;
    let container = json!({"name": "c", "image": "nginx:1.27"});
    cluster
        .pod("no-command", json!({"containers": [container]}))
        .await;
    let message = cluster.wait_for_event("no-command", "Failed").await;
    assert!(
        message.contains("has no command: images are not pulled on this node"),
        "{message}"
    );
    let pod = cluster.get(&pod_path("no-command")).await;
    assert_eq!(pod["status"]["phase"], "Pending");

    let container = json!({"name": "c", "image": "none", "command": ["no-such-program"]});
    cluster
        .pod(
            "missing",
            json!({"restartPolicy": "Never", "containers": [container]}),
        )
        .await;
    let pod = cluster.wait_for_phase("missing", "Failed").await;
    let end = &status(&pod)["state"]["terminated"];
    assert_eq!(
        (&end["reason"], &end["exitCode"]),
        (&json!("StartError"), &json!(128))
    );
    assert!(
        end["message"]
            .as_str()
            .unwrap()
            .contains("executable file not found in $PATH"),
        "{end}"
    );

    let mut container = shell("true");
    container["env"] =
        json!([{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
    cluster
        .pod("unset", json!({"containers": [container]}))
        .await;
    let pod = cluster
        .wait_until(&pod_path("unset"), "waiting", |pod| {
            status(pod)["state"]["waiting"]["reason"] == "CreateContainerConfigError"
        })
        .await;
    assert_eq!(
        status(&pod)["state"]["waiting"]["message"],
        "secret \"s\" not found"
    );
}

/// The process of this machine that sleeps for so long.
fn sleeper(seconds: &str) -> Option<rustix::process::Pid> {
    let line = format!("sleep\0{seconds}\0");
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    let found = entries
        .map(|entry| entry.path())
        .find(|path| std::fs::read(path.join("cmdline")).is_ok_and(|it| it == line.as_bytes()))?;
    let pid = found.file_name()?.to_str()?.parse().ok()?;
    rustix::process::Pid::from_raw(pid)
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_survive_the_agent() {
    let mut cluster = Cluster::start().await;
    cluster
        .pod(
            "stays",
            json!({"containers": [shell("echo up; sleep 1000")]}),
        )
        .await;
    let before = cluster.wait_for_phase("stays", "Running").await;
    // No other process sleeps for just as long.
    let seconds = format!("8640{}", std::process::id());
    let script = format!("read x < /dev/zero & sleep {seconds}; exit 5");
    let spec = json!({"restartPolicy": "Never", "containers": [shell(&script)]});
    cluster.pod("ends", spec).await;
    cluster.wait_for_phase("ends", "Running").await;
    cluster
        .wait_until("/api/v1/nodes/n1", "asleep", |_| {
            sleeper(&seconds).is_some()
        })
        .await;
    cluster.stop_agent().await;
    let sleeper = sleeper(&seconds).unwrap();
    rustix::process::kill_process(sleeper, rustix::process::Signal::TERM).unwrap();
    cluster.start_agent().await;
    let ended = cluster.wait_for_phase("ends", "Failed").await;
    assert_eq!(
        status(&ended)["state"]["terminated"]["exitCode"],
        5,
        "known although nobody watched"
    );
    let after = cluster.get(&pod_path("stays")).await;
    assert_eq!(
        status(&after)["containerID"],
        status(&before)["containerID"]
    );
    assert_eq!(status(&after)["restartCount"], 0);
    cluster.delete(&pod_path("stays")).await;
    cluster.wait_until_gone("stays").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn termination_is_graceful_and_then_not() {
    let cluster = Cluster::start().await;
    let polite = shell("trap 'exit 0' TERM; echo up; sleep 1000 & wait");
    let deaf = shell("trap '' TERM; echo up; while :; do sleep 0.05; done");
    cluster.pod("polite", json!({"containers": [polite]})).await;
    cluster
        .pod(
            "deaf",
            json!({"terminationGracePeriodSeconds": 1, "containers": [deaf]}),
        )
        .await;
    for name in ["polite", "deaf"] {
        cluster.wait_for_phase(name, "Running").await;
        cluster.wait_for_logs(name, &["c"]).await;
    }
    let begun = std::time::Instant::now();
    cluster.delete(&pod_path("deaf")).await;
    cluster.delete(&pod_path("polite")).await;
    cluster.wait_until_gone("polite").await;
    cluster.wait_until_gone("deaf").await;
    assert!(
        begun.elapsed() >= std::time::Duration::from_secs(1),
        "the grace period is waited for"
    );
    for left in ["containers", "logs"] {
        let path = cluster.root().join(left);
        cluster
            .wait_until("/api/v1/nodes/n1", left, |_| {
                std::fs::read_dir(&path).unwrap().count() == 0
            })
            .await;
    }
}

/// The node controller sets the pods of a node that it takes for lost to not ready. They stayed so when the node was back.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_condition_that_was_overwritten_is_reported_again() {
    let cluster = Cluster::start().await;
    cluster
        .pod("p", json!({"containers": [shell("exec sleep 600")]}))
        .await;
    let ready = |status: &'static str| {
        move |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|it| it["type"] == "Ready" && it["status"] == status)
        }
    };
    for _ in 0..2 {
        let mut pod = cluster
            .wait_until(&pod_path("p"), "ready", ready("True"))
            .await;
        for condition in pod["status"]["conditions"].as_array_mut().expect("a list") {
            if condition["type"] == "Ready" {
                condition["status"] = json!("False");
            }
        }
        let path = format!("{}/status", pod_path("p"));
        let lost = json!({"status": {"conditions": pod["status"]["conditions"]}});
        let answer = cluster.call(http::Method::PATCH, &path, Some(lost)).await;
        assert!(ready("False")(&answer.expect("patched")));
    }
    cluster
        .wait_until(&pod_path("p"), "ready", ready("True"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_of_others_survive_status_updates() {
    let cluster = Cluster::start().await;
    cluster
        .pod("p", json!({"containers": [shell("sleep 1000")]}))
        .await;
    cluster.wait_for_phase("p", "Running").await;
    let path = format!("{}/status", pod_path("p"));
    let condition = json!({"type": "example.com/mine", "status": "True"});
    loop {
        let mut pod = cluster.get(&pod_path("p")).await;
        let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(condition.clone());
        match cluster.call(http::Method::PUT, &path, Some(pod)).await {
            Ok(_) => break,
            // The agent was still writing.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => panic!("{error}"),
        }
    }
    let update = json!({"spec": {"activeDeadlineSeconds": 1000}});
    cluster
        .call(http::Method::PATCH, &pod_path("p"), Some(update))
        .await
        .unwrap();
    let pod = cluster.get(&pod_path("p")).await;
    let kinds: Vec<&str> = pod["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|c| c["type"].as_str())
        .collect();
    assert!(
        kinds.contains(&"example.com/mine") && kinds.contains(&"Ready"),
        "{kinds:?}"
    );
}
