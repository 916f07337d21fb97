//! What happens around scheduler and controllers: nodes, users, kubelets, the garbage collector, deaths.

use std::time::Duration;

use allot_controllers::config::Controller;
use allot_controllers::controller::clock::Clock;
use allot_model::features::{Feature, Features};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::api::{Api, Release, Rules, Who, at, devices_of, id};
use super::invariants::{self, claims_of, is_deleting, is_finished, name, owner_of, reserved_for};
use super::transport::Peer;
use super::workloads::{Mix, SECOND};

pub const NODES: usize = 3;
pub const DEVICES: usize = 3;
/// What a node has of processors, in thousandths.
pub const CPU: u64 = 1000;
/// How many things happen before everything has to settle.
const STEPS: usize = 60;
/// Features that are off by default: of the scheduler, of the groups.
const FEATURES: &str = "DRADeviceTaintRules=true,GenericWorkload=true,\
    DRAWorkloadResourceClaims=true,GangScheduling=true";
/// How long devices may take to get ready.
const BINDING_TIMEOUT: Duration = Duration::from_secs(3);
/// Nothing is written any longer for so long: longer than any backoff, shorter than the time after which the scheduler
/// tries everything again, so that a missed event shows.
const SETTLED: Duration = Duration::from_secs(25);
/// How long settling may take.
const SETTLING: Duration = Duration::from_secs(200);

const RELEASE: Release = Release {
    minor: 36,
    versions: &["v1", "v1beta2"],
};
const RULES: Rules = Rules {
    allow: invariants::allow,
    broken: invariants::broken,
};

/// One simulated cluster.
pub struct SimulatedCluster {
    pub api: Api,
    pub rng: StdRng,
    seed: u64,
    clock: Clock,
    /// How many pods there were.
    pub pods: usize,
    /// Whether there are two schedulers.
    pub second: bool,
    pub mix: Mix,
    /// Whether gangs preempt pods as a whole.
    pub groups_preempt: bool,
    /// The version up to which kubelets and the garbage collector have looked.
    looked: u64,
    running: Vec<Process>,
    /// Nodes that are closed, and until when.
    closed: Vec<(tokio::time::Instant, String)>,
}

