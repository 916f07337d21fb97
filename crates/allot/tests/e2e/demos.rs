//! Every demo of `examples/demos` does what its first lines say, on the cluster that they start.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{AttachParams, DeleteParams, LogParams};
use kube::runtime::wait::{Condition, await_condition, conditions};
use serde_json::Value;

use super::demo_table::{DEMOS, Demo, Step};
use super::harness::{PATIENCE, Up, api_of, apply, example, exec_in, objects};
use super::modelled::allot;

/// The words of the first command in the comments of a manifest, without `allot up`.
pub(super) fn flags(manifest: &str) -> Option<Vec<String>> {
    let mut lines = manifest.lines().take_while(|line| line.starts_with('#'));
    let command = lines.find_map(|line| line.strip_prefix("#   allot up"))?;
    Some(command.split_whitespace().map(str::to_owned).collect())
}

/// The demos that start with the flags.
fn of(flags: &[&str]) -> Vec<&'static Demo> {
    let has = |demo: &&Demo| self::flags(&example(demo.file)).is_some_and(|it| it == flags);
    let demos: Vec<_> = DEMOS.iter().filter(has).collect();
    assert!(!demos.is_empty(), "no demo starts with {flags:?}");
    demos
}

/// Starts a cluster with the flags, and plays the demos that are for it one after the other.
async fn play(flags: &[&str]) {
    let up = Up::in_memory_with(flags).await;
    for demo in of(flags) {
        Play::new(&up, demo).run().await;
    }
}

/// The command lines that a test below is for.
pub(super) const PLAYED: [&[&str]; 10] = [
    WHOLE,
    GROUPS,
    TAINTS,
    BINDING,
    PARTITIONS,
    SHARED,
    SHARED_PARTITIONS,
    NODE_RESOURCES,
    BANDWIDTH,
    SIMULATED,
];
const WHOLE: &[&str] = &[];
const GROUPS: &[&str] = &[
    "--feature-gates",
    "GenericWorkload=true,GangScheduling=true,DRAWorkloadResourceClaims=true",
];
const TAINTS: &[&str] = &["--feature-gates", "DRADeviceTaintRules=true"];
const BINDING: &[&str] = &["--binding-conditions", "--gpu-device-status"];
const PARTITIONS: &[&str] = &["--gpu-partitions", "4", "--num-devices", "2"];
const SHARED: &[&str] = &["--gpu-allow-multiple-allocations", "--num-devices", "1"];
const SHARED_PARTITIONS: &[&str] = &[
    "--gpu-allow-multiple-allocations",
    "--gpu-partitions",
    "4",
    "--num-devices",
    "1",
];
const NODE_RESOURCES: &[&str] = &[
    "--hardware",
    "example-cpu",
    "--feature-gates",
    "DRANodeAllocatableResources=true",
];
const BANDWIDTH: &[&str] = &["--hardware", "example-net"];
const SIMULATED: &[&str] = &["--hardware", "example-gpu", "--runtime", "simulated"];

