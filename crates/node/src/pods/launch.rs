//! Converts a container of the API to the specification that the runtime starts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_cdi::{ContainerEdits, Registry};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;

use super::env::{self, Budget, Downward, EnvError, Sources, Variables};
use super::volumes::Volume;
use super::{Node, etc, limits, log_path, message, network, security, volumes};
use crate::claims::containers;
use crate::events::{Kind, shorten};
use crate::hooks;
use crate::images::Files;
use crate::oci::{self, pids};
use crate::runtime::{Image, Request};
use crate::shim::spec::{ContainerSpec, ImageConfig, Isolation, Limits, Mount, Owner};

/// Why a container cannot be created: reason of the waiting state, and message.
pub(super) struct WaitingReason {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

fn config(error: impl std::fmt::Display) -> WaitingReason {
    WaitingReason {
        reason: "CreateContainerConfigError",
        message: error.to_string(),
    }
}

/// Mounts, device nodes and hooks of all devices of a container: each is a step of its start.
const MOST_EDITS: usize = 4096;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What has been prepared for a container.
#[derive(Clone, Copy)]
pub(super) struct ContainerInputs<'a> {
    /// The volumes of its pod.
    pub(super) volumes: &'a BTreeMap<String, Volume>,
    /// Its image and layers.
    pub(super) files: &'a Files,
}

/// What [`container_spec`] makes.
pub(super) struct BuiltContainer {
    pub(super) spec: ContainerSpec,
    /// For a runtime that decides the rest by itself.
    pub(super) request: Option<Box<Request>>,
}

/// Everything about a container but its root directory, from the pod, its volumes, its image and its claims. A complete
/// runtime merges the environment and the arguments of the image, looks devices up, and applies the security context.
pub(super) async fn container_spec(
    node: &Node,
    pod: &Pod,
    container: &Container,
    given: ContainerInputs<'_>,
    attempt: u32,
) -> Result<BuiltContainer, WaitingReason> {
    let namespace = pod.namespace().unwrap_or_default();
    let mut sources = Sources::new(node.client.clone(), namespace.clone());
    let downward = downward(node, pod);
    // The environment of a simulated container is not used.
    let services = match node.pretends() {
        true => Vec::new(),
        false => {
            let waits = !node.is_static(pod);
            let services = node.services.environment(pod, waits).await;
            services.map_err(config)?
        }
    };
    let own = env::environment(&downward, container, &mut sources, services)
        .await
        .map_err(config)?;
    let image = given.files.config();
    let delegated = given.files.delegated.clone();
    let request = match delegated {
        None => None,
        Some(image) => {
            let mut request = delegate(node, pod, container, image, &own)?;
            request.volumes.clone_from(&given.files.delegated_volumes);
            Some(Box::new(request))
        }
    };
    let (args, (edits, network)) = match &request {
        Some(_) => Default::default(),
        None => (
            arguments(node, container, given.files, &own)?,
            edits(node, pod, container)?,
        ),
    };
    let spec = pod.spec.clone().unwrap_or_default();
    let hostname = match (&spec.hostname, spec.host_network) {
        (Some(name), _) => name.clone(),
        (None, Some(true)) => node.config.node_name.clone(),
        (None, _) => pod.name_any().chars().take(63).collect(),
    };
    // First the image's variables, then the pod's, then the devices'; later ones override earlier ones.
    let mut vars = Variables::default();
    let (mut first, mut terminal) = (Vec::new(), None);
    if request.is_none() {
        first.push(("PATH".to_owned(), PATH.to_owned()));
        first.push(("HOSTNAME".to_owned(), hostname.clone()));
        let wanted = container.tty == Some(true);
        terminal = wanted.then(|| ("TERM".to_owned(), "xterm".to_owned()));
    }
    let all = first.into_iter().chain(pairs(&image.env)).chain(terminal);
    let all = all.chain(own.iter().cloned()).chain(pairs(&edits.env));
    vars.extend(all).map_err(config)?;
    let mut mounts =
        volumes::mounts(container, given.volumes, given.files, &own).map_err(config)?;
    for mount in &edits.mounts {
        mounts.push(device_mount(node, mount).map_err(config)?);
    }
    if request.is_some() {
        let directory = node.pod_dir(&pod.uid().unwrap_or_default());
        volumes::mount_sub_paths(&directory, &container.name, &mut mounts).map_err(config)?;
    }
    if given.files.image.is_some() || request.is_some() || node.has_own_network(pod) {
        // The host's files have them already, with the host's addresses.
        etc::add(node, pod, &hostname, &mut mounts).map_err(config)?;
    }
    mounts.extend(message::mount(node, pod, container, attempt).map_err(config)?);
    let mut security = match node.pretends() {
        true => Default::default(),
        // The runtime applies it; the kubelet's part is to refuse root.
        false if request.is_some() => {
            security::check_user(pod, container, &image).map_err(config)?;
            Default::default()
        }
        false => {
            let decided = decide(node, pod, container, &image).map_err(config)?;
            for note in decided.notes {
                let events = &node.events;
                let name = Some(container.name.as_str());
                events.pod(pod, name, Kind::Warning, "SecurityContextNotApplied", note);
            }
            decided.security
        }
    };
    security.groups.extend(edits.additional_gids);
    if !security.privileged && request.is_none() {
        // Devices come from drivers only.
        let volumes = volumes::count(container);
        for mount in mounts.iter_mut().take(volumes) {
            mount.options.push("rnodev".into());
        }
    }
    let spec = ContainerSpec {
        owner: Owner {
            pod_uid: pod.uid().unwrap_or_default(),
            pod_namespace: namespace,
            pod_name: pod.name_any(),
            container: container.name.clone(),
            attempt,
        },
        args,
        env: vars.lines(),
        cwd: container
            .working_dir
            .clone()
            .filter(|it| !it.is_empty())
            .or_else(|| working_directory(&image)),
        hostname,
        mounts,
        devices: edits.device_nodes,
        hooks: edits
            .hooks
            .into_iter()
            .map(|hook| hooks::own(&node.config, hook))
            .collect(),
        security,
        limits: Limits {
            pids: match node.pretends() || request.is_some() {
                true => None,
                // Where processes are not counted by cgroups, a container has what its pod may have.
                false => [pids::container_limit(), node.config.pod_pids_limit]
                    .into_iter()
                    .flatten()
                    .min(),
            },
            pod: limits::of_pod(pod, node.config.pod_pids_limit),
            ..limits::of(pod, container, node.memory())
        },
        pod_cgroup: oci::pod::name(&pod.uid().unwrap_or_default()),
        tty: container.tty.unwrap_or(false),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        log: log_path(&node.config.root_dir, pod, &container.name, attempt),
        network,
        ..ContainerSpec::default()
    };
    Ok(BuiltContainer { spec, request })
}

