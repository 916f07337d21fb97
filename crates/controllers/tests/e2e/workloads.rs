//! Deployments, replica sets, daemon sets, stateful sets, jobs.

use std::time::Instant;

use allot_testing::wait::PATIENCE;
use serde_json::{Value, json};

use super::harness::{Change, Cluster, name, template};

const PODS: &str = "/api/v1/namespaces/default/pods";
const APPS: &str = "/apis/apps/v1/namespaces/default";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn workload(kind_name: &str, replicas: i32) -> Value {
    json!({
        "metadata": {"name": kind_name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": kind_name}},
            "template": template(kind_name),
        },
    })
}

/// Runs every pod there is until the condition holds.
async fn run_all_until(
    cluster: &Cluster,
    path: &str,
    what: &str,
    holds: impl Fn(&Value) -> bool,
) -> Value {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let object = cluster.get(path).await.unwrap_or_default();
        if holds(&object) {
            return object;
        }
        for pod in cluster.list(PODS).await {
            if pod["metadata"]["deletionTimestamp"].is_string() {
                let gone = json!({"gracePeriodSeconds": 0});
                let _ = cluster
                    .call(
                        http::Method::DELETE,
                        &format!("{PODS}/{}", name(&pod)),
                        Some(&gone),
                    )
                    .await;
            } else if pod["status"]["phase"] != "Running" {
                let status = json!({"status": {"phase": "Running", "conditions": [
                    {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                ]}});
                let path = format!("{PODS}/{}/status", name(&pod));
                let _ = cluster
                    .call(http::Method::PATCH, &path, Some(&status))
                    .await;
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!(
        "{path}: not {what}; it is {:#}",
        cluster.get(path).await.unwrap_or_default()
    );
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    object["status"]["conditions"]
        .as_array()
        .and_then(|c| c.iter().find(|c| c["type"] == kind))
        .unwrap_or(&Value::Null)
}

#[tokio::test]
async fn a_deployment_rolls_out_and_over() {
    let cluster = Cluster::start().await;
    let path = format!("{APPS}/deployments/w");
    cluster
        .create(&format!("{APPS}/deployments"), workload("w", 3))
        .await;
    cluster.until_count(PODS, 3).await;
    let done = |d: &Value| {
        condition(d, "Progressing")["reason"] == "NewReplicaSetAvailable"
            && d["status"]["availableReplicas"] == 3
            && d["status"]["updatedReplicas"] == 3
            && d["status"]["replicas"] == 3
            && d["status"]["observedGeneration"] == d["metadata"]["generation"]
    };
    let deployment = run_all_until(&cluster, &path, "rolled out", done).await;
    assert_eq!(condition(&deployment, "Available")["status"], "True");
    assert_eq!(
        deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "1"
    );

    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "registry.invalid/main:2"}]}}}});
    cluster.patch(&path, image).await;
    let deployment = run_all_until(&cluster, &path, "rolled over", done).await;
    assert_eq!(
        deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "2"
    );
    let sets = cluster.list(&format!("{APPS}/replicasets")).await;
    assert_eq!(sets.len(), 2);
    let replicas: i64 = sets
        .iter()
        .map(|s| s["spec"]["replicas"].as_i64().unwrap())
        .sum();
    assert_eq!(replicas, 3);
    for pod in cluster.list(PODS).await {
        assert_eq!(
            pod["spec"]["containers"][0]["image"],
            "registry.invalid/main:2"
        );
    }

    // Back to the first template: its replica set is used again, as revision 3.
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "registry.invalid/main:1"}]}}}});
    cluster.patch(&path, image).await;
    let deployment = run_all_until(&cluster, &path, "rolled back", |d| {
        done(d) && d["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"
    })
    .await;
    assert_eq!(cluster.list(&format!("{APPS}/replicasets")).await.len(), 2);
    drop(deployment);

    cluster.patch(&path, json!({"spec": {"replicas": 1}})).await;
    cluster.until_count(PODS, 1).await;
    cluster.delete(&path).await;
    cluster.until_count(&format!("{APPS}/replicasets"), 0).await;
    cluster.until_count(PODS, 0).await;
}

