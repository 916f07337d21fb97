//! The life of claims.

use serde_json::{Value, json};

use super::harness::{Cluster, name};

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
const PODS: &str = "/api/v1/namespaces/default/pods";
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

fn claim_spec() -> Value {
    json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}})
}

async fn template(cluster: &Cluster) {
    let template = json!({
        "metadata": {"name": "t"},
        "spec": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": claim_spec()},
    });
    cluster.create(TEMPLATES, template).await;
}

fn pod(pod: &str, claim: Value) -> Value {
    let mut entry = claim;
    entry["name"] = json!("gpu");
    json!({
        "metadata": {"name": pod},
        "spec": {
            "containers": [{"name": "main", "image": "registry.invalid/main:1", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [entry],
        },
    })
}

fn from_template(name: &str) -> Value {
    pod(name, json!({"resourceClaimTemplateName": "t"}))
}

async fn generated(cluster: &Cluster, pod: &str) -> String {
    let pod = cluster
        .until(&format!("{PODS}/{pod}"), "given a claim", |p| {
            p["status"]["resourceClaimStatuses"][0]["resourceClaimName"].is_string()
        })
        .await;
    pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Allocates and reserves as the scheduler would.
async fn allocate(cluster: &Cluster, claim: &str, pod: &Value) {
    let path = format!("{CLAIMS}/{claim}");
    cluster
        .patch(&path, json!({"metadata": {"finalizers": [FINALIZER]}}))
        .await;
    let status = json!({"status": {
        "allocation": {"devices": {"results": [
            {"request": "gpu", "driver": "d.example.com", "pool": "n1", "device": "gpu-0"},
        ]}},
        "reservedFor": [{"resource": "pods", "name": name(pod), "uid": pod["metadata"]["uid"]}],
    }});
    cluster.patch(&format!("{path}/status"), status).await;
}

#[tokio::test]
async fn a_pod_gets_a_claim_from_its_template() {
    let cluster = Cluster::start().await;
    template(&cluster).await;
    let pod = cluster.create(PODS, from_template("p")).await;
    let claim = generated(&cluster, "p").await;
    let claim = cluster.get(&format!("{CLAIMS}/{claim}")).await.unwrap();
    assert!(name(&claim).starts_with("p-gpu-"), "{claim}");
    let metadata = &claim["metadata"];
    assert_eq!(metadata["labels"], json!({"a": "b"}));
    assert_eq!(
        metadata["annotations"],
        json!({"c": "d", "resource.kubernetes.io/pod-claim-name": "gpu"})
    );
    assert_eq!(
        metadata["ownerReferences"],
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "controller": true}])
    );
    assert_eq!(
        claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"],
        "gpu"
    );
    // It comes with the allocation.
    assert_eq!(metadata["finalizers"], Value::Null);
}

/// Its scheduler died before it wrote the claim's name into the pod's status. Found by simulation.
#[tokio::test]
async fn regression_an_extended_resource_claim_is_deleted_with_a_pod_that_does_not_name_it() {
    let cluster = Cluster::start().await;
    let mut pod = pod("p", json!({"resourceClaimName": "none"}));
    pod["spec"]["resourceClaims"] = Value::Null;
    pod["spec"]["containers"][0]["resources"] = Value::Null;
    let pod = cluster.create(PODS, pod).await;
    let claim = json!({
        "metadata": {
            "name": "special",
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "finalizers": [FINALIZER],
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "controller": true,
            }],
        },
        "spec": claim_spec(),
    });
    cluster.create(CLAIMS, claim).await;
    allocate(&cluster, "special", &pod).await;
    let path = format!("{CLAIMS}/special");
    // Marked, and kept for the pod; nothing about the claim changes when the mark is removed.
    cluster.delete(&path).await;
    cluster.delete(&format!("{PODS}/p")).await;
    cluster.until_gone(&path).await;
}

