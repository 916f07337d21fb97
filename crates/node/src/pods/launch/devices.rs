//! What the devices of a container add to it, and the network namespace that those of its pod need.

use std::path::{Path, PathBuf};

use allot_cdi::{ContainerEdits, Registry};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;

use super::super::env::Variables;
use super::super::{Node, network};
use super::{WaitingReason, config, pairs};
use crate::claims::containers;
use crate::events::shorten;
use crate::shim::spec::{ContainerSpec, Isolation, Mount};
use crate::{hooks, interfaces, rdt};

/// Mounts, device nodes, network interfaces and hooks of all devices of a container: each is a step of its start.
const MOST_EDITS: usize = 4096;

/// Names of the CDI devices of a container.
pub(super) fn devices(
    node: &Node,
    pod: &Pod,
    container: &Container,
) -> Result<Vec<String>, WaitingReason> {
    let found = node.claims.cdi_devices(pod, &container.name);
    found.map_err(|message| WaitingReason {
        reason: "CreateContainerError",
        message: format!(
            "failed to generate container \"{}\" spec: {message}",
            container.name
        ),
    })
}

/// A mount requested by a device that is not of a directory or file of the host.
#[derive(Debug, thiserror::Error)]
#[error("CDI mount of {path:?}: file system type {kind:?} is not supported")]
pub(super) struct MountTypeError {
    path: String,
    kind: String,
}

/// A mount requested by a device. Options are those of the OCI runtime specification.
pub(super) fn device_mount(node: &Node, mount: &allot_cdi::Mount) -> Result<Mount, MountTypeError> {
    let bind = mount
        .kind
        .as_deref()
        .is_none_or(|kind| matches!(kind, "" | "bind" | "none"));
    if !bind {
        let kind = mount.kind.as_deref().unwrap_or_default();
        return Err(MountTypeError {
            path: mount.container_path.clone(),
            kind: kind.to_owned(),
        });
    }
    let mut options = mount.options.clone();
    let read_only = options.iter().any(|option| option == "ro");
    options.retain(|option| !matches!(option.as_str(), "ro" | "rw" | "bind" | "rbind"));
    Ok(Mount {
        source: node.config.own_path(Path::new(&mount.host_path)),
        target: PathBuf::from(&mount.container_path),
        read_only,
        options,
        ..Mount::default()
    })
}

/// The edits of the container's devices, and the network namespace that the devices of its pod need.
pub(super) fn edits(
    node: &Node,
    pod: &Pod,
    container: &Container,
) -> Result<(ContainerEdits, Option<PathBuf>), WaitingReason> {
    let ids = devices(node, pod, container)?;
    if node.pretends() {
        return Ok((ContainerEdits::default(), None));
    }
    // All containers of a pod are in one network.
    let mut all = Vec::new();
    for other in containers(pod) {
        all.extend(devices(node, pod, other)?);
    }
    if all.is_empty() && ids.is_empty() {
        return Ok((ContainerEdits::default(), network_of(node, pod, false)?));
    }
    let registry = Registry::load(&node.config.cdi_dirs());
    let is_needed =
        registry.is_annotated(&all, network::ANNOTATION) || has_interfaces(&registry, &all);
    let network = network_of(node, pod, is_needed)?;
    if ids.is_empty() {
        return Ok((ContainerEdits::default(), network));
    }
    let edits = resolve(node, &registry, &ids)?;
    if !edits.net_devices.is_empty() && network.is_none() {
        return Err(refuse(NO_NETWORK));
    }
    Ok((edits, network))
}

/// Whether one of the devices moves interfaces. Those that cannot be resolved are reported by the container that has them.
fn has_interfaces(registry: &Registry, ids: &[String]) -> bool {
    let mut edits = ids.iter().map(|id| registry.resolve(&[id]));
    edits.any(|edits| edits.is_ok_and(|edits| !edits.net_devices.is_empty()))
}

