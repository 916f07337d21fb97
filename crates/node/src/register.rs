//! The Node object and its Lease.

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_apimachinery::quantity::Quantity;
use allot_apimachinery::well_known;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, NodeSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::capacity::capacity;
use crate::config::{Config, RuntimeKind};
use crate::error::{Error, api_message, is_refused_by_admission};
use crate::images::Images;
use crate::plugins::{ANY_OTHER, REGISTERED_DRIVERS};
use crate::pods::Sizes;
use crate::pressure::Pressed;
use crate::runtime::{Condition, DynRuntime, Runtime};
use conditions::conditions;

mod conditions;
#[cfg(test)]
mod tests;

/// Parts of the status that are not in the configuration.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// Port of the HTTPS API.
    pub(crate) port: Option<u16>,
    /// Name and version of the runtime.
    pub(crate) runtime: String,
    /// What the runtime cannot do here; empty when all is well.
    pub(crate) limitations: Vec<String>,
    /// Limits are enforced by the kernel.
    pub(crate) limits: bool,
    /// What the node is short of.
    pub(crate) pressure: Pressed,
    /// How a runtime is that is not part of the agent, and the network of the pods.
    pub(crate) condition: Option<Condition>,
}

impl Facts {
    pub(crate) fn of(
        runtime: &dyn Runtime,
        condition: Option<&watch::Receiver<Condition>>,
        port: Option<u16>,
        pressure: Pressed,
    ) -> Self {
        Self {
            port,
            runtime: format!("{}://{}", runtime.name(), runtime.version()),
            limitations: runtime.limitations(),
            limits: runtime.enforces_limits(),
            pressure,
            condition: condition.map(|condition| condition.borrow().clone()),
        }
    }
}

/// Where a Node finds out about the machine.
pub(crate) struct Machine {
    pub(crate) runtime: DynRuntime,
    /// That of the runtime and of the network of the pods, if they have one.
    pub(crate) condition: Option<watch::Receiver<Condition>>,
    /// What the node is short of.
    pub(crate) pressed: watch::Receiver<Pressed>,
    pub(crate) port: Option<u16>,
}

impl Machine {
    /// How it is now.
    pub(crate) fn facts(&mut self) -> Facts {
        let pressed = *self.pressed.borrow_and_update();
        Facts::of(&*self.runtime, self.condition.as_ref(), self.port, pressed)
    }
}

pub(crate) const LEASES: &str = "kube-node-lease";

/// A node that is on the API server.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) node: Node,
    /// Whether the machine was started again since an earlier agent reported it.
    pub(crate) rebooted: bool,
}

/// Creates the Node, or updates the one of an earlier run; retries until the API server answers.
pub(crate) async fn register(
    client: &Client,
    config: &Config,
    facts: &Facts,
) -> Result<Registered, Error> {
    let api: Api<Node> = Api::all(client.clone());
    let mut delay = std::time::Duration::from_millis(50);
    loop {
        match try_register(&api, config, facts).await {
            Ok(registered) => return Ok(registered),
            Err(error) if is_final(&error) => {
                let (name, source) = (config.node_name.clone(), Box::new(error));
                return Err(Error::Register { name, source });
            }
            Err(error) => {
                let error = api_message(&error);
                tracing::warn!(
                    node = config.node_name,
                    error,
                    "the node is not registered yet"
                );
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(std::time::Duration::from_secs(7));
            }
        }
    }
}

/// Whether the API server will not accept the node later either. A webhook or a policy may.
fn is_final(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    (status.code == 422 || status.code == 400)
        && !status.is_conflict()
        && !is_refused_by_admission(status)
}

/// The value of [`REGISTERED_DRIVERS`] of a node where no driver registered yet.
fn no_drivers(config: &Config) -> &'static str {
    match config.runtime {
        RuntimeKind::Simulated => ANY_OTHER,
        _ => "",
    }
}