/// Where many pods wait for claims, the scheduler is spared a write for each; nothing else is different.
#[tokio::test]
async fn claims_for_many_pods_at_once_are_made_with_their_finalizer() {
    const MANY: usize = 200;
    let mut cluster = Cluster::bare().await;
    template(&cluster).await;
    for i in 0..MANY {
        cluster.create(PODS, from_template(&format!("p{i}"))).await;
    }
    cluster.start_controllers(allot_controllers::Config::embedded());
    let claims = cluster.until_count(CLAIMS, MANY).await;
    let protected = |c: &Value| c["metadata"]["finalizers"] == json!([FINALIZER]);
    assert!(claims.iter().any(protected));
    for i in 0..MANY {
        cluster.delete(&format!("{PODS}/p{i}")).await;
    }
    cluster.until_count(CLAIMS, 0).await;
}

#[tokio::test]
async fn a_missing_template_is_reported_and_waited_for() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, from_template("p")).await;
    let events = cluster
        .until("/api/v1/namespaces/default/events", "an event", |l| {
            l["items"].as_array().is_some_and(|i| {
                i.iter()
                    .any(|e| e["reason"] == "FailedResourceClaimCreation")
            })
        })
        .await;
    let event = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["reason"] == "FailedResourceClaimCreation")
        .unwrap();
    assert_eq!(event["type"], "Warning");
    assert_eq!(
        event["message"],
        "PodResourceClaim gpu: resource claim template \"t\": resourceclaimtemplate.resource.k8s.io \"t\" not found"
    );
    template(&cluster).await;
    generated(&cluster, "p").await;
}

#[tokio::test]
async fn a_lost_claim_is_made_again() {
    let cluster = Cluster::start().await;
    template(&cluster).await;
    cluster.create(PODS, from_template("p")).await;
    let first = generated(&cluster, "p").await;
    cluster.delete(&format!("{CLAIMS}/{first}")).await;
    cluster
        .until(&format!("{PODS}/p"), "given another claim", |p| {
            let name = &p["status"]["resourceClaimStatuses"][0]["resourceClaimName"];
            name.is_string() && *name != json!(first)
        })
        .await;
    cluster.until_count(CLAIMS, 1).await;
}

#[tokio::test]
async fn a_finished_pod_gives_its_generated_claim_back() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    template(&cluster).await;
    let pod = cluster.create(PODS, from_template("p")).await;
    let claim = generated(&cluster, "p").await;
    allocate(&cluster, &claim, &pod).await;
    cluster.bind("default", "p", "n1").await;
    cluster.run_pod("default", "p").await;
    cluster.finish_pod("default", "p", "Succeeded").await;
    cluster.until_gone(&format!("{CLAIMS}/{claim}")).await;
    assert!(
        cluster.get(&format!("{PODS}/p")).await.is_some(),
        "the pod stays"
    );
}

#[tokio::test]
async fn a_shared_claim_is_released_by_its_last_user_only() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    cluster
        .create(
            CLAIMS,
            json!({"metadata": {"name": "c"}, "spec": claim_spec()}),
        )
        .await;
    let named = json!({"resourceClaimName": "c"});
    let one = cluster.create(PODS, pod("one", named.clone())).await;
    let two = cluster.create(PODS, pod("two", named)).await;
    allocate(&cluster, "c", &one).await;
    let both: Vec<Value> = [&one, &two]
        .iter()
        .map(|p| json!({"resource": "pods", "name": name(p), "uid": p["metadata"]["uid"]}))
        .collect();
    let path = format!("{CLAIMS}/c");
    cluster
        .patch(
            &format!("{path}/status"),
            json!({"status": {"reservedFor": both}}),
        )
        .await;
    cluster.bind("default", "one", "n1").await;
    cluster.bind("default", "two", "n1").await;
    cluster.finish_pod("default", "one", "Failed").await;
    let claim = cluster
        .until(&path, "reserved for one pod", |c| {
            c["status"]["reservedFor"]
                .as_array()
                .is_some_and(|r| r.len() == 1)
        })
        .await;
    assert_eq!(claim["status"]["reservedFor"][0]["name"], "two");
    assert!(claim["status"]["allocation"].is_object());
    cluster
        .delete_with(&format!("{PODS}/two"), json!({"gracePeriodSeconds": 0}))
        .await;
    let claim = cluster
        .until(&path, "deallocated", |c| {
            c["status"]["allocation"].is_null()
        })
        .await;
    assert!(claim["status"]["reservedFor"].is_null());
    cluster
        .until(&path, "without finalizer", |c| {
            c["metadata"]["finalizers"].is_null()
        })
        .await;
}

