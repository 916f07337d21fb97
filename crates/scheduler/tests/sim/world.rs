//! What happens around the scheduler: nodes, pods that come and go, the claim controller, kills.

use std::time::Duration;

use allot_scheduler::{Config, run};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::api::{Api, devices_of};

const NODES: usize = 3;
const DEVICES: usize = 2;
const NAMESPACE: &str = "sim";

/// One simulated cluster.
pub struct World {
    api: Api,
    rng: StdRng,
    pods: usize,
}

impl World {
    /// Runs a seed; panics when an invariant is broken.
    pub fn run(seed: u64) {
        Self::trace(seed);
    }

    /// Runs a seed and says everything that was written.
    pub fn trace(seed: u64) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let api = Api::new(seed);
            let mut world = World {
                api: api.clone(),
                rng: StdRng::seed_from_u64(seed ^ 0x5eed),
                pods: 0,
            };
            world.live(seed).await;
            std::mem::take(&mut api.0.lock().trace)
        })
    }

    async fn live(&mut self, seed: u64) {
        self.fixtures();
        let mut scheduler = self.start();
        self.api.0.lock().faults = self.rng.random_range(0..20);
        for _ in 0..60 {
            match self.rng.random_range(0..12) {
                0..6 => self.create_pod(),
                6..9 => self.delete_pod(),
                9 => {
                    // Killed: nothing of it goes on.
                    scheduler.0.cancel();
                    scheduler.1.abort();
                    scheduler = self.start();
                }
                _ => {}
            }
            let pause = self.rng.random_range(1..150);
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                self.control_claims();
            }
            self.check(seed);
        }
        // No more faults: everything has to settle.
        self.api.0.lock().faults = 0;
        for _ in 0..400 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.control_claims();
            self.check(seed);
        }
        self.check_settled(seed);
        scheduler.0.cancel();
        let _ = scheduler.1.await;
    }

    fn start(&self) -> (CancellationToken, tokio::task::JoinHandle<()>) {
        let stop = CancellationToken::new();
        let (client, token) = (self.api.client(), stop.clone());
        let task = tokio::spawn(async move {
            run(client, Config::default(), token).await.expect("starts");
        });
        (stop, task)
    }

    fn fixtures(&self) {
        self.api
            .create("namespaces", json!({"metadata": {"name": NAMESPACE}}));
        let selector = json!([{"cel": {"expression": "device.driver == 'sim.example.com'"}}]);
        self.api.create(
            "deviceclasses",
            json!({"metadata": {"name": "device"}, "spec": {"selectors": selector}}),
        );
        for n in 0..NODES {
            let node = format!("n{n}");
            let amounts = json!({"cpu": "4", "memory": "4Gi", "pods": "20"});
            self.api.create(
                "nodes",
                json!({"metadata": {"name": node}, "spec": {}, "status": {"allocatable": amounts}}),
            );
            let devices: Vec<Value> = (0..DEVICES)
                .map(|d| json!({"name": format!("{node}-{d}")}))
                .collect();
            let spec = json!({
                "driver": "sim.example.com",
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            });
            self.api.create(
                "resourceslices",
                json!({"metadata": {"name": format!("slice-{node}")}, "spec": spec}),
            );
        }
    }

    /// A pod with a claim of its own, or with one that an earlier pod has.
    fn create_pod(&mut self) {
        let name = format!("p{}", self.pods);
        self.pods += 1;
        let claims = self.api.all("resourceclaims");
        let usable: Vec<&Value> = claims
            .iter()
            .filter(|c| c["metadata"]["deletionTimestamp"].is_null())
            .collect();
        let claim = if !usable.is_empty() && self.rng.random_range(0..4) == 0 {
            let at = self.rng.random_range(0..usable.len());
            usable[at]["metadata"]["name"]
                .as_str()
                .expect("named")
                .to_owned()
        } else {
            let claim = format!("c-{name}");
            let exactly =
                json!({"deviceClassName": "device", "allocationMode": "ExactCount", "count": 1});
            let spec = json!({"devices": {"requests": [{"name": "r", "exactly": exactly}]}});
            self.api.create(
                "resourceclaims",
                json!({"metadata": {"name": claim, "namespace": NAMESPACE}, "spec": spec}),
            );
            claim
        };
        let spec = json!({
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}],
            "resourceClaims": [{"name": "r", "resourceClaimName": claim}],
        });
        let status = json!({"phase": "Pending"});
        self.api.create("pods", json!({"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec, "status": status}));
    }

    fn delete_pod(&mut self) {
        let pods = self.api.all("pods");
        if !pods.is_empty() {
            let at = self.rng.random_range(0..pods.len());
            let name = pods[at]["metadata"]["name"].as_str().expect("named");
            self.api.delete("pods", NAMESPACE, name);
        }
    }

    /// What the claim controller does: drop reservations of pods that are gone, then the allocation, then the claim.
    fn control_claims(&self) {
        let pods = self.api.all("pods");
        for mut claim in self.api.all("resourceclaims") {
            let name = claim["metadata"]["name"]
                .as_str()
                .expect("named")
                .to_owned();
            let id = ("resourceclaims".to_owned(), format!("{NAMESPACE}/{name}"));
            let used = pods
                .iter()
                .any(|p| p["spec"]["resourceClaims"][0]["resourceClaimName"] == *name);
            let reserved = claim["status"]["reservedFor"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let valid: Vec<Value> = reserved
                .iter()
                .filter(|r| pods.iter().any(|p| p["metadata"]["uid"] == r["uid"]))
                .cloned()
                .collect();
            if valid.len() < reserved.len() {
                let none = valid.is_empty();
                claim["status"]["reservedFor"] = valid.into();
                if none {
                    claim["status"] = json!({});
                    claim["metadata"]["finalizers"] = json!([]);
                }
                self.api.put(id, claim);
            } else if !used && reserved.is_empty() {
                if devices_of(&claim).next().is_some() {
                    claim["status"] = json!({});
                }
                claim["metadata"]["finalizers"] = json!([]);
                self.api.put(id, claim);
                self.api.delete("resourceclaims", NAMESPACE, &name);
            }
        }
    }

    fn check(&self, seed: u64) {
        let broken = self.api.0.lock().broken.clone();
        if let Some(broken) = broken {
            let trace = self.api.0.lock().trace.join("\n");
            panic!("seed {seed}: {broken}\n{trace}");
        }
    }

    /// Nobody waits for a device that is free, and nothing is held by nobody.
    fn check_settled(&self, seed: u64) {
        let claims = self.api.all("resourceclaims");
        let pods = self.api.all("pods");
        let held: usize = claims.iter().map(|c| devices_of(c).count()).sum();
        let waiting: Vec<&Value> = pods
            .iter()
            .filter(|p| p["spec"]["nodeName"].is_null())
            .map(|p| &p["metadata"]["name"])
            .collect();
        let trace = || self.api.0.lock().trace.join("\n");
        assert!(
            waiting.is_empty() || held == NODES * DEVICES,
            "seed {seed}: {waiting:?} wait although only {held} devices are in use\n{}",
            trace()
        );
        for claim in &claims {
            let reserved = claim["status"]["reservedFor"]
                .as_array()
                .map_or(0, Vec::len);
            let used = devices_of(claim).count();
            assert!(
                used == 0 || reserved > 0,
                "seed {seed}: leaked {}\n{}",
                claim["metadata"]["name"],
                trace()
            );
        }
    }
}
