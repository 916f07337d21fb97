//! From a container of the API to what the runtime starts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use allot_cdi::{ContainerEdits, Hook, Registry};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;

use super::env::{self, Downward, Sources};
use super::volumes::Volume;
use super::{Node, etc, limits, log_path, message, network, security, volumes};
use crate::claims::containers;
use crate::events::Kind;
use crate::images::Files;
use crate::shim::spec::{ContainerSpec, ImageConfig, Isolation, Mount, Owner};

/// Why a container cannot be made: reason of the waiting state, and message.
pub(super) struct Obstacle {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

fn config(message: String) -> Obstacle {
    Obstacle {
        reason: "CreateContainerConfigError",
        message,
    }
}

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What has been made for a container.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    /// The volumes of its pod.
    pub(super) volumes: &'a BTreeMap<String, Volume>,
    /// What it runs on.
    pub(super) files: &'a Files,
}

/// Everything about a container but its root directory, from the pod, its volumes, its image and its claims.
pub(super) async fn container_spec(
    node: &Node,
    pod: &Pod,
    container: &Container,
    given: Given<'_>,
    attempt: u32,
) -> Result<ContainerSpec, Obstacle> {
    let namespace = pod.namespace().unwrap_or_default();
    let mut sources = Sources::new(node.client.clone(), namespace.clone());
    let downward = downward(node, pod);
    // Nobody reads the environment of a container that is only pretended.
    let services = match node.pretends() {
        true => Vec::new(),
        false => node.services.environment(pod).await.map_err(config)?,
    };
    let own = env::environment(&downward, container, &mut sources, services)
        .await
        .map_err(config)?;
    let image = given.files.config();
    let args = arguments(node, container, given.files, &own)?;
    let (edits, network) = edits(node, pod, container)?;
    let spec = pod.spec.clone().unwrap_or_default();
    let hostname = match (&spec.hostname, spec.host_network) {
        (Some(name), _) => name.clone(),
        (None, Some(true)) => node.config.node_name.clone(),
        (None, _) => pod.name_any().chars().take(63).collect(),
    };
    // First what the image says, then the pod, then the devices; where names are the same the last one counts.
    let mut vars = vec![
        ("PATH".to_owned(), PATH.to_owned()),
        ("HOSTNAME".to_owned(), hostname.clone()),
    ];
    vars.extend(pairs(&image.env));
    if container.tty == Some(true) {
        vars.push(("TERM".to_owned(), "xterm".to_owned()));
    }
    vars.extend(own.iter().cloned());
    vars.extend(pairs(&edits.env));
    let mut mounts =
        volumes::mounts(container, given.volumes, given.files, &own).map_err(config)?;
    for mount in &edits.mounts {
        mounts.push(device_mount(node, mount).map_err(config)?);
    }
    if given.files.image.is_some() {
        // The host's files have them already.
        etc::add(node, pod, &hostname, &mut mounts).map_err(config)?;
    }
    mounts.extend(message::mount(node, pod, container, attempt).map_err(config)?);
    let mut security = match node.pretends() {
        true => Default::default(),
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
    let own_hook = |mut hook: Hook| {
        // A driver in a container knows its own directory by the kubelet's name, and tells its hook where its files are.
        for text in std::iter::once(&mut hook.path).chain(&mut hook.args) {
            if text.starts_with('/') {
                let path = node.config.own_path(Path::new(&*text));
                *text = path.to_string_lossy().into_owned();
            }
        }
        hook
    };
    if !security.privileged {
        // Devices come from drivers alone.
        let volumes = volumes::count(container);
        for mount in mounts.iter_mut().take(volumes) {
            mount.options.push("rnodev".into());
        }
    }
    Ok(ContainerSpec {
        owner: Owner {
            pod_uid: pod.uid().unwrap_or_default(),
            pod_namespace: namespace,
            pod_name: pod.name_any(),
            container: container.name.clone(),
            attempt,
        },
        args,
        env: unique(vars),
        cwd: container
            .working_dir
            .clone()
            .filter(|it| !it.is_empty())
            .or_else(|| working_directory(&image)),
        hostname,
        mounts,
        devices: edits.device_nodes,
        hooks: edits.hooks.into_iter().map(own_hook).collect(),
        security,
        limits: limits::of(pod, container, node.memory()),
        tty: container.tty.unwrap_or(false),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        log: log_path(&node.config.root_dir, pod, &container.name, attempt),
        network,
        ..ContainerSpec::default()
    })
}

/// The downward API of a pod on this node.
pub(super) fn downward<'a>(node: &'a Node, pod: &'a Pod) -> Downward<'a> {
    Downward {
        pod,
        node: &node.config.node_name,
        address: node.config.address.to_string(),
        allocatable: &node.config.capacity,
    }
}

fn decide(
    node: &Node,
    pod: &Pod,
    container: &Container,
    image: &ImageConfig,
) -> Result<security::Decided, String> {
    let (apparmor, selinux) = security::kernel_modules();
    let machine = security::Machine {
        isolation: node.runtime.isolation(),
        profiles: &node.config.root_dir.join("seccomp"),
        apparmor,
        selinux,
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

/// Where the image wants its program to start. A path that is not absolute counts from the root.
fn working_directory(image: &ImageConfig) -> Option<String> {
    let wanted = image.working_dir.as_str();
    match wanted {
        "" => None,
        _ if wanted.starts_with('/') => Some(wanted.to_owned()),
        _ => Some(format!("/{wanted}")),
    }
}

/// A mount that a device asks for. Options are those of the OCI runtime specification.
fn device_mount(node: &Node, mount: &allot_cdi::Mount) -> Result<Mount, String> {
    let bind = mount
        .kind
        .as_deref()
        .is_none_or(|kind| matches!(kind, "" | "bind" | "none"));
    if !bind {
        let kind = mount.kind.as_deref().unwrap_or_default();
        return Err(format!(
            "CDI mount of {:?}: file system type {kind:?} is not supported",
            mount.container_path
        ));
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

/// Program and arguments: the container's go before the image's. Without an image the command has to be in the pod.
fn arguments(
    node: &Node,
    container: &Container,
    files: &Files,
    env: &[(String, String)],
) -> Result<Vec<String>, Obstacle> {
    let own = |list: &Option<Vec<String>>| -> Vec<String> {
        let list = list.iter().flatten();
        list.map(|arg| env::expand(arg, env)).collect()
    };
    let image = files.config();
    let (command, args) = (own(&container.command), own(&container.args));
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
        return Err(Obstacle {
            reason: "CreateContainerError",
            message: format!(
                "failed to generate container \"{}\" spec: no command specified",
                container.name
            ),
        });
    }
    if unknown || all.is_empty() {
        return Err(Obstacle {
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

/// What the container's devices add, and the network namespace that those of its pod need.
fn edits(
    node: &Node,
    pod: &Pod,
    container: &Container,
) -> Result<(ContainerEdits, Option<PathBuf>), Obstacle> {
    let nothing = (ContainerEdits::default(), None);
    let of = |name: &str| {
        let ids = node.claims.cdi_devices(pod, name);
        ids.map_err(|message| Obstacle {
            reason: "CreateContainerError",
            message: format!("failed to generate container \"{name}\" spec: {message}"),
        })
    };
    let ids = of(&container.name)?;
    if node.pretends() {
        return Ok(nothing);
    }
    // All containers of a pod are in one network.
    let mut all = Vec::new();
    for other in containers(pod) {
        all.extend(of(&other.name)?);
    }
    if all.is_empty() && ids.is_empty() {
        return Ok(nothing);
    }
    let registry = Registry::load(&node.config.cdi_dirs());
    let network = network_of(node, pod, registry.is_annotated(&all, network::ANNOTATION))?;
    if ids.is_empty() {
        return Ok((ContainerEdits::default(), network));
    }
    let edits = registry.resolve(&ids).map_err(|error| Obstacle {
        reason: "CreateContainerError",
        message: format!("failed to inject CDI devices: {error}"),
    })?;
    let refuse = |what: &str| Obstacle {
        reason: "CreateContainerError",
        message: format!("failed to inject CDI devices: {what}"),
    };
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
    Ok((edits, network))
}

/// The network namespace of a pod whose devices need one. A pod that wants the node's gets it, as everywhere.
fn network_of(node: &Node, pod: &Pod, is_needed: bool) -> Result<Option<PathBuf>, Obstacle> {
    let spec = pod.spec.as_ref();
    if !is_needed || spec.and_then(|spec| spec.host_network) == Some(true) {
        return Ok(None);
    }
    let made = match node.runtime.isolation() {
        Isolation::Namespaces => network::ensure(&node.pod_dir(&pod.uid().unwrap_or_default())),
        _ => Err("network interfaces need an agent that runs as root".to_owned()),
    };
    made.map(Some).map_err(|message| Obstacle {
        reason: "CreateContainerError",
        message: format!("failed to inject CDI devices: {message}"),
    })
}

/// The last value of every name, in the order of first appearance.
fn unique(vars: Vec<(String, String)>) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in &vars {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let last = |name: &str| {
        vars.iter()
            .rev()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    };
    names
        .iter()
        .map(|name| format!("{name}={}", last(name).unwrap_or_default()))
        .collect()
}