/// Why a container with interfaces is not created in a pod that shares the network of the node.
const NO_NETWORK: &str =
    "network interfaces cannot be moved into the pod, because it has the network of the node";

/// Drivers write the IDs, and the files that are at fault.
fn refuse(what: impl std::fmt::Display) -> WaitingReason {
    WaitingReason {
        reason: "CreateContainerError",
        message: shorten(format!("failed to inject CDI devices: {what}")),
    }
}

/// The edits of devices, as far as they are possible on this node.
fn resolve(
    node: &Node,
    registry: &Registry,
    ids: &[String],
) -> Result<ContainerEdits, WaitingReason> {
    let edits = registry.resolve(ids).map_err(|error| {
        // A file that cannot be read may be the one with the device.
        let files = registry.errors().iter().take(3);
        let reasons: Vec<String> = files.map(ToString::to_string).collect();
        match reasons.is_empty() {
            true => refuse(error),
            false => refuse(format!("{error}; not read: {}", reasons.join("; "))),
        }
    })?;
    let parts = edits.mounts.len() + edits.device_nodes.len() + edits.hooks.len();
    let parts = parts + edits.net_devices.len();
    if parts > MOST_EDITS {
        return Err(refuse(format!(
            "they have {parts} mounts, device nodes, network interfaces and hooks, more than {MOST_EDITS}"
        )));
    }
    interfaces::check(&edits.net_devices).map_err(refuse)?;
    if let Some(wanted) = &edits.intel_rdt {
        rdt::check(wanted, node.runtime.isolation()).map_err(refuse)?;
    }
    let plain = node.runtime.isolation() == Isolation::None;
    if plain && (!edits.hooks.is_empty() || !edits.device_nodes.is_empty()) {
        return Err(refuse(
            "containers are plain processes on this node, because namespaces are not permitted",
        ));
    }
    Ok(edits)
}

/// Adds CDI devices to a container that has been put together.
pub(in crate::pods) fn add_devices(
    node: &Node,
    spec: &mut ContainerSpec,
    ids: &[String],
) -> Result<(), WaitingReason> {
    let edits = resolve(node, &Registry::load(&node.config.cdi_dirs()), ids)?;
    let mut vars = Variables::default();
    let all = pairs(&spec.env).chain(pairs(&edits.env));
    vars.extend(all).map_err(config)?;
    spec.env = vars.lines();
    for mount in &edits.mounts {
        spec.mounts.push(device_mount(node, mount).map_err(config)?);
    }
    spec.devices.extend(edits.device_nodes);
    let hooks = edits.hooks.into_iter();
    spec.hooks
        .extend(hooks.map(|hook| hooks::own(&node.config, hook)));
    if !edits.net_devices.is_empty() && spec.network.is_none() {
        return Err(refuse(NO_NETWORK));
    }
    spec.net_devices.extend(edits.net_devices);
    if edits.intel_rdt.is_some() {
        spec.intel_rdt = edits.intel_rdt;
    }
    spec.security.groups.extend(edits.additional_gids);
    Ok(())
}

/// The network namespace of a pod: that of its sandbox, or one because its devices need one. A pod that wants the node's gets
/// it, as everywhere.
fn network_of(node: &Node, pod: &Pod, is_needed: bool) -> Result<Option<PathBuf>, WaitingReason> {
    if node.has_own_network(pod) {
        let directory = node.pod_dir(&pod.uid().unwrap_or_default());
        return network::of(&directory)
            .map(Some)
            .ok_or_else(|| WaitingReason {
                reason: "CreateContainerError",
                message: "the network namespace of the pod is gone".to_owned(),
            });
    }
    let spec = pod.spec.as_ref();
    if !is_needed || spec.and_then(|spec| spec.host_network) == Some(true) {
        return Ok(None);
    }
    if node.runtime.isolation() != Isolation::Namespaces {
        return Err(refuse("network interfaces need an agent that runs as root"));
    }
    let made = network::ensure(&node.pod_dir(&pod.uid().unwrap_or_default()));
    made.map(Some).map_err(refuse)
}