/// Fields for runtimes that set up the container themselves, such as containerd.
fn delegate(
    node: &Node,
    pod: &Pod,
    container: &Container,
    image: Image,
    env: &Variables,
) -> Result<Request, WaitingReason> {
    let (command, args) = own_arguments(container, env).map_err(config)?;
    Ok(Request {
        pod: Arc::new(pod.clone()),
        container: container.clone(),
        image,
        volumes: BTreeMap::new(),
        command,
        args,
        cdi_devices: devices(node, pod, container)?,
    })
}

/// Names of the CDI devices of a container.
fn devices(node: &Node, pod: &Pod, container: &Container) -> Result<Vec<String>, WaitingReason> {
    let found = node.claims.cdi_devices(pod, &container.name);
    found.map_err(|message| WaitingReason {
        reason: "CreateContainerError",
        message: format!(
            "failed to generate container \"{}\" spec: {message}",
            container.name
        ),
    })
}

/// The downward API of a pod on this node.
pub(super) fn downward<'a>(node: &'a Node, pod: &'a Pod) -> Downward<'a> {
    Downward {
        pod,
        node: &node.config.node_name,
        address: node.config.address.to_string(),
        pod_addresses: node.addresses(pod),
        allocatable: &node.config.capacity,
    }
}

fn decide(
    node: &Node,
    pod: &Pod,
    container: &Container,
    image: &ImageConfig,
) -> Result<security::Decided, security::SecurityError> {
    let (apparmor, selinux) = security::kernel_modules();
    let machine = security::NodeCapabilities {
        isolation: node.runtime.isolation(),
        root: &node.config.root_dir,
        apparmor,
        selinux,
        own_network: node.has_own_network(pod),
        capabilities: &crate::oci::capabilities::of_the_agent(),
    };
    security::decide(&machine, pod, container, image)
}

