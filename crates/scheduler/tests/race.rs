//! Two schedulers that do not know of each other, on one API server.
//!
//! Each has its own pods (by `schedulerName`), all want the same devices or the same claim. Every claim is decided by
//! the first write; the other scheduler gets a conflict and tries again. Every device is decided by the first write
//! into a claim; the other scheduler observes it in its watch and yields.

use std::collections::BTreeSet;
use std::time::Duration;

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use allot_scheduler::config::Profile;
use allot_scheduler::{Config, Metrics, run_with_metrics};
use allot_testing::wait::PATIENCE;
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const DEVICES: usize = 12;

struct Race {
    client: Client,
    stop: CancellationToken,
}

impl Race {
    /// An API server with devices on two nodes, and two schedulers.
    async fn start() -> Self {
        let server = Server::in_memory().await.expect("a server in memory");
        let client = Client::new(server.client_service(User::admin()), "default");
        let race = Self {
            client,
            stop: CancellationToken::new(),
        };
        race.fixtures().await;
        for name in ["red", "blue"] {
            let config = Config {
                profiles: vec![Profile {
                    name: name.into(),
                    ..Profile::default()
                }],
                ..Config::default()
            };
            let (client, stop) = (race.client.clone(), race.stop.clone());
            tokio::spawn(async move {
                run_with_metrics(client, config, Metrics::new(), stop)
                    .await
                    .expect("schedules");
            });
        }
        race
    }

