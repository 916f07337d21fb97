//! What a user sees: pods get their claims, are rejected with a reason, and give claims back.

use serde_json::{Value, json};

use super::cluster::{Cluster, DRIVER};
use super::driver::Model;

fn from_template(entry: &str) -> Value {
    json!([{"name": entry, "source": {"resourceClaimTemplateName": "t"}}])
}

fn named(entry: &str, claim: &str) -> Value {
    json!([{"name": entry, "source": {"resourceClaimName": claim}}])
}

/// A cluster with nodes, one class `k` of one driver, and a template `t` for it.
async fn cluster(minor: u8, nodes: usize) -> Cluster {
    let cluster = Cluster::of(minor).await;
    cluster.nodes(nodes).await;
    cluster.class("k", DRIVER, json!({})).await;
    cluster
        .template("t", json!({"resourceClassName": "k"}))
        .await;
    cluster
}

/// A pod with a claim of its own is scheduled, and everything is gone when it is.
async fn check_release(minor: u8) {
    let cluster = cluster(minor, 2).await;
    cluster.driver(Model::new(DRIVER));
    cluster.pod("p", from_template("r"), json!({})).await;
    let node = cluster.bound("p").await;
    let claims = cluster.list(&cluster.claims()).await;
    assert_eq!(claims.len(), 1);
    let claim = &claims[0];
    let name = claim["metadata"]["name"].as_str().unwrap_or_default();
    if minor <= 27 {
        assert_eq!(name, "p-r");
    } else {
        assert!(name.starts_with("p-r-") && name.len() == 9, "{name}");
    }
    assert!(claim["status"]["allocation"].to_string().contains(&node));
    assert_eq!(claim["status"]["reservedFor"][0]["name"], "p");
    cluster
        .until("the negotiation to end", || async {
            cluster
                .list(&cluster.schedulings())
                .await
                .is_empty()
                .then_some(())
        })
        .await;
    cluster.delete("/api/v1/namespaces/default/pods/p").await;
    cluster
        .until("the claim to go", || async {
            cluster
                .list(&cluster.claims())
                .await
                .is_empty()
                .then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_release_schedules_a_pod_with_a_claim() {
    for minor in [26, 27, 28, 29, 30, 36] {
        check_release(minor).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_of_a_name_waits_for_its_pod() {
    let cluster = cluster(27, 1).await;
    cluster.driver(Model {
        reserves: false,
        ..Model::new(DRIVER)
    });
    cluster.pod("p", named("r", "c"), json!({})).await;
    cluster.claim("c", json!({"resourceClassName": "k"})).await;
    cluster.bound("p").await;
    let claim = cluster
        .get(&format!("{}/c", cluster.claims()))
        .await
        .expect("a claim");
    assert_eq!(claim["status"]["reservedFor"][0]["name"], "p");
}