async fn try_register(
    api: &Api<Node>,
    config: &Config,
    facts: &Facts,
) -> Result<Registered, kube::Error> {
    let labels = labels(config);
    let node = match api.get_opt(&config.node_name).await? {
        Some(node) => {
            let missing = labels.iter().any(|(key, value)| {
                node.metadata
                    .labels
                    .as_ref()
                    .and_then(|labels| labels.get(key))
                    != Some(value)
            });
            let drivers = node.metadata.annotations.as_ref();
            let drivers = drivers.and_then(|all| all.get(REGISTERED_DRIVERS));
            let none = no_drivers(config);
            let stale = drivers.is_some_and(|drivers| drivers != none);
            if missing || stale {
                let mut patch = json!({"metadata": {"labels": labels}});
                if stale {
                    // They were connected to an earlier run.
                    patch["metadata"]["annotations"] = json!({REGISTERED_DRIVERS: none});
                }
                api.patch(
                    &config.node_name,
                    &PatchParams::default(),
                    &Patch::Merge(patch),
                )
                .await?
            } else {
                node
            }
        }
        None => {
            let metadata = ObjectMeta {
                name: Some(config.node_name.clone()),
                labels: Some(labels),
                ..ObjectMeta::default()
            };
            let node = Node {
                metadata,
                spec: config.network.pod_cidrs.first().map(|cidr| NodeSpec {
                    pod_cidr: Some(cidr.clone()),
                    pod_cidrs: Some(config.network.pod_cidrs.clone()),
                    ..NodeSpec::default()
                }),
                ..Node::default()
            };
            match api.create(&PostParams::default(), &node).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    api.get(&config.node_name).await?
                }
                result => result?,
            }
        }
    };
    let rebooted = was_rebooted(&node, crate::boot::id());
    let status = status(config, facts, Some(&node));
    let patch = json!({"status": status});
    let params = PatchParams::default();
    let node = api
        .patch_status(&config.node_name, &params, &Patch::Strategic(patch))
        .await?;
    Ok(Registered { node, rebooted })
}

/// Whether an earlier agent reported another boot of the machine. Where the kernel does not tell which one this is, none was.
fn was_rebooted(node: &Node, boot: &str) -> bool {
    let status = node.status.as_ref();
    let before = status.and_then(|status| status.node_info.as_ref());
    before.is_some_and(|before| {
        !before.boot_id.is_empty() && !boot.is_empty() && before.boot_id != boot
    })
}

pub(crate) fn labels(config: &Config) -> BTreeMap<String, String> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let own = [
        (well_known::LABEL_HOSTNAME, config.node_name.as_str()),
        (well_known::LABEL_OS_STABLE, "linux"),
        (well_known::LABEL_ARCH_STABLE, arch),
        (well_known::LABEL_OS, "linux"),
        (well_known::LABEL_ARCH, arch),
    ];
    let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut labels = BTreeMap::from(own);
    labels.extend(config.labels.clone());
    labels
}

/// What this agent can do and not every kubelet can, by the names of KEP-5328, sorted as the API server demands. The API server
/// refuses new resources of a pod as a whole, and of init containers, on nodes that do not declare them.
const DECLARED: [&str; 2] = [
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
];

/// The whole status. Conditions keep the `lastTransitionTime` of `before`.
pub(crate) fn status(config: &Config, facts: &Facts, before: Option<&Node>) -> Value {
    let capacity = capacity(config);
    let mut status = json!({
        "capacity": capacity,
        "allocatable": capacity,
        "addresses": [
            {"type": "InternalIP", "address": config.address.to_string()},
            {"type": "Hostname", "address": config.node_name},
        ],
        "conditions": conditions(facts, before),
        "nodeInfo": node_info(facts),
        "declaredFeatures": DECLARED,
    });
    if let Some(port) = facts.port {
        status["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": port}});
    }
    status
}

/// The allocatable CPU and memory of a node: its whole capacity, because nothing is reserved for the system.
pub(crate) fn allocatable(config: &Config) -> Sizes {
    let capacity = capacity(config);
    let quantity = |name: &str| capacity.get(name)?.parse::<Quantity>().ok();
    Sizes {
        cpu: quantity("cpu").map_or(0, |amount| amount.milli_value()),
        memory: quantity("memory").map_or(0, |amount| amount.value()),
    }
}

fn node_info(facts: &Facts) -> Value {
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    };
    let system = rustix::system::uname();
    let os = read("/etc/os-release");
    let image = os
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .unwrap_or("Linux")
        .trim_matches('"');
    json!({
        "machineID": read("/etc/machine-id"),
        "systemUUID": read("/etc/machine-id"),
        "bootID": crate::boot::id(),
        "kernelVersion": system.release().to_string_lossy(),
        "osImage": image,
        "containerRuntimeVersion": facts.runtime,
        "kubeletVersion": format!("v1.36.0+allot-{}", env!("CARGO_PKG_VERSION")),
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": if std::env::consts::ARCH == "x86_64" { "amd64" } else { std::env::consts::ARCH },
    })
}