#[tokio::test(flavor = "multi_thread")]
async fn demos_of_whole_gpus() {
    play(WHOLE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn demos_of_pod_groups() {
    play(GROUPS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn demos_of_taints() {
    for demo in of(TAINTS) {
        // No rule of one demo evicts pods of another one: controllers see late that it was deleted.
        let up = Up::in_memory_with(TAINTS).await;
        Play::new(&up, demo).run().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn demos_of_binding_conditions() {
    play(BINDING).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn demos_of_partitions() {
    play(PARTITIONS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn demos_of_shared_gpus() {
    play(SHARED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn demos_of_shared_partitions() {
    play(SHARED_PARTITIONS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn demos_of_node_resources() {
    play(NODE_RESOURCES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn demos_of_bandwidth() {
    play(BANDWIDTH).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn demos_of_health() {
    play(SIMULATED).await;
}

/// One demo on its cluster.
struct Play<'a> {
    up: &'a Up,
    demo: &'a Demo,
    /// The namespaces of its pods.
    namespaces: BTreeMap<String, String>,
    /// Manifests that are applied, in the order in which they were.
    applied: Vec<&'static str>,
}

impl<'a> Play<'a> {
    fn new(up: &'a Up, demo: &'a Demo) -> Self {
        Self {
            up,
            demo,
            namespaces: BTreeMap::new(),
            applied: Vec::new(),
        }
    }

    async fn run(mut self) {
        self.apply(self.demo.file).await;
        for step in self.demo.steps {
            self.step(step).await;
        }
        while let Some(file) = self.applied.last().copied() {
            self.delete(file).await;
        }
    }

    async fn step(&mut self, step: &'static Step) {
        match step {
            Step::Apply(file) => self.apply(file).await,
            Step::Delete(file) => self.delete(file).await,
            Step::Run(pods) => {
                for pod in *pods {
                    self.wait_until(pod, "run", conditions::is_pod_running())
                        .await;
                }
            }
            Step::Waits(pod) => {
                self.wait_until(pod, "wait for devices", lacks_devices)
                    .await;
            }
            Step::Evicted(pod) => {
                self.wait_until(pod, "be evicted", |pod: Option<&Pod>| pod.is_none())
                    .await;
            }
            Step::Stays(pod) => {
                let found = self.pods(pod).get(pod).await.expect(pod);
                let deleted = found.metadata.deletion_timestamp.is_some();
                let runs = conditions::is_pod_running();
                assert!(!deleted && runs.matches_object(Some(&found)), "{found:#?}");
            }
            Step::Devices(pod, container, count) => {
                let devices = self.devices(pod, container).await;
                assert_eq!(devices.len(), *count, "{pod} {container}: {devices:?}");
            }
            Step::Same(containers) => {
                let seen = self.devices_of_all(containers).await;
                let different: BTreeSet<_> = seen.iter().collect();
                assert_eq!(different.len(), 1, "{containers:?}: {seen:?}");
            }
            Step::Different(containers) => {
                let seen = self.devices_of_all(containers).await;
                let different: BTreeSet<_> = seen.iter().flatten().collect();
                let all: usize = seen.iter().map(BTreeSet::len).sum();
                assert_eq!(different.len(), all, "{containers:?}: {seen:?}");
            }
            Step::Environment(pod, container, wanted) => {
                let environment = self.environment(pod, container).await;
                for wanted in *wanted {
                    let found = environment.iter().any(|line| line.ends_with(wanted));
                    assert!(found, "{pod} {container}: {wanted} in {environment:?}");
                }
            }
            Step::Claims(pods, check) => {
                let mut claims = Vec::new();
                for pod in *pods {
                    claims.extend(self.claims(pod).await);
                }
                check(&claims);
            }
            Step::Tainted(gpu) => self.tainted(gpu).await,
            Step::Pod(pod, what, condition) => {
                let condition = |pod: Option<&Pod>| pod.is_some_and(|pod| condition(&json(pod)));
                self.wait_until(pod, what, condition).await;
            }
            Step::Allot(arguments) => {
                let ended = allot(self.up, arguments);
                assert!(ended.is_ok(), "{arguments:?}: {ended:?}");
            }
        }
    }

    async fn apply(&mut self, file: &'static str) {
        let manifest = example(file);
        for object in objects(&manifest) {
            let name = object.metadata.name.expect("a name");
            let namespace = object.metadata.namespace;
            let namespace = namespace.unwrap_or_else(|| "default".to_owned());
            self.namespaces.insert(name, namespace);
        }
        apply(&self.up.client, &manifest).await;
        self.applied.push(file);
    }

    /// Removes what a manifest holds. Nothing waits for the end of its pods: those of other demos do that, if they need
    /// their devices.
    async fn delete(&mut self, file: &'static str) {
        for object in objects(&example(file)) {
            let api = api_of(&self.up.client, &object).await;
            let name = object.metadata.name.expect("a name");
            // What was evicted is gone already.
            let _ = api.delete(&name, &DeleteParams::default()).await;
        }
        self.applied.retain(|applied| *applied != file);
    }

    /// Creates pods for a GPU until the scheduler rejects one.
    async fn tainted(&self, gpu: &str) {
        let index = gpu.trim_start_matches("gpu-");
        for number in 0..100 {
            let name = format!("probe-{number}");
            let pod = format!(
                "
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: {name}}}
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: gpu.example.com
        selectors: [{{cel: {{expression: 'device.attributes[\"gpu.example.com\"].index == {index}'}}}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  containers: [{{name: ctr, image: none, command: [sleep, '600'], resources: {{claims: [{{name: gpu}}]}}}}]
  resourceClaims: [{{name: gpu, resourceClaimName: {name}}}]
"
            );
            self.up.create(&pod).await;
            let decided = |pod: Option<&Pod>| {
                let node = pod.and_then(|pod| pod.spec.as_ref()?.node_name.as_ref());
                // The first ones may be evicted.
                pod.is_none() || node.is_some() || lacks_devices(pod)
            };
            self.wait_until(&name, "be decided about", decided).await;
            let pods = self.pods(&name);
            let refused = pods.get_opt(&name).await.expect("an answer");
            let now = DeleteParams::default().grace_period(0);
            let _ = pods.delete(&name, &now).await;
            self.wait_until(&name, "go", |pod: Option<&Pod>| pod.is_none())
                .await;
            if lacks_devices(refused.as_ref()) {
                return;
            }
        }
        panic!("{}: {gpu} is not tainted", self.demo.file);
    }

    fn namespace(&self, name: &str) -> &str {
        self.namespaces.get(name).map_or("default", String::as_str)
    }

    fn pods(&self, pod: &str) -> Api<Pod> {
        Api::namespaced(self.up.client.clone(), self.namespace(pod))
    }

    async fn wait_until(&self, pod: &str, what: &str, condition: impl Condition<Pod>) {
        let pods = self.pods(pod);
        let done = await_condition(pods.clone(), pod, condition);
        match tokio::time::timeout(PATIENCE, done).await {
            Ok(result) => drop(result.expect("watch")),
            Err(_) => panic!(
                "{}: {pod} did not {what}: {:#?}",
                self.demo.file,
                pods.get_opt(pod).await
            ),
        }
    }

    /// The environment of a container; that of an init container is read from its log, which it wrote with `export`.
    async fn environment(&self, pod: &str, container: &str) -> Vec<String> {
        let pods = self.pods(pod);
        let status = json(&pods.get(pod).await.expect(pod))["status"].clone();
        let inits = status["initContainerStatuses"].as_array().into_iter();
        let mut ended = inits.flatten().filter(|it| it["name"] == container);
        let text = match ended.next() {
            Some(_) => {
                let params = LogParams {
                    container: Some(container.to_owned()),
                    ..LogParams::default()
                };
                pods.logs(pod, &params).await.expect("a log")
            }
            None => {
                let params = AttachParams::default().container(container).stderr(false);
                exec_in(&pods, params, pod, &["printenv"]).await
            }
        };
        let lines = text.lines().map(|line| {
            let line = line.strip_prefix("export ").unwrap_or(line);
            line.replace(['\'', '"'], "")
        });
        lines.collect()
    }

    /// The devices of the example drivers that a container sees by its environment.
    async fn devices(&self, pod: &str, container: &str) -> BTreeSet<String> {
        let environment = self.environment(pod, container).await;
        let values = environment.iter().filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            let device = ["gpu-", "nic-", "numa-"]
                .iter()
                .any(|prefix| value.starts_with(prefix));
            (name.contains("_DEVICE_") && device).then(|| value.to_owned())
        });
        values.collect()
    }

    async fn devices_of_all(&self, containers: &[(&str, &str)]) -> Vec<BTreeSet<String>> {
        let mut all = Vec::new();
        for (pod, container) in containers {
            let devices = self.devices(pod, container).await;
            assert!(!devices.is_empty(), "{pod} {container} has a device");
            all.push(devices);
        }
        all
    }

    /// The claims of a pod that its status or its spec names.
    async fn claims(&self, pod: &str) -> Vec<Value> {
        let found = json(&self.pods(pod).get(pod).await.expect(pod));
        let lists = ["/status/resourceClaimStatuses", "/spec/resourceClaims"];
        let lists = lists
            .iter()
            .filter_map(|list| found.pointer(list)?.as_array());
        let extended = &found["status"]["extendedResourceClaimStatus"];
        let names = lists.flatten().chain([extended]);
        let names = names.filter_map(|entry| entry["resourceClaimName"].as_str());
        let names: BTreeSet<&str> = names.collect();
        let api: Api<ResourceClaim> = Api::namespaced(self.up.client.clone(), self.namespace(pod));
        let mut claims = Vec::new();
        for name in names {
            claims.push(json(&api.get(name).await.expect(name)));
        }
        claims
    }
}

/// Whether the scheduler found no devices for a pod. Until its claims exist, it gives another reason.
fn lacks_devices(pod: Option<&Pod>) -> bool {
    let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| {
        let message = condition.message.as_deref().unwrap_or_default();
        condition.type_ == "PodScheduled" && message.contains("cannot allocate all claims")
    })
}

fn json(object: &impl serde::Serialize) -> Value {
    serde_json::to_value(object).expect("JSON")
}