    async fn fixtures(&self) {
        let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}});
        self.create("/apis/resource.k8s.io/v1/deviceclasses", class)
            .await;
        for n in 0..2 {
            let node = format!("n{n}");
            let amounts = json!({"cpu": "64", "memory": "64Gi", "pods": "200"});
            let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "status": {"allocatable": amounts, "capacity": amounts}});
            self.create("/api/v1/nodes", object).await;
            let devices: Vec<Value> = (0..DEVICES / 2)
                .map(|d| json!({"name": format!("d{d}")}))
                .collect();
            let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
            let spec = json!({"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": devices});
            let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec});
            self.create("/apis/resource.k8s.io/v1/resourceslices", slice)
                .await;
        }
    }

    async fn create(&self, path: &str, object: Value) {
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())
            .expect("a valid request");
        let created: Result<Value, _> = self.client.request(request).await;
        created.unwrap_or_else(|e| panic!("create in {path}: {e}"));
    }

    async fn claim(&self, name: &str) {
        let exactly = json!({"deviceClassName": "gpu"});
        let spec = json!({"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}});
        let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec});
        self.create(
            "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
            claim,
        )
        .await;
    }

    async fn pod(&self, name: &str, scheduler: &str, claim: &str) {
        let containers = json!([{"name": "c", "image": "example.com/c:1"}]);
        let claims = json!([{"name": "gpu", "resourceClaimName": claim}]);
        // No kubelet reports for the nodes, so they are tainted.
        let spec = json!({
            "schedulerName": scheduler,
            "tolerations": [{"operator": "Exists"}],
            "containers": containers,
            "resourceClaims": claims,
        });
        let pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        self.create("/api/v1/namespaces/default/pods", pod).await;
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        let request = http::Request::get(path)
            .body(Vec::new())
            .expect("a valid request");
        let list: Value = self.client.request(request).await.expect("a list");
        list["items"].as_array().cloned().unwrap_or_default()
    }

    async fn claims(&self) -> Vec<Value> {
        self.list("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims")
            .await
    }

    /// Waits until so many pods are bound; checks all the time that no device serves two claims of bound pods.
    async fn until_bound(&self, wanted: usize) -> Vec<Value> {
        self.until_bound_within(wanted, DEVICES).await
    }

    /// The same, with a quota that leaves bound pods so many devices.
    async fn until_bound_within(&self, wanted: usize, most: usize) -> Vec<Value> {
        let start = tokio::time::Instant::now();
        loop {
            let pods = self.list("/api/v1/namespaces/default/pods").await;
            let bound: Vec<Value> = pods
                .iter()
                .filter(|p| p["spec"]["nodeName"].is_string())
                .cloned()
                .collect();
            // After the pods: what a pod is bound with stays.
            let claims = self.claims().await;
            let claim_of = |p: &Value| p["spec"]["resourceClaims"][0]["resourceClaimName"].clone();
            let in_use = |c: &&Value| bound.iter().any(|p| claim_of(p) == c["metadata"]["name"]);
            let mut devices = BTreeSet::new();
            for result in claims.iter().filter(in_use).flat_map(results) {
                let device = (
                    result["pool"].clone().to_string(),
                    result["device"].to_string(),
                );
                assert!(devices.insert(device), "given twice: {result}");
            }
            assert!(devices.len() <= most, "over quota: {devices:?}");
            if bound.len() >= wanted {
                return bound;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{} of {wanted} pods are bound: {pods:#?}",
                bound.len()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Race {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn results(claim: &Value) -> Vec<Value> {
    let results = &claim["status"]["allocation"]["devices"]["results"];
    results.as_array().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_both_share_a_claim_that_one_of_them_allocated() {
    let race = Race::start().await;
    for round in 0..6 {
        let claim = format!("shared-{round}");
        race.claim(&claim).await;
        for scheduler in ["red", "blue"] {
            race.pod(&format!("{scheduler}-{round}"), scheduler, &claim)
                .await;
        }
        race.until_bound(2 * (round + 1)).await;
    }
    let bound = race.until_bound(12).await;
    for claim in race.claims().await {
        assert_eq!(results(&claim).len(), 1, "{claim:#}");
        let reserved = claim["status"]["reservedFor"].as_array().map(Vec::len);
        assert_eq!(reserved, Some(2), "{claim:#}");
        // Both pods are where the device is.
        let node = &results(&claim)[0]["pool"];
        let users = bound.iter().filter(|p| {
            p["spec"]["resourceClaims"][0]["resourceClaimName"] == claim["metadata"]["name"]
        });
        assert!(
            users.clone().all(|p| p["spec"]["nodeName"] == *node),
            "{claim:#}"
        );
        assert_eq!(users.count(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_device_serves_pods_of_both() {
    let race = Race::start().await;
    for n in 0..DEVICES {
        for scheduler in ["red", "blue"] {
            let name = format!("{scheduler}-{n}");
            race.claim(&name).await;
            race.pod(&name, scheduler, &name).await;
        }
    }
    // There are devices for half of them.
    race.until_bound(DEVICES).await;
    let held = race.claims().await.iter().flat_map(results).count();
    assert!(held >= DEVICES, "{held}");
}

/// Each scheduler allocates what the quota leaves as far as it knows; of both only as much is used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_both_stay_within_a_quota() {
    const NAME: &str = "gpu.deviceclass.allot.dev/allocated-devices";
    let race = Race::start().await;
    let hard = |most: usize| json!({"spec": {"hard": {NAME: most.to_string()}}});
    let mut quota = hard(3);
    quota["apiVersion"] = json!("v1");
    quota["kind"] = json!("ResourceQuota");
    quota["metadata"] = json!({"name": "team"});
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    race.create(quotas, quota).await;
    for n in 0..DEVICES / 2 {
        for scheduler in ["red", "blue"] {
            let name = format!("{scheduler}-{n}");
            race.claim(&name).await;
            race.pod(&name, scheduler, &name).await;
        }
    }
    race.until_bound_within(3, 3).await;
    let patch = http::Request::patch(format!("{quotas}/team"))
        .header("content-type", "application/merge-patch+json")
        .body(hard(8).to_string().into_bytes())
        .expect("a valid request");
    let _: Value = race.client.request(patch).await.expect("raised");
    race.until_bound_within(8, 8).await;
}
