//! What happens around the scheduler in a cluster of an old release.

use std::time::Duration;

use allot_scheduler::Config;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::api::{Api, Release, Rules, State, Who, id};
use super::drivers::{Driver, claim_of};
use super::transport::Peer;

mod users;

const NODES: usize = 3;
const NAMESPACE: &str = "sim";
const RELEASES: [Release; 4] = [
    Release {
        minor: 26,
        versions: &["v1alpha1"],
    },
    Release {
        minor: 27,
        versions: &["v1alpha2"],
    },
    Release {
        minor: 29,
        versions: &["v1alpha2"],
    },
    Release {
        minor: 30,
        versions: &["v1alpha2"],
    },
];

const RULES: Rules = Rules {
    allow,
    broken: invariants,
};

/// What the real validation says about a change of a classic object.
fn allow(collection: &str, status: bool, old: &Value, new: &Value) -> bool {
    use allot_model::classic::{Kind, status_update, update};
    let errors = |kind| match status {
        true => status_update(kind, new, old),
        false => update(kind, new, old),
    };
    Kind::from_plural(collection).is_none_or(|kind| errors(kind).is_empty())
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Instances of structured resources that a claim holds.
fn instances(claim: &Value) -> Vec<String> {
    let handles = list(&claim["status"]["allocation"]["resourceHandles"]);
    let mut out = Vec::new();
    for handle in &handles {
        let data = &handle["structuredData"];
        for result in list(&data["results"]) {
            out.push(format!(
                "{}/{}",
                data["nodeName"], result["namedResources"]["name"]
            ));
        }
    }
    out
}

/// Exclusive claims have one user, instances one claim, and every bound pod its claims on its node.
fn invariants(s: &State) -> Option<String> {
    let objects = &s.objects;
    let mut held: Vec<String> = Vec::new();
    for ((collection, name), object) in objects {
        if collection == "resourceclaims" {
            let users = list(&object["status"]["reservedFor"]).len();
            if users > 1 && object["status"]["allocation"]["shareable"] != true {
                return Some(format!("{name} is reserved {users} times"));
            }
            for instance in instances(object) {
                if held.contains(&instance) {
                    return Some(format!("{instance} is in {name} and in another claim"));
                }
                held.push(instance);
            }
        }
        let done = matches!(text(&object["status"]["phase"]), "Succeeded" | "Failed");
        if collection != "pods" || object["spec"]["nodeName"].is_null() || done {
            continue;
        }
        let node = text(&object["spec"]["nodeName"]);
        for entry in list(&object["spec"]["resourceClaims"]) {
            let statuses = list(&object["status"]["resourceClaimStatuses"]);
            let status = statuses.iter().find(|s| s["name"] == entry["name"]);
            let claim = entry["resourceClaimName"]
                .as_str()
                .or_else(|| status.and_then(|s| s["resourceClaimName"].as_str()))
                .map_or_else(
                    || {
                        format!(
                            "{}-{}",
                            text(&object["metadata"]["name"]),
                            text(&entry["name"])
                        )
                    },
                    str::to_owned,
                );
            let key = ("resourceclaims".to_owned(), format!("{NAMESPACE}/{claim}"));
            let Some(claim) = objects.get(&key) else {
                return Some(format!("{name} is bound without claim {}", key.1));
            };
            let reserved = list(&claim["status"]["reservedFor"])
                .iter()
                .any(|r| r["uid"] == object["metadata"]["uid"]);
            let allocation = &claim["status"]["allocation"];
            let there =
                !allocation.is_null() && allocation.to_string().contains(&format!("\"{node}\""));
            if !reserved || !there {
                return Some(format!("{name} is bound to {node} with {claim}"));
            }
        }
    }
    None
}

/// One simulated cluster.
pub struct SimulatedCluster {
    api: Api,
    rng: StdRng,
    release: Release,
    drivers: Vec<Driver>,
    pods: usize,
    /// Drivers that do not run at present.
    down: Vec<bool>,
}

/// A process under test.
struct Running {
    peer: Peer,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl SimulatedCluster {
    /// Runs a seed; panics when an invariant is broken.
    pub fn run(seed: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut rng = StdRng::seed_from_u64(seed ^ 0xc1a5);
            let release = RELEASES[rng.random_range(0..RELEASES.len())];
            let api = Api::new(seed, release, RULES);
            let driver = |name, capacity, shareable, reserves| Driver {
                name,
                capacity,
                refuses: Vec::new(),
                shareable,
                reserves,
                held: Default::default(),
            };
            let drivers = vec![
                driver("a.example.com", rng.random_range(1..4), false, rng.random()),
                driver(
                    "b.example.com",
                    rng.random_range(1..4),
                    rng.random(),
                    rng.random(),
                ),
            ];
            let mut cluster = SimulatedCluster {
                api,
                rng,
                release,
                drivers,
                pods: 0,
                down: vec![false; 2],
            };
            cluster.live(seed).await;
        });
    }

    async fn live(&mut self, seed: u64) {
        self.fixtures();
        let mut scheduler = self.scheduler();
        let mut controller = self.controller();
        {
            let mut s = self.api.0.lock();
            (s.faults, s.breaks) = (self.rng.random_range(0..15), 5);
        }
        for _ in 0..40 {
            let event = self.rng.random_range(0..16);
            // 11 and 12 kill the scheduler and the controller.
            self.api.0.lock().trace.push(format!("event {event}"));
            match event {
                0..5 => self.create_pod(),
                5 => (0..4).for_each(|_| self.create_pod()),
                6..9 => self.delete_pod(),
                9 => self.finish_pod(),
                10 => self.delete_claim(),
                11 => {
                    kill(scheduler);
                    scheduler = self.scheduler();
                }
                12 => {
                    kill(controller);
                    controller = self.controller();
                }
                13 => {
                    let at = self.rng.random_range(0..2);
                    self.down[at] = !self.down[at];
                }
                14 => self.refuse(),
                _ => {}
            }
            let pause = self.rng.random_range(1..120);
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                let steps = self.rng.random_range(0..5);
                self.drive(steps);
                self.collect();
            }
            self.check(seed);
        }
        // No more faults: everything has to settle.
        {
            let mut s = self.api.0.lock();
            (s.faults, s.breaks) = (0, 0);
        }
        self.down = vec![false; 2];
        self.settle(seed).await;
        self.check_placed(seed);
        for pod in self.api.all("pods") {
            self.delete("pods", text(&pod["metadata"]["name"]));
        }
        self.settle(seed).await;
        for claim in self.api.all("resourceclaims") {
            let name = text(&claim["metadata"]["name"]);
            assert!(
                claim["metadata"]["ownerReferences"].is_null(),
                "seed {seed}: {name} is left over: {claim}\n{}",
                self.trace()
            );
            self.delete("resourceclaims", name);
        }
        self.settle(seed).await;
        self.check_empty(seed);
        kill(scheduler);
        kill(controller);
    }

    /// Waits until nothing has changed for longer than any backoff lasts.
    async fn settle(&mut self, seed: u64) {
        let mut quiet = 0;
        let mut version = 0;
        for _ in 0..600 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            self.drive(20);
            self.collect();
            self.check(seed);
            let now = self.api.version();
            quiet = if now == version { quiet + 1 } else { 0 };
            version = now;
            if quiet > 60 {
                return;
            }
        }
        panic!("seed {seed}: does not settle\n{}", self.trace());
    }

    fn scheduler(&self) -> Running {
        let (peer, stop) = (
            Peer::new(&self.api, Who::Scheduler(0)),
            CancellationToken::new(),
        );
        let run = allot_scheduler::run(peer.client(), Config::default(), stop.clone());
        let task = tokio::spawn(async move { run.await.expect("starts") });
        Running { peer, stop, task }
    }

    fn controller(&self) -> Running {
        let (peer, stop) = (
            Peer::new(&self.api, Who::Controllers),
            CancellationToken::new(),
        );
        let mut config = allot_controllers::Config::embedded();
        config.controllers = [allot_controllers::Controller::ResourceClaim].into();
        let run = allot_controllers::run(peer.client(), config, stop.clone());
        let task = tokio::spawn(async move { run.await.expect("starts") });
        Running { peer, stop, task }
    }

    fn trace(&self) -> String {
        let state =
            |c: &str| -> String { self.api.all(c).iter().map(|o| format!("{o}\n")).collect() };
        // The lock is given back before the objects are read.
        let written = self.api.0.lock().trace.join("\n");
        let pods = state("pods") + &state("resourceclaims") + &state(self.schedulings());
        format!("{written}\n{pods}")
    }

    fn check(&self, seed: u64) {
        let broken = self.api.0.lock().broken.clone();
        if let Some(broken) = broken {
            panic!("seed {seed}: {broken}\n{}", self.trace());
        }
    }

    /// No pod waits although there is a node for all of its claims.
    fn check_placed(&self, seed: u64) {
        for pod in self.api.all("pods") {
            if !pod["spec"]["nodeName"].is_null() {
                continue;
            }
            let node = (0..NODES)
                .map(|n| format!("n{n}"))
                .find(|n| self.fits(&pod, n));
            assert!(
                node.is_none(),
                "seed {seed} ({:?}): {} waits although {node:?} has room; {:?}\n{}",
                self.release,
                pod["metadata"]["name"],
                self.drivers
                    .iter()
                    .map(|d| (d.capacity, &d.refuses, &d.held))
                    .collect::<Vec<_>>(),
                self.trace()
            );
        }
    }

    /// Whether all claims of a pod could be allocated on a node, taking away those that only this pod uses.
    fn fits(&self, pod: &Value, node: &str) -> bool {
        let mut claims: Vec<Value> = Vec::new();
        for entry in list(&pod["spec"]["resourceClaims"]) {
            let Some(claim) = claim_of(&self.api, pod, &entry) else {
                return false;
            };
            if !claims.contains(&claim) {
                claims.push(claim);
            }
        }
        let own: Vec<&str> = claims.iter().map(|c| text(&c["metadata"]["uid"])).collect();
        let mut wanted = [0; 2];
        let mut structured = 0;
        for claim in &claims {
            let users = list(&claim["status"]["reservedFor"]);
            let others = users.iter().any(|u| u["uid"] != pod["metadata"]["uid"]);
            let allocation = &claim["status"]["allocation"];
            if !claim["metadata"]["deletionTimestamp"].is_null()
                || (others && allocation["shareable"] != true)
                || (others && !allocation.to_string().contains(&format!("\"{node}\"")))
            {
                return false;
            }
            match text(&claim["spec"]["resourceClassName"]) {
                _ if allocation.to_string().contains(&format!("\"{node}\"")) => {}
                "a" => wanted[0] += 1,
                "b" => wanted[1] += 1,
                _ => structured += 1,
            }
        }
        let used = self
            .api
            .all("resourceclaims")
            .into_iter()
            .filter(|c| !own.contains(&text(&c["metadata"]["uid"])));
        let used: usize = used
            .map(|c| {
                instances(&c)
                    .iter()
                    .filter(|i| i.starts_with(&format!("\"{node}\"")))
                    .count()
            })
            .sum();
        let kept = claims.iter().map(|c| {
            instances(c)
                .iter()
                .filter(|i| i.starts_with(&format!("\"{node}\"")))
                .count()
        });
        let kept: usize = kept.sum();
        (structured == 0 || used + kept + structured <= 2)
            && self.drivers.iter().zip(wanted).all(|(driver, wanted)| {
                // All of its claims would be there, also those that are there already.
                let class = &driver.name[..1];
                let all = claims
                    .iter()
                    .filter(|c| c["spec"]["resourceClassName"] == class);
                wanted == 0 || driver.can_take(node, all.count(), &own)
            })
    }

    fn check_empty(&self, seed: u64) {
        for collection in ["resourceclaims", self.schedulings()] {
            let left = self.api.all(collection);
            assert!(
                left.is_empty(),
                "seed {seed}: {collection} {left:?} left\n{}",
                self.trace()
            );
        }
        for driver in &self.drivers {
            assert!(
                driver.held.is_empty(),
                "seed {seed}: {} still holds {:?}\n{}",
                driver.name,
                driver.held,
                self.trace()
            );
        }
    }
}

/// Nothing of it continues.
fn kill(running: Running) {
    running.peer.kill();
    running.stop.cancel();
    running.task.abort();
}