#[tokio::test]
async fn a_deleted_claim_waits_for_its_user() {
    let cluster = Cluster::start().await;
    cluster
        .create(
            CLAIMS,
            json!({"metadata": {"name": "c"}, "spec": claim_spec()}),
        )
        .await;
    let pod = cluster
        .create(PODS, pod("p", json!({"resourceClaimName": "c"})))
        .await;
    allocate(&cluster, "c", &pod).await;
    let path = format!("{CLAIMS}/c");
    cluster.delete(&path).await;
    let claim = cluster.get(&path).await.expect("protected");
    assert!(claim["metadata"]["deletionTimestamp"].is_string());
    assert!(claim["status"]["allocation"].is_object());
    cluster
        .delete_with(&format!("{PODS}/p"), json!({"gracePeriodSeconds": 0}))
        .await;
    cluster.until_gone(&path).await;
}

#[tokio::test]
async fn a_pod_bound_without_scheduler_is_entered() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    cluster
        .create(
            CLAIMS,
            json!({"metadata": {"name": "c"}, "spec": claim_spec()}),
        )
        .await;
    let one = cluster
        .create(PODS, pod("one", json!({"resourceClaimName": "c"})))
        .await;
    allocate(&cluster, "c", &one).await;
    let mut two = pod("two", json!({"resourceClaimName": "c"}));
    two["spec"]["nodeName"] = json!("n1");
    cluster.create(PODS, two).await;
    cluster
        .until(&format!("{CLAIMS}/c"), "reserved for both", |c| {
            c["status"]["reservedFor"]
                .as_array()
                .is_some_and(|r| r.len() == 2)
        })
        .await;
}

#[tokio::test]
async fn killed_at_any_moment_it_makes_one_claim_per_entry() {
    let mut cluster = Cluster::bare().await;
    template(&cluster).await;
    for i in 0..10 {
        cluster.create(PODS, from_template(&format!("p{i}"))).await;
    }
    for round in 0..8 {
        cluster.start_controllers(allot_controllers::Config::embedded());
        tokio::time::sleep(std::time::Duration::from_millis(3 * round)).await;
        cluster.kill_controllers();
    }
    cluster.start_controllers(allot_controllers::Config::embedded());
    for i in 0..10 {
        generated(&cluster, &format!("p{i}")).await;
    }
    assert_eq!(cluster.list(CLAIMS).await.len(), 10);
}

const GROUPS: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups";