#[tokio::test]
async fn recreate_never_runs_both_versions() {
    let cluster = Cluster::start().await;
    let path = format!("{APPS}/deployments/w");
    let mut body = workload("w", 2);
    body["spec"]["strategy"] = json!({"type": "Recreate"});
    cluster.create(&format!("{APPS}/deployments"), body).await;
    run_all_until(&cluster, &path, "rolled out", |d| {
        d["status"]["availableReplicas"] == 2
    })
    .await;
    let pods = cluster.list(PODS).await;
    let history = cluster.history(PODS).await;
    // One pod takes its time to go.
    cluster
        .patch(
            &format!("{PODS}/{}", name(&pods[0])),
            json!({"metadata": {"finalizers": ["example.com/wait"]}}),
        )
        .await;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "registry.invalid/main:2"}]}}}});
    cluster.patch(&path, image).await;
    cluster
        .until(
            &format!("{PODS}/{}", name(&pods[0])),
            "being deleted",
            |p| p["metadata"]["deletionTimestamp"].is_string(),
        )
        .await;
    // The controller has looked at the new template.
    cluster
        .until(&path, "observed", |d| {
            d["status"]["observedGeneration"] == d["metadata"]["generation"]
        })
        .await;
    cluster
        .patch(
            &format!("{PODS}/{}", name(&pods[0])),
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
    run_all_until(&cluster, &path, "recreated", |d| {
        d["status"]["availableReplicas"] == 2 && d["status"]["updatedReplicas"] == 2
    })
    .await;
    let first = history
        .position("a pod of the new version is created", |change| {
            matches!(change, Change::Written(pod)
                if pod["spec"]["containers"][0]["image"] == "registry.invalid/main:2")
        })
        .await;
    for old in &pods {
        let gone = history
            .position(
                "the old pods are gone",
                |change| matches!(change, Change::Deleted(pod) if name(pod) == name(old)),
            )
            .await;
        assert!(gone < first, "{} is left beside a new pod", name(old));
    }
}

#[tokio::test]
async fn a_replica_set_replaces_adopts_and_releases() {
    let cluster = Cluster::start().await;
    cluster
        .create(&format!("{APPS}/replicasets"), workload("w", 2))
        .await;
    let pods = cluster.until_count(PODS, 2).await;
    cluster
        .delete_with(
            &format!("{PODS}/{}", name(&pods[0])),
            json!({"gracePeriodSeconds": 0}),
        )
        .await;
    cluster
        .until(PODS, "replaced", |l| {
            let items = l["items"].as_array().unwrap();
            items.len() == 2 && items.iter().all(|p| name(p) != name(&pods[0]))
        })
        .await;
    // A pod whose labels stop matching is let go and replaced.
    cluster
        .patch(
            &format!("{PODS}/{}", name(&pods[1])),
            json!({"metadata": {"labels": {"app": "other"}}}),
        )
        .await;
    cluster.until_count(PODS, 3).await;
    let free = cluster
        .until(
            &format!("{PODS}/{}", name(&pods[1])),
            "without owner",
            |p| p["metadata"]["ownerReferences"].is_null(),
        )
        .await;
    // It comes back: adopted, and one pod is too many.
    cluster
        .patch(
            &format!("{PODS}/{}", name(&free)),
            json!({"metadata": {"labels": {"app": "w"}}}),
        )
        .await;
    cluster.until_count(PODS, 2).await;
}

