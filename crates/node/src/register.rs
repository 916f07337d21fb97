//! The registration of the Node; its status and heartbeat are below.

use std::collections::BTreeMap;

use allot_apimachinery::well_known;
use k8s_openapi::api::core::v1::{Node, NodeSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;

use crate::config::{Config, RuntimeKind};
use crate::error::{Error, api_message, is_refused_by_admission};
use crate::plugins::{ANY_OTHER, REGISTERED_DRIVERS};
use crate::pressure::Pressed;
use crate::runtime::{Condition, DynRuntime, Runtime};
pub(crate) use conditions::conditions;
pub(crate) use heartbeat::{LEASES, differs, heartbeat, renew};
pub(crate) use status::{allocatable, status};

mod conditions;
mod heartbeat;
mod status;
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

/// Where a Node learns about the machine.
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