fn pairs(variables: &[String]) -> impl Iterator<Item = (String, String)> {
    variables
        .iter()
        .filter_map(|variable| variable.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
}

/// The image's working directory. A relative path is relative to the root.
fn working_directory(image: &ImageConfig) -> Option<String> {
    let wanted = image.working_dir.as_str();
    match wanted {
        "" => None,
        _ if wanted.starts_with('/') => Some(wanted.to_owned()),
        _ => Some(format!("/{wanted}")),
    }
}

/// A mount requested by a device that is not of a directory or file of the host.
#[derive(Debug, thiserror::Error)]
#[error("CDI mount of {path:?}: file system type {kind:?} is not supported")]
struct MountTypeError {
    path: String,
    kind: String,
}

/// A mount requested by a device. Options are those of the OCI runtime specification.
fn device_mount(node: &Node, mount: &allot_cdi::Mount) -> Result<Mount, MountTypeError> {
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

/// `command` and `args` of a container with their variables.
fn own_arguments(
    container: &Container,
    env: &Variables,
) -> Result<(Vec<String>, Vec<String>), EnvError> {
    let mut budget = Budget::default();
    let mut expand = |list: &Option<Vec<String>>| -> Result<Vec<String>, EnvError> {
        let list = list.iter().flatten();
        list.map(|arg| env.expand(arg, &mut budget)).collect()
    };
    Ok((expand(&container.command)?, expand(&container.args)?))
}

/// Program and arguments: the container's override the image's. Without an image the pod must have a command.
fn arguments(
    node: &Node,
    container: &Container,
    files: &Files,
    env: &Variables,
) -> Result<Vec<String>, WaitingReason> {
    let image = files.config();
    let (command, args) = own_arguments(container, env).map_err(config)?;
    let all = match (command.is_empty(), args.is_empty()) {
        (false, _) => [command, args].concat(),
        (true, false) => [image.entrypoint.clone(), args].concat(),
        (true, true) => [image.entrypoint.clone(), image.cmd.clone()].concat(),
    };
    if node.pretends() {
        return Ok(all);
    }
    let unknown = container.command.as_ref().is_none_or(Vec::is_empty) && files.image.is_none();
    if files.image.is_some() && all.is_empty() {
        return Err(WaitingReason {
            reason: "CreateContainerError",
            message: format!(
                "failed to generate container \"{}\" spec: no command specified",
                container.name
            ),
        });
    }
    if unknown || all.is_empty() {
        return Err(WaitingReason {
            reason: "CreateContainerError",
            message: format!(
                "container {:?} has no command: images are not pulled on this node, so the entrypoint of {:?} is not \
                 known; set command in the pod",
                container.name,
                container.image.as_deref().unwrap_or_default()
            ),
        });
    }
    Ok(all)
}

/// The edits of the container's devices, and the network namespace that the devices of its pod need.
fn edits(
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
    let network = network_of(node, pod, registry.is_annotated(&all, network::ANNOTATION))?;
    if ids.is_empty() {
        return Ok((ContainerEdits::default(), network));
    }
    Ok((resolve(node, &registry, &ids)?, network))
}

/// The edits of devices, as far as they are possible on this node.
fn resolve(
    node: &Node,
    registry: &Registry,
    ids: &[String],
) -> Result<ContainerEdits, WaitingReason> {
    // Drivers write the IDs, and the files that are at fault.
    let refuse = |what: &str| WaitingReason {
        reason: "CreateContainerError",
        message: shorten(format!("failed to inject CDI devices: {what}")),
    };
    let edits = registry.resolve(ids).map_err(|error| {
        // A file that cannot be read may be the one with the device.
        let files = registry.errors().iter().take(3);
        let reasons: Vec<String> = files.map(ToString::to_string).collect();
        match reasons.is_empty() {
            true => refuse(&error.to_string()),
            false => refuse(&format!("{error}; not read: {}", reasons.join("; "))),
        }
    })?;
    let parts = edits.mounts.len() + edits.device_nodes.len() + edits.hooks.len();
    if parts > MOST_EDITS {
        return Err(refuse(&format!(
            "they have {parts} mounts, device nodes and hooks, more than {MOST_EDITS}"
        )));
    }
    if !edits.net_devices.is_empty() {
        return Err(refuse(
            "network devices need a network namespace of the pod, and the network is the host's on this node",
        ));
    }
    if edits.intel_rdt.is_some() {
        return Err(refuse("Intel RDT settings are not supported on this node"));
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
pub(super) fn add_devices(
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
    let refuse = |why: &dyn std::fmt::Display| WaitingReason {
        reason: "CreateContainerError",
        message: format!("failed to inject CDI devices: {why}"),
    };
    if node.runtime.isolation() != Isolation::Namespaces {
        return Err(refuse(
            &"network interfaces need an agent that runs as root",
        ));
    }
    let made = network::ensure(&node.pod_dir(&pod.uid().unwrap_or_default()));
    made.map(Some).map_err(|error| refuse(&error))
}