#[tokio::test]
async fn a_daemon_set_covers_the_nodes_that_fit() {
    let cluster = Cluster::start().await;
    cluster.node("a").await;
    cluster.node("b").await;
    let mut body = workload("d", 0);
    body["spec"].as_object_mut().unwrap().remove("replicas");
    cluster.create(&format!("{APPS}/daemonsets"), body).await;
    cluster.until_count(PODS, 2).await;
    cluster.node("c").await;
    cluster.until_count(PODS, 3).await;
    let path = format!("{APPS}/daemonsets/d");
    let status = run_all_until(&cluster, &path, "ready", |d| {
        d["status"]["numberReady"] == 3
    })
    .await;
    assert_eq!(status["status"]["desiredNumberScheduled"], 3);
    assert_eq!(status["status"]["updatedNumberScheduled"], 3);
    // Each pod is meant for one node.
    let mut nodes: Vec<String> = cluster
        .list(PODS)
        .await
        .iter()
        .map(|p| {
            p["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                ["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    nodes.sort();
    assert_eq!(nodes, ["a", "b", "c"]);
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "registry.invalid/main:2"}]}}}});
    cluster.patch(&path, image).await;
    run_all_until(&cluster, &path, "updated", |d| {
        d["status"]["updatedNumberScheduled"] == 3
            && d["status"]["numberAvailable"] == 3
            && d["status"]["observedGeneration"] == d["metadata"]["generation"]
    })
    .await;
}

#[tokio::test]
async fn a_stateful_set_goes_in_order() {
    let cluster = Cluster::start().await;
    let mut body = workload("db", 3);
    body["spec"]["serviceName"] = json!("db");
    let history = cluster.history(PODS).await;
    cluster.create(&format!("{APPS}/statefulsets"), body).await;
    let path = format!("{APPS}/statefulsets/db");
    let set = run_all_until(&cluster, &path, "ready", |s| {
        s["status"]["readyReplicas"] == 3
    })
    .await;
    let is = |change: &Change, pod: &str, running: bool| {
        matches!(change, Change::Written(written)
            if name(written) == pod && (!running || written["status"]["phase"] == "Running"))
    };
    for (earlier, later) in [("db-0", "db-1"), ("db-1", "db-2")] {
        let runs = history.position(earlier, |change| is(change, earlier, true));
        let created = history.position(later, |change| is(change, later, false));
        assert!(runs.await < created.await, "{later} waits for {earlier}");
    }
    assert_eq!(
        set["status"]["currentRevision"],
        set["status"]["updateRevision"]
    );
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "registry.invalid/main:2"}]}}}});
    cluster.patch(&path, image).await;
    let set = run_all_until(&cluster, &path, "updated", |s| {
        s["status"]["updatedReplicas"] == 3
            && s["status"]["readyReplicas"] == 3
            && s["status"]["currentRevision"] == s["status"]["updateRevision"]
            && s["status"]["observedGeneration"] == s["metadata"]["generation"]
    })
    .await;
    assert!(name(&set) == "db");
    cluster.patch(&path, json!({"spec": {"replicas": 1}})).await;
    run_all_until(&cluster, &path, "scaled", |s| s["status"]["replicas"] == 1).await;
    assert_eq!(name(&cluster.list(PODS).await[0]), "db-0");
}