/// Renews the Lease as long as the process lives. Writes the whole status every five minutes, and at once if the API
/// server has a different one: a process that was suspended finds its node marked as lost, and only its status corrects
/// that.
pub(crate) async fn heartbeat(
    client: Client,
    config: Config,
    mut machine: Machine,
    images: Option<Arc<Images>>,
    node: Node,
) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    let nodes: Api<Node> = Api::all(client);
    let mut ticks = tokio::time::interval(config.heartbeat);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let full = (300.0 / config.heartbeat.as_secs_f64()).ceil() as u64;
    let mut due = false;
    for tick in 0u64.. {
        tokio::select! {
            _ = ticks.tick() => {}
            // A change of readiness or of pressure is reported at once.
            () = changed(&mut machine.condition) => due = true,
            Ok(()) = machine.pressed.changed() => due = true,
        }
        let facts = machine.facts();
        let uid = node.metadata.uid.as_deref().unwrap_or_default();
        if let Err(error) = renew(&leases, &config.node_name, uid, config.heartbeat).await {
            let error = api_message(&error);
            tracing::warn!(node = config.node_name, error, "lease was not renewed");
        }
        due |= tick % full.max(1) == full.max(1) - 1;
        let before = match nodes.get(&config.node_name).await {
            Ok(before) => before,
            Err(error) => {
                let error = api_message(&error);
                tracing::debug!(node = config.node_name, error, "node was not read");
                continue;
            }
        };
        let reported = json!({"conditions": conditions(&facts, Some(&before))});
        let images = match &images {
            Some(images) => images.reported().await,
            None => None,
        };
        let other = images
            .as_ref()
            .is_some_and(|images| has_other_images(&before, images));
        if due || other || differs(&before, &reported) {
            due = false;
            let mut status = status(&config, &facts, Some(&before));
            if let Some(images) = images {
                status["images"] = images;
            }
            let patch = json!({"status": status});
            let params = PatchParams::default();
            if let Err(error) = nodes
                .patch_status(&config.node_name, &params, &Patch::Strategic(patch))
                .await
            {
                let error = api_message(&error);
                tracing::warn!(
                    node = config.node_name,
                    error,
                    "node status was not updated"
                );
            }
        }
    }
}

/// The runtime or the network of the pods is another than it was; never for simulated nodes.
async fn changed(condition: &mut Option<watch::Receiver<Condition>>) {
    let news = match condition {
        Some(condition) => condition.changed().await,
        None => std::future::pending().await,
    };
    if news.is_err() {
        std::future::pending().await
    }
}

/// The images in the API are not those of the node.
fn has_other_images(before: &Node, images: &Value) -> bool {
    let status = before.status.as_ref();
    let known = status.and_then(|status| status.images.as_deref());
    serde_json::to_value(known.unwrap_or_default()).is_ok_and(|known| known != *images)
}

/// A condition that the agent reports is another one in the API.
fn differs(before: &Node, status: &Value) -> bool {
    let before = before.status.as_ref();
    let known = before.and_then(|status| status.conditions.as_deref());
    let known = known.unwrap_or_default();
    let mut reported = status["conditions"].as_array().into_iter().flatten();
    reported.any(|condition| {
        let same = |key: &str, value: &str| condition[key].as_str().unwrap_or_default() == value;
        !known.iter().any(|it| {
            same("type", &it.type_)
                && same("status", &it.status)
                && same("reason", it.reason.as_deref().unwrap_or_default())
        })
    })
}

/// Renews the Lease of a node, which lasts four times as long as it may take until the next time.
pub(crate) async fn renew(
    leases: &Api<Lease>,
    name: &str,
    uid: &str,
    every: std::time::Duration,
) -> Result<(), kube::Error> {
    let now = MicroTime(Timestamp::now());
    let patch = json!({"spec": {"renewTime": now, "holderIdentity": name}});
    match leases
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        result => return result.map(drop),
    }
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(LEASES.into()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: name.to_owned(),
                uid: uid.to_owned(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.to_owned()),
            lease_duration_seconds: Some(every.as_secs() as i32 * 4),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    };
    leases
        .create(&PostParams::default(), &lease)
        .await
        .map(drop)
}