#[tokio::test]
async fn a_group_has_one_claim_for_all_of_its_pods() {
    let cluster = Cluster::start_with_groups().await;
    template(&cluster).await;
    let entry = json!({"name": "gpu", "resourceClaimTemplateName": "t"});
    let spec = json!({"schedulingPolicy": {"basic": {}}, "resourceClaims": [entry]});
    let group = cluster
        .create(GROUPS, json!({"metadata": {"name": "g"}, "spec": spec}))
        .await;
    let mut names = Vec::new();
    for name in ["p", "q"] {
        let mut pod = from_template(name);
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
        cluster.create(PODS, pod).await;
        names.push(generated(&cluster, name).await);
    }
    assert_eq!(names[0], names[1]);
    assert!(names[0].starts_with("g-gpu-"), "{names:?}");
    let path = format!("{CLAIMS}/{}", names[0]);
    let claim = cluster.get(&path).await.unwrap();
    let owner = &claim["metadata"]["ownerReferences"][0];
    assert_eq!(owner["kind"], "PodGroup");
    assert_eq!(owner["uid"], group["metadata"]["uid"]);

    // The group keeps the devices when its pods are deleted, and releases them when it is deleted itself.
    cluster
        .patch(&path, json!({"metadata": {"finalizers": [FINALIZER]}}))
        .await;
    let consumer = json!({
        "apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": group["metadata"]["uid"],
    });
    let device =
        json!({"request": "gpu", "driver": "d.example.com", "pool": "n1", "device": "gpu-0"});
    let status =
        json!({"allocation": {"devices": {"results": [device]}}, "reservedFor": [consumer]});
    cluster
        .patch(&format!("{path}/status"), json!({"status": status}))
        .await;
    for name in ["p", "q"] {
        cluster.delete(&format!("{PODS}/{name}")).await;
    }
    cluster.until_gone(&format!("{PODS}/q")).await;
    let claim = cluster.get(&path).await.unwrap();
    assert_eq!(claim["status"]["reservedFor"], json!([consumer]));
    cluster.delete(&format!("{GROUPS}/g")).await;
    cluster.until_gone(&path).await;
}

/// A pod whose group was created later had its own claim by then, and lost it to the group's when it was on a node.
#[tokio::test]
async fn a_pod_waits_for_the_claim_of_a_group_that_is_not_there_yet() {
    let cluster = Cluster::start_with_groups().await;
    template(&cluster).await;
    let mut pod = from_template("p");
    pod["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
    cluster.create(PODS, pod).await;
    // Pods are handled one after the other in the order in which they came.
    cluster.create(PODS, from_template("other")).await;
    generated(&cluster, "other").await;
    assert_eq!(cluster.list(CLAIMS).await.len(), 1);
    let entry = json!({"name": "gpu", "resourceClaimTemplateName": "t"});
    let spec = json!({"schedulingPolicy": {"basic": {}}, "resourceClaims": [entry]});
    cluster
        .create(GROUPS, json!({"metadata": {"name": "g"}, "spec": spec}))
        .await;
    let name = generated(&cluster, "p").await;
    assert!(name.starts_with("g-gpu-"), "{name}");
    assert_eq!(cluster.list(CLAIMS).await.len(), 2);
}

#[tokio::test]
async fn a_group_is_kept_while_a_pod_is_in_it() {
    let cluster = Cluster::start_with_groups().await;
    for name in ["used", "other"] {
        let spec = json!({"schedulingPolicy": {"basic": {}}});
        let made = cluster
            .create(GROUPS, json!({"metadata": {"name": name}, "spec": spec}))
            .await;
        let finalizers = json!(["scheduling.k8s.io/podgroup-protection"]);
        assert_eq!(made["metadata"]["finalizers"], finalizers);
    }
    for name in ["ends", "goes"] {
        let spec = json!({
            "containers": [{"name": "c", "image": "i"}], "schedulingGroup": {"podGroupName": "used"},
        });
        cluster
            .create(PODS, json!({"metadata": {"name": name}, "spec": spec}))
            .await;
    }
    cluster.delete(&format!("{GROUPS}/used")).await;
    cluster.delete(&format!("{GROUPS}/other")).await;
    // The controller has looked at both: one has no pods.
    cluster.until_gone(&format!("{GROUPS}/other")).await;
    let ends = format!("{PODS}/ends");
    let status = json!({"status": {"phase": "Succeeded"}});
    cluster.patch(&format!("{ends}/status"), status).await;
    cluster.delete(&format!("{GROUPS}/used")).await;
    let used = cluster.get(&format!("{GROUPS}/used")).await;
    assert!(used.is_some(), "a pod is still in it");
    cluster.delete(&format!("{PODS}/goes")).await;
    cluster.until_gone(&format!("{GROUPS}/used")).await;
    assert!(cluster.get(&ends).await.is_some());
}