/// A process under test.
struct Process {
    who: Who,
    peer: Peer,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Process {
    fn start(api: &Api, who: Who, clock: &Clock, groups_preempt: bool) -> Self {
        let (peer, stop) = (Peer::new(api, who), CancellationToken::new());
        let (client, token) = (peer.client(), stop.clone());
        let mut features = Features::default();
        features.set(FEATURES).expect("features");
        features = features.with(Feature::WorkloadAwarePreemption, groups_preempt);
        let clock = clock.clone();
        let task = tokio::spawn(async move {
            match who {
                Who::Scheduler(number) => {
                    let mut config = allot_scheduler::Config {
                        features,
                        clock,
                        ..Default::default()
                    };
                    config.profiles[0].dynamic_resources.binding_timeout = BINDING_TIMEOUT;
                    if number > 0 {
                        config.profiles[0].name = SECOND.into();
                    }
                    // Discovery may fail; the supervisor starts the scheduler again.
                    while !token.is_cancelled() {
                        let run =
                            allot_scheduler::run(client.clone(), config.clone(), token.clone());
                        if run.await.is_err() {
                            tokio::time::sleep(Duration::from_millis(200)).await;
                        }
                    }
                }
                Who::Controllers => {
                    let mut config = allot_controllers::Config::external();
                    config.clock = clock;
                    config.controllers =
                        [Controller::ResourceClaim, Controller::DeviceTaintEviction].into();
                    while !token.is_cancelled() {
                        let run =
                            allot_controllers::run(client.clone(), config.clone(), token.clone());
                        if run.await.is_err() {
                            tokio::time::sleep(Duration::from_millis(200)).await;
                        }
                    }
                }
            }
        });
        Self {
            who,
            peer,
            stop,
            task,
        }
    }

    fn kill(&self) {
        self.peer.kill();
        self.stop.cancel();
        self.task.abort();
    }
}

impl SimulatedCluster {
    /// Runs a seed and says everything that was written; panics when an invariant is broken.
    pub fn run(seed: u64) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut cluster = SimulatedCluster {
                api: Api::new(seed, RELEASE, RULES),
                rng: StdRng::seed_from_u64(seed ^ 0x5eed),
                seed,
                clock: Clock::tokio("2026-01-02T00:00:00Z".parse().expect("a time")),
                pods: 0,
                second: false,
                mix: Mix::All,
                groups_preempt: seed.is_multiple_of(4),
                looked: 0,
                running: Vec::new(),
                closed: Vec::new(),
            };
            cluster.live().await;
            std::mem::take(&mut cluster.api.0.lock().trace)
        })
    }

    async fn live(&mut self) {
        self.fixtures();
        self.second = self.rng.random_range(0..3) == 0;
        self.mix = [Mix::Devices, Mix::Parts, Mix::All][self.rng.random_range(0..3)];
        if self.rng.random_range(0..3) == 0 {
            self.create_quota();
        }
        let schedulers = (0..1 + usize::from(self.second)).map(Who::Scheduler);
        for who in schedulers.chain([Who::Controllers]) {
            self.running.push(Process::start(
                &self.api,
                who,
                &self.clock,
                self.groups_preempt,
            ));
        }
        {
            let mut s = self.api.0.lock();
            s.faults = self.rng.random_range(0..3) * 8;
            s.breaks = [0, 5, 20][self.rng.random_range(0..3)];
            s.deaths = self.rng.random_range(0..3) * 15;
            s.late = self.rng.random_range(0..2) * 60;
            if self.second || s.late > 0 {
                s.rules.broken = invariants::broken_among_rivals;
            }
        }
        for _ in 0..STEPS {
            self.something_happens();
            let pause = self.rng.random_range(1..150);
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                self.background(false);
            }
        }
        // No more faults: everything has to settle.
        let give_up = tokio::time::Instant::now() + SETTLING;
        {
            let mut s = self.api.0.lock();
            (s.faults, s.breaks, s.deaths) = (0, 0, 0);
        }
        let (step, mut quiet, mut version) = (Duration::from_millis(200), 0, 0);
        while quiet < SETTLED.as_millis() / step.as_millis() {
            tokio::time::sleep(step).await;
            self.background(true);
            let now = self.api.version();
            quiet = if now == version { quiet + 1 } else { 0 };
            version = now;
            if tokio::time::Instant::now() > give_up {
                self.fail_on(Some("it does not come to rest".to_owned()));
            }
        }
        let unsettled = invariants::unsettled(&self.api.0.lock(), NODES, DEVICES);
        self.fail_on(unsettled);
        self.running.iter().for_each(Process::kill);
    }

    fn fail_on(&self, broken: Option<String>) {
        if let Some(broken) = broken {
            let trace = self.api.0.lock().trace.join("\n");
            let (second, mix) = (self.second, self.mix);
            panic!(
                "{trace}\nseed {} ({mix:?}, second: {second}): {broken}",
                self.seed
            );
        }
    }

    /// What continues all the time.
    fn background(&mut self, settling: bool) {
        let broken = self.api.0.lock().broken.clone();
        self.fail_on(broken);
        let dead = std::mem::take(&mut self.api.0.lock().dead);
        for who in dead {
            self.restart(who);
        }
        self.make_ready(settling);
        let now = tokio::time::Instant::now();
        let open: Vec<_> = self.closed.extract_if(.., |(at, _)| *at <= now).collect();
        open.iter()
            .for_each(|(_, node)| self.set_cordoned(node, false));
        let version = self.api.version();
        if version != self.looked {
            self.kubelets();
            self.collect_garbage(settling);
            self.looked = version;
        }
    }

    fn restart(&mut self, who: Who) {
        for process in self.running.iter_mut().filter(|p| p.who == who) {
            process.kill();
            *process = Process::start(&self.api, who, &self.clock, self.groups_preempt);
        }
    }

    fn something_happens(&mut self) {
        match self.rng.random_range(0..28) {
            0..10 | 27 => self.create_some_pod(),
            10..13 => self.with_pod(|cluster, pod| {
                let _ = cluster.api.delete(&at("pods", pod), None);
            }),
            13..15 => self.with_pod(|cluster, pod| {
                if pod["spec"]["nodeName"].is_string() && !is_deleting(pod) {
                    cluster.set_phase(pod, "Succeeded");
                }
            }),
            15 | 16 => self.toggle_taint(),
            17 => self.toggle_rule(),
            18 => {
                let number = self.rng.random_range(0..2);
                self.restart(Who::Scheduler(number));
            }
            25 => self.restart_and_close(),
            19 => self.restart(Who::Controllers),
            26 => self.raise_quota(),
            20 => self.with_pod(Self::lose_claim),
            21..=24 => {
                let node = format!("n{}", self.rng.random_range(0..NODES));
                self.close(&node, 5000);
            }
            _ => {}
        }
    }

    fn with_pod(&mut self, act: impl FnOnce(&mut Self, &Value)) {
        let pods = self.api.all("pods");
        if !pods.is_empty() {
            let pod = &pods[self.rng.random_range(0..pods.len())];
            act(self, pod);
        }
    }

    /// An administrator closes a node for a while.
    fn close(&mut self, node: &str, longest: u64) {
        let after = Duration::from_millis(self.rng.random_range(0..longest));
        self.closed
            .push((tokio::time::Instant::now() + after, node.to_owned()));
        self.set_cordoned(node, true);
    }

    fn set_cordoned(&self, node: &str, closed: bool) {
        let at = id("nodes", "", node);
        if let Some(mut node) = self.api.get(&at) {
            node["spec"]["unschedulable"] = closed.into();
            let _ = self.api.put(at, node);
        }
    }

    /// The scheduler is started again, and the node closed for a moment on which a claim is reserved for a pod that is
    /// not there yet: the new one finds a reservation that it has not made, and that it cannot use.
    fn restart_and_close(&mut self) {
        self.restart(Who::Scheduler(0));
        let waits = |uid: &str| {
            let pods = self.api.all("pods");
            pods.iter()
                .any(|p| p["metadata"]["uid"] == *uid && p["spec"]["nodeName"].is_null())
        };
        let claims = self.api.all("resourceclaims");
        let claim = claims.iter().find(|c| reserved_for(c).any(waits));
        let device = claim.and_then(|c| devices_of(c).next());
        if let Some((node, _)) = device.and_then(|d| d.split_once('-')) {
            self.close(node, 1000);
        }
    }

    fn set_phase(&self, pod: &Value, phase: &str) {
        let mut pod = pod.clone();
        pod["status"]["phase"] = phase.into();
        let _ = self.api.put(at("pods", &pod), pod);
    }

    /// Kubelets start pods and finish their deletion.
    fn kubelets(&mut self) {
        for pod in self.api.all("pods") {
            if !pod["spec"]["nodeName"].is_string() {
                continue;
            }
            if is_deleting(&pod) {
                self.api.remove(&at("pods", &pod));
            } else if pod["status"]["phase"] == "Pending" {
                self.set_phase(&pod, "Running");
            }
        }
    }

    /// Generated claims go after their pods or groups, and users tidy up after themselves; groups stay at least as long as
    /// they have pods that have not finished.
    fn collect_garbage(&mut self, settling: bool) {
        let pods = self.api.all("pods");
        for group in self.api.all("podgroups") {
            let of = |p: &&Value| p["spec"]["schedulingGroup"]["podGroupName"] == *name(&group);
            let empty = pods.iter().filter(of).all(is_finished);
            if empty && (settling || self.rng.random_range(0..8) == 0) {
                let _ = self.api.delete(&at("podgroups", &group), None);
            }
        }
        let groups = self.api.all("podgroups");
        for claim in self.api.all("resourceclaims") {
            let mut users = pods.iter().chain(&groups);
            let unused = match owner_of(&claim) {
                Some(uid) => users.all(|u| u["metadata"]["uid"] != *uid),
                None => {
                    reserved_for(&claim).next().is_none()
                        && users.all(|u| claims_of(u).iter().flatten().all(|c| c != name(&claim)))
                }
            };
            if unused && !is_deleting(&claim) {
                let _ = self.api.delete(&at("resourceclaims", &claim), None);
            }
        }
    }
}