#[tokio::test]
async fn volumes_end_with_the_pod_that_is_scaled_away() {
    let cluster = Cluster::start().await;
    let mut body = workload("db", 2);
    body["spec"]["serviceName"] = json!("db");
    body["spec"]["podManagementPolicy"] = json!("Parallel");
    body["spec"]["persistentVolumeClaimRetentionPolicy"] =
        json!({"whenScaled": "Delete", "whenDeleted": "Retain"});
    body["spec"]["volumeClaimTemplates"] = json!([{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }]);
    cluster.create(&format!("{APPS}/statefulsets"), body).await;
    let set = format!("{APPS}/statefulsets/db");
    run_all_until(&cluster, &set, "ready", |s| {
        s["status"]["readyReplicas"] == 2
    })
    .await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let owner = |claim: &Value| claim["metadata"]["ownerReferences"][0]["name"].clone();
    let second = format!("{claims}/data-db-1");
    assert_eq!(owner(&cluster.get(&second).await.unwrap()), Value::Null);

    // The pod stays for as long as its node needs; wanted again before it is deleted, it keeps its data.
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    cluster.patch(&format!("{PODS}/db-1"), hold).await;
    let first = cluster.get(&second).await.unwrap();
    cluster.patch(&set, json!({"spec": {"replicas": 1}})).await;
    cluster
        .until(&second, "handed over", |c| owner(c) == "db-1")
        .await;
    cluster.patch(&set, json!({"spec": {"replicas": 2}})).await;
    cluster
        .until(&second, "given back", |c| owner(c).is_null())
        .await;
    let release = json!({"metadata": {"finalizers": null}});
    cluster.patch(&format!("{PODS}/db-1"), release).await;
    run_all_until(&cluster, &set, "whole again", |s| {
        s["status"]["readyReplicas"] == 2 && s["status"]["observedGeneration"] == 3
    })
    .await;
    let kept = cluster.get(&second).await.unwrap();
    assert_eq!(kept["metadata"]["uid"], first["metadata"]["uid"]);

    cluster.patch(&set, json!({"spec": {"replicas": 1}})).await;
    run_all_until(&cluster, &set, "scaled", |s| s["status"]["replicas"] == 1).await;
    cluster
        .until(&second, "collected", |c| c["metadata"].is_null())
        .await;
    let left = cluster.list(claims).await;
    assert_eq!(left.iter().map(name).collect::<Vec<_>>(), ["data-db-0"]);
}

#[tokio::test]
async fn a_job_counts_each_pod_once() {
    let mut cluster = Cluster::start().await;
    let mut pod = template("j");
    pod["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"metadata": {"name": "j"}, "spec": {"completions": 5, "parallelism": 2, "template": pod}});
    cluster.create(JOBS, job).await;
    let start = Instant::now();
    // Each time the controllers live longer, so that they get somewhere on any machine.
    let (mut round, mut life) = (0, 1);
    while start.elapsed() < PATIENCE {
        let job = cluster.get(&format!("{JOBS}/j")).await.unwrap();
        if condition(&job, "Complete")["status"] == "True" {
            break;
        }
        for pod in cluster.list(PODS).await {
            if pod["status"]["phase"] != "Succeeded" {
                cluster.finish_pod("default", name(&pod), "Succeeded").await;
            }
        }
        round += 1;
        if round == life {
            (round, life) = (0, life + 1);
            cluster.kill_controllers();
            cluster.start_controllers(allot_controllers::Config::embedded());
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let job = cluster.get(&format!("{JOBS}/j")).await.unwrap();
    assert_eq!(condition(&job, "Complete")["status"], "True", "{job:#}");
    assert_eq!(job["status"]["succeeded"], 5, "{job:#}");
    assert!(job["status"]["completionTime"].is_string());
    let pods = cluster.list(PODS).await;
    assert_eq!(pods.len(), 5);
    assert!(
        pods.iter().all(|p| p["metadata"]["finalizers"].is_null()),
        "finalizers are gone"
    );
}

#[tokio::test]
async fn a_job_gives_up_after_its_backoff_limit() {
    let cluster = Cluster::start().await;
    let mut pod = template("j");
    pod["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"metadata": {"name": "j"}, "spec": {"backoffLimit": 0, "template": pod}});
    cluster.create(JOBS, job).await;
    let pods = cluster.until_count(PODS, 1).await;
    cluster
        .finish_pod("default", name(&pods[0]), "Failed")
        .await;
    let job = cluster
        .until(&format!("{JOBS}/j"), "failed", |j| {
            condition(j, "Failed")["status"] == "True"
        })
        .await;
    assert_eq!(condition(&job, "Failed")["reason"], "BackoffLimitExceeded");
    assert_eq!(job["status"]["failed"], 1);
}
