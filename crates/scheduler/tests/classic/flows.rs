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

/// A pod with a claim is scheduled, and everything is deleted with it.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_refuses_every_node_holds_the_pod_back() {
    let cluster = cluster(29, 2).await;
    cluster.class("other", "other.example.com", json!({})).await;
    let both = ["n0".to_owned(), "n1".to_owned()];
    cluster.driver(Model::new(DRIVER));
    let stubborn = cluster.driver(Model {
        refuses: both.into(),
        ..Model::new("other.example.com")
    });
    cluster.claim("a", json!({"resourceClassName": "k"})).await;
    cluster
        .claim("b", json!({"resourceClassName": "other"}))
        .await;
    let entries = json!([
        {"name": "a", "source": {"resourceClaimName": "a"}},
        {"name": "b", "source": {"resourceClaimName": "b"}},
    ]);
    cluster.pod("p", entries, json!({})).await;
    cluster
        .rejected(
            "p",
            "2 resourceclaim cannot be allocated for the node (unsuitable)",
        )
        .await;
    stubborn.model.lock().refuses = ["n0".to_owned()].into();
    assert_eq!(cluster.bound("p").await, "n1");
    stubborn.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_waits_for_room_and_gets_it() {
    let cluster = cluster(30, 2).await;
    cluster.driver(Model {
        capacity: Some(1),
        ..Model::new(DRIVER)
    });
    for name in ["p", "q", "r"] {
        cluster.pod(name, from_template("c"), json!({})).await;
    }
    let pods = "/api/v1/namespaces/default/pods";
    let placed = || async {
        let bound = cluster
            .list(pods)
            .await
            .into_iter()
            .filter(|p| p["spec"]["nodeName"].is_string());
        let bound: Vec<String> = bound
            .filter_map(|p| p["metadata"]["name"].as_str().map(str::to_owned))
            .collect();
        Some(bound)
    };
    let bound = cluster
        .until("two pods to be bound", || async {
            placed().await.filter(|b| b.len() == 2)
        })
        .await;
    let waits = ["p", "q", "r"]
        .into_iter()
        .find(|n| !bound.iter().any(|b| b == n))
        .expect("one waits");
    cluster.rejected(waits, "(unsuitable)").await;
    cluster.delete(&format!("{pods}/{}", bound[0])).await;
    // The driver looks at nodes that it refused again.
    cluster.bound(waits).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exclusive_claim_goes_from_pod_to_pod() {
    let cluster = cluster(28, 1).await;
    cluster.driver(Model::new(DRIVER));
    cluster.claim("c", json!({"resourceClassName": "k"})).await;
    cluster.pod("p", named("r", "c"), json!({})).await;
    cluster.bound("p").await;
    cluster.pod("q", named("r", "c"), json!({})).await;
    cluster.rejected("q", "resourceclaim in use").await;
    cluster.delete("/api/v1/namespaces/default/pods/p").await;
    cluster.bound("q").await;
    let claim = cluster
        .get(&format!("{}/c", cluster.claims()))
        .await
        .expect("a claim");
    assert_eq!(claim["status"]["reservedFor"][0]["name"], "q");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_pods_share_a_claim_that_can_be_shared() {
    let cluster = cluster(30, 2).await;
    cluster.driver(Model {
        network: true,
        ..Model::new(DRIVER)
    });
    let spec = json!({"resourceClassName": "k", "allocationMode": "Immediate"});
    cluster.claim("c", spec).await;
    for n in 0..5 {
        cluster
            .pod(&format!("p{n}"), named("r", "c"), json!({}))
            .await;
    }
    for n in 0..5 {
        cluster.bound(&format!("p{n}")).await;
    }
    let claim = cluster
        .get(&format!("{}/c", cluster.claims()))
        .await
        .expect("a claim");
    assert_eq!(
        claim["status"]["reservedFor"].as_array().map(Vec::len),
        Some(5)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn structured_parameters_need_no_driver_in_the_control_plane() {
    let cluster = Cluster::of(30).await;
    cluster.nodes(2).await;
    cluster
        .class("k", DRIVER, json!({"structuredParameters": true}))
        .await;
    cluster
        .template("t", json!({"resourceClassName": "k"}))
        .await;
    for node in ["n0", "n1"] {
        let slice = json!({
            "metadata": {"name": format!("s-{node}")}, "nodeName": node, "driverName": DRIVER,
            "namedResources": {"instances": [{"name": "instance-00"}]},
        });
        cluster
            .create(&cluster.path("", "resourceslices"), slice)
            .await;
    }
    let mut nodes = Vec::new();
    for name in ["p", "q"] {
        cluster.pod(name, from_template("c"), json!({})).await;
        nodes.push(cluster.bound(name).await);
    }
    nodes.sort();
    assert_eq!(nodes, ["n0", "n1"]);
    for claim in cluster.list(&cluster.claims()).await {
        assert_eq!(
            claim["metadata"]["finalizers"],
            json!(["dra.k8s.io/delete-protection"])
        );
        let handle = &claim["status"]["allocation"]["resourceHandles"][0];
        assert_eq!(
            handle["structuredData"]["results"][0]["namedResources"]["name"],
            "instance-00"
        );
    }
    cluster.pod("r", from_template("c"), json!({})).await;
    cluster
        .rejected(
            "r",
            "2 resourceclaim cannot be allocated for the node (unsuitable)",
        )
        .await;
    cluster.delete("/api/v1/namespaces/default/pods/p").await;
    cluster.bound("r").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_was_bound_by_hand_is_helped_from_1_28_on() {
    for minor in [27, 28] {
        let cluster = cluster(minor, 1).await;
        cluster.driver(Model {
            reserves: minor == 28,
            ..Model::new(DRIVER)
        });
        let bound = json!({"spec": {"nodeName": "n0"}});
        cluster.pod("p", from_template("r"), bound).await;
        let claim = || async {
            let claims = cluster.list(&cluster.claims()).await;
            claims.first().cloned()
        };
        if minor == 28 {
            cluster
                .until("the claim to be reserved", || async {
                    let claim = claim().await?;
                    claim["status"]["reservedFor"][0]["name"]
                        .as_str()
                        .map(str::to_owned)
                })
                .await;
            let talks = cluster.list(&cluster.schedulings()).await;
            assert_eq!(talks[0]["spec"], json!({"selectedNode": "n0"}));
        } else {
            let found = cluster.until("the claim", claim).await;
            assert_eq!(found["metadata"]["name"], "p-r");
            assert!(cluster.list(&cluster.schedulings()).await.is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_pod_uses_claims_of_both_generations() {
    let cluster = cluster(36, 2).await;
    cluster.driver(Model {
        refuses: ["n0".to_owned()].into(),
        ..Model::new(DRIVER)
    });
    let v1 = "/apis/resource.k8s.io/v1";
    let selector = json!([{"cel": {"expression": "device.driver == 'new.example.com'"}}]);
    let class = json!({"metadata": {"name": "new"}, "spec": {"selectors": selector}});
    cluster.create(&format!("{v1}/deviceclasses"), class).await;
    for node in ["n0", "n1"] {
        let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
        let spec = json!({"driver": "new.example.com", "nodeName": node, "pool": pool, "devices": [{"name": "d"}]});
        let slice = json!({"metadata": {"name": format!("s-{node}")}, "spec": spec});
        cluster.create(&format!("{v1}/resourceslices"), slice).await;
    }
    let request = json!([{"name": "r", "exactly": {"deviceClassName": "new"}}]);
    let template =
        json!({"metadata": {"name": "new"}, "spec": {"spec": {"devices": {"requests": request}}}});
    let templates = format!("{v1}/namespaces/default/resourceclaimtemplates");
    cluster.create(&templates, template).await;
    let entries = json!([
        {"name": "old", "resourceClaimTemplateName": "t"},
        {"name": "new", "resourceClaimTemplateName": "new"},
    ]);
    cluster.pod("p", entries, json!({})).await;
    assert_eq!(cluster.bound("p").await, "n1");
    let claims = cluster
        .list(&format!("{v1}/namespaces/default/resourceclaims"))
        .await;
    assert_eq!(claims.len(), 2);
    for claim in claims {
        assert_eq!(claim["status"]["reservedFor"][0]["name"], "p", "{claim}");
    }
    cluster.delete("/api/v1/namespaces/default/pods/p").await;
    cluster
        .until("both claims to go", || async {
            let left = cluster
                .list(&format!("{v1}/namespaces/default/resourceclaims"))
                .await;
            left.is_empty().then_some(())
        })
        .await;
}
