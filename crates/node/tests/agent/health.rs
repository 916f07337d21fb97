//! Probes, hooks, deadlines, last messages, and what survives the agent.

use serde_json::{Value, json};

use super::harness::{Cluster, has_isolation, pod_path, shell, status, with};

fn condition<'a>(pod: &'a Value, kind: &str) -> &'a Value {
    let conditions = pod["status"]["conditions"].as_array();
    let mut all = conditions.into_iter().flatten();
    all.find(|condition| condition["type"] == kind)
        .unwrap_or(&Value::Null)
}

/// A file that only the test can make, seen by the containers as well: without namespaces there are no volumes.
fn flag(cluster: &Cluster, name: &str) -> std::path::PathBuf {
    let directory = cluster.root().with_extension(name);
    std::fs::create_dir_all(&directory).unwrap();
    directory.join("up")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_not_alive_is_restarted() {
    let cluster = Cluster::start().await;
    let probe = json!({"exec": {"command": ["sh", "-c", "echo sick; exit 1"]}, "periodSeconds": 1, "timeoutSeconds": 30, "failureThreshold": 2});
    let sick = with(
        shell("trap 'exit 0' TERM; sleep 1000 & wait"),
        "sick",
        json!({"livenessProbe": probe}),
    );
    let well = with(shell("sleep 1000"), "well", json!({}));
    cluster.pod("p", json!({"containers": [sick, well]})).await;
    let pod = cluster
        .wait_until(&pod_path("p"), "a restart", |pod| {
            status(pod, "sick")["restartCount"].as_u64() >= Some(1)
        })
        .await;
    assert_eq!(status(&pod, "well")["restartCount"], 0);
    let message = cluster.wait_for_event("p", "Unhealthy").await;
    assert_eq!(message, "Liveness probe failed: sick");
    let message = cluster.wait_for_event("p", "Killing").await;
    assert_eq!(
        message,
        "Container sick failed liveness probe, will be restarted"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_comes_and_goes_without_a_restart() {
    let cluster = Cluster::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let probe = json!({"tcpSocket": {"port": port}, "periodSeconds": 1, "timeoutSeconds": 30, "failureThreshold": 1});
    let container = with(shell("sleep 1000"), "c", json!({"readinessProbe": probe}));
    cluster.pod("p", json!({"containers": [container]})).await;
    let ready = |pod: &Value| {
        (condition(pod, "Ready")["status"] == "True") && (status(pod, "c")["ready"] == true)
    };
    cluster.wait_until(&pod_path("p"), "ready", ready).await;
    drop(listener);
    let pod = cluster
        .wait_until(&pod_path("p"), "not ready", |pod| !ready(pod))
        .await;
    assert_eq!(
        condition(&pod, "Ready")["message"],
        "containers with unready status: [c]"
    );
    assert_eq!(
        (
            &status(&pod, "c")["restartCount"],
            &status(&pod, "c")["started"]
        ),
        (&json!(0), &json!(true))
    );
    let message = cluster.wait_for_event("p", "Unhealthy").await;
    let expected =
        format!("Readiness probe failed: dial tcp 127.0.0.1:{port}: connect: connection refused");
    assert_eq!(message, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_startup_probe_waits() {
    let cluster = Cluster::start().await;
    if !has_isolation(&cluster).await {
        return;
    }
    let up = flag(&cluster, "startup");
    let mounts = json!([{"name": "v", "mountPath": "/mnt/v"}]);
    let probe = json!({"exec": {"command": ["test", "-e", "/mnt/v/up"]}, "periodSeconds": 1, "timeoutSeconds": 30, "failureThreshold": 100});
    let liveness = json!({"exec": {"command": ["test", "-e", "/mnt/v/up"]}, "periodSeconds": 1, "timeoutSeconds": 30, "failureThreshold": 1});
    let sidecar = with(
        shell("sleep 1000"),
        "side",
        json!({
            "restartPolicy": "Always", "startupProbe": probe, "livenessProbe": liveness, "volumeMounts": mounts,
        }),
    );
    let spec = json!({
        "initContainers": [sidecar], "containers": [shell("sleep 1000")],
        "volumes": [{"name": "v", "hostPath": {"path": up.parent().unwrap()}}],
    });
    cluster.pod("p", spec).await;
    cluster.wait_for_event("p", "Unhealthy").await;
    let pod = cluster.get(&pod_path("p")).await;
    assert_eq!(status(&pod, "side")["started"], false);
    assert_eq!(
        status(&pod, "side")["restartCount"],
        0,
        "liveness does not count yet"
    );
    assert!(status(&pod, "c")["state"]["waiting"].is_object(), "{pod}");
    std::fs::write(&up, "").unwrap();
    let pod = cluster.wait_for_phase("p", "Running").await;
    assert_eq!(status(&pod, "side")["ready"], true);
    let _ = std::fs::remove_dir_all(up.parent().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn http_probes_judge_by_the_code() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let cluster = Cluster::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            let n = stream.read(&mut request).await.unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..n]).into_owned();
            let good = request.starts_with("GET /good HTTP/1.1") && request.contains("x-a: b");
            let code = if good {
                "204 No Content"
            } else {
                "503 Service Unavailable"
            };
            let answer = format!("HTTP/1.1 {code}\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let probe = |path: &str| {
        json!({"readinessProbe": {"periodSeconds": 1, "timeoutSeconds": 30, "httpGet": {
            "port": "web", "path": path, "httpHeaders": [{"name": "x-a", "value": "b"}]}},
            "ports": [{"name": "web", "containerPort": port}]})
    };
    let good = with(shell("sleep 1000"), "good", probe("/good"));
    let mut bad = with(shell("sleep 1000"), "bad", probe("/bad"));
    bad["ports"][0]["protocol"] = json!("UDP");
    cluster.pod("p", json!({"containers": [good, bad]})).await;
    let pod = cluster
        .wait_until(&pod_path("p"), "ready", |pod| {
            status(pod, "good")["ready"] == true
        })
        .await;
    assert_eq!(status(&pod, "bad")["ready"], false);
    let message = cluster.wait_for_event("p", "Unhealthy").await;
    assert_eq!(
        message,
        "Readiness probe failed: HTTP probe failed with statuscode: 503"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_run_after_the_start_and_before_the_end() {
    let cluster = Cluster::start().await;
    if !has_isolation(&cluster).await {
        return;
    }
    let file = flag(&cluster, "hooks");
    let hook = |text: &str| json!({"exec": {"command": ["sh", "-c", format!("echo {text} >> /mnt/v/up")]}});
    let container = with(
        shell("trap 'echo term >> /mnt/v/up; exit 0' TERM; sleep 1000 & wait"),
        "c",
        json!({
            "lifecycle": {"postStart": hook("post"), "preStop": hook("pre")},
            "volumeMounts": [{"name": "v", "mountPath": "/mnt/v"}],
        }),
    );
    let failing = with(
        shell("sleep 1000"),
        "failing",
        json!({
            "lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", "echo nope; exit 1"]}}},
        }),
    );
    let volumes = json!([{"name": "v", "hostPath": {"path": file.parent().unwrap()}}]);
    cluster
        .pod(
            "good",
            json!({"containers": [container], "volumes": volumes}),
        )
        .await;
    let spec = json!({"containers": [failing], "terminationGracePeriodSeconds": 1, "restartPolicy": "Never"});
    cluster.pod("bad", spec).await;
    cluster.wait_for_phase("good", "Running").await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "post\n");
    cluster.delete(&pod_path("good")).await;
    cluster.wait_until_gone("good").await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "post\npre\nterm\n");
    cluster.wait_for_phase("bad", "Failed").await;
    let message = cluster.wait_for_event("bad", "FailedPostStartHook").await;
    assert_eq!(message, "PostStartHook failed: nope");
    let _ = std::fs::remove_dir_all(file.parent().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn sidecars_end_after_the_others() {
    let cluster = Cluster::start().await;
    if !has_isolation(&cluster).await {
        return;
    }
    let file = flag(&cluster, "order");
    let named = |name: &str, wait: &str| {
        let script = format!(
            "trap '{wait} echo {name} >> /mnt/v/up; exit 0' TERM; touch /mnt/v/{name}; sleep 1000 & wait"
        );
        let more = json!({"volumeMounts": [{"name": "v", "mountPath": "/mnt/v"}]});
        with(shell(&script), name, more)
    };
    let sidecar = |name: &str| {
        let mut container = named(name, "");
        container["restartPolicy"] = json!("Always");
        container
    };
    let volumes = json!([{"name": "v", "hostPath": {"path": file.parent().unwrap()}}]);
    let spec = json!({"initContainers": [sidecar("one"), sidecar("two")], "containers": [named("main", "sleep 0.5;")], "volumes": volumes});
    cluster.pod("p", spec).await;
    cluster.wait_for_phase("p", "Running").await;
    cluster
        .wait_until("/api/v1/nodes/n1", "their traps", |_| {
            ["one", "two", "main"]
                .iter()
                .all(|name| file.with_file_name(name).exists())
        })
        .await;
    cluster.delete(&pod_path("p")).await;
    cluster.wait_until_gone("p").await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "main\ntwo\none\n");
    let _ = std::fs::remove_dir_all(file.parent().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_ends_at_its_deadline() {
    let cluster = Cluster::start().await;
    let spec = json!({"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 1, "containers": [shell("sleep 1000")]});
    cluster.pod("p", spec).await;
    let pod = cluster.wait_for_phase("p", "Failed").await;
    assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
    assert_eq!(
        pod["status"]["message"],
        "Pod was active on the node longer than the specified deadline"
    );
    assert_eq!(status(&pod, "c")["state"]["terminated"]["reason"], "Error");
    assert_eq!(status(&pod, "c")["restartCount"], 0);
    cluster.wait_for_event("p", "DeadlineExceeded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn last_messages_are_kept() {
    let cluster = Cluster::start().await;
    if !has_isolation(&cluster).await {
        return;
    }
    let said = with(
        shell("echo over and out > /dev/termination-log; exit 1"),
        "said",
        json!({}),
    );
    let own = with(
        shell("echo mine > /tmp/last"),
        "own",
        json!({"terminationMessagePath": "/tmp/last"}),
    );
    let log = with(
        shell("echo one; echo two >&2; exit 1"),
        "log",
        json!({"terminationMessagePolicy": "FallbackToLogsOnError"}),
    );
    let quiet = with(shell("echo one; exit 1"), "quiet", json!({}));
    cluster
        .pod(
            "p",
            json!({"restartPolicy": "Never", "containers": [said, own, log, quiet]}),
        )
        .await;
    let pod = cluster.wait_for_phase("p", "Failed").await;
    let message = |name: &str| status(&pod, name)["state"]["terminated"]["message"].clone();
    assert_eq!(message("said"), "over and out\n");
    assert_eq!(message("own"), "mine\n");
    assert_eq!(message("log"), "one\ntwo\n");
    assert_eq!(message("quiet"), Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_between_two_runs_survives_the_agent() {
    let mut cluster = Cluster::start().await;
    let init = with(shell("exit 0"), "i", json!({}));
    let spec = json!({"initContainers": [init], "containers": [shell("echo run; exit 3")]});
    cluster.pod("p", spec).await;
    let waiting = |pod: &Value| {
        status(pod, "c")["restartCount"] == 1
            && status(pod, "c")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    let before = cluster
        .wait_until(&pod_path("p"), "backing off", waiting)
        .await;
    cluster.stop_agent().await;
    cluster.start_agent().await;
    // The next agent may be at the run after that already: its first restart is not delayed.
    let after = cluster
        .wait_until(&pod_path("p"), "another run", |pod| {
            status(pod, "c")["restartCount"].as_u64() >= Some(2)
        })
        .await;
    assert_eq!(
        status(&after, "c")["lastState"]["terminated"]["exitCode"],
        3
    );
    assert_eq!(
        cluster.log("p", "c", 1),
        "run\n",
        "an earlier log is not written over"
    );
    assert_eq!(
        status(&after, "i"),
        status(&before, "i"),
        "an end is told as it was"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_deleted_twice_leaves_nothing() {
    let cluster = Cluster::start().await;
    let deaf = shell("trap '' TERM; echo up; while :; do sleep 0.05; done");
    cluster.pod("p", json!({"containers": [deaf]})).await;
    cluster.wait_for_phase("p", "Running").await;
    cluster.delete(&pod_path("p")).await;
    cluster.wait_for_event("p", "Killing").await;
    let force = json!({"gracePeriodSeconds": 0});
    cluster
        .call(http::Method::DELETE, &pod_path("p"), Some(force))
        .await
        .unwrap();
    for left in ["containers", "logs", "pods"] {
        let path = cluster.root().join(left);
        cluster
            .wait_until("/api/v1/nodes/n1", left, |_| {
                std::fs::read_dir(&path).is_ok_and(|entries| entries.count() == 0)
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_can_be_added_to_look_into_a_pod() {
    let cluster = Cluster::start().await;
    cluster
        .pod("p", json!({"containers": [shell("sleep 1000")]}))
        .await;
    cluster.wait_for_phase("p", "Running").await;
    let mut added = with(shell("echo looked; exit 1"), "debug", json!({}));
    added["terminationMessagePolicy"] = json!("File");
    let path = format!("{}/ephemeralcontainers", pod_path("p"));
    let patch = json!({"spec": {"ephemeralContainers": [added]}});
    cluster
        .call(http::Method::PATCH, &path, Some(patch))
        .await
        .unwrap();
    let pod = cluster
        .wait_until(&pod_path("p"), "an end", |pod| {
            status(pod, "debug")["state"]["terminated"]["exitCode"] == 1
        })
        .await;
    assert_eq!(
        (&pod["status"]["phase"], &condition(&pod, "Ready")["status"]),
        (&json!("Running"), &json!("True"))
    );
    assert_eq!(cluster.log("p", "debug", 0), "looked\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_start_is_tried_again_with_patience() {
    let mut cluster = Cluster::start().await;
    let container = json!({"name": "c", "image": "none", "command": ["no-such-program"]});
    cluster.pod("p", json!({"containers": [container]})).await;
    let backing_off =
        |pod: &Value| status(pod, "c")["state"]["waiting"]["reason"] == "CrashLoopBackOff";
    let pod = cluster
        .wait_until(&pod_path("p"), "backing off", backing_off)
        .await;
    let end = &status(&pod, "c")["lastState"]["terminated"];
    assert_eq!(
        (&end["reason"], &end["startedAt"]),
        (&json!("StartError"), &json!("1970-01-01T00:00:00Z"))
    );
    // The next agent tries once at once, and is as patient then.
    cluster.stop_agent().await;
    cluster.start_agent().await;
    let again = |pod: &Value| {
        backing_off(pod)
            && status(pod, "c")["restartCount"].as_u64() >= Some(2)
            && status(pod, "c")["lastState"]["terminated"]["reason"] == "StartError"
    };
    let pod = cluster
        .wait_until(&pod_path("p"), "backing off again", again)
        .await;
    assert!(
        status(&pod, "c")["restartCount"].as_u64() <= Some(4),
        "{pod}"
    );
}
