//! Converts a container of the API to the specification that the runtime starts.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;

use super::env::{self, Downward, EnvError, Sources, Variables};
use super::volumes::Volume;
use super::{Node, etc, limits, log_path, message, security, volumes};
use crate::events::Kind;
use crate::hooks;
use crate::images::Files;
use crate::oci::{self, pids};
use crate::runtime::{Image, Request};
use crate::shim::spec::{ContainerSpec, ImageConfig, Limits, Mount, Owner, Security};
use arguments::{arguments, own_arguments};
pub(super) use devices::add_devices;
use devices::{device_mount, devices, edits};

mod arguments;
mod devices;

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
    let own = variables_of_pod(node, pod, container).await?;
    let image = given.files.config();
    let request = match given.files.delegated.clone() {
        None => None,
        Some(image) => {
            let mut request = delegate(node, pod, container, image, &own)?;
            request.volumes.clone_from(&given.files.delegated_volumes);
            Some(Box::new(request))
        }
    };
    let complete = request.is_some();
    let (args, (edits, network)) = match complete {
        true => Default::default(),
        false => (
            arguments(node, container, given.files, &own)?,
            edits(node, pod, container)?,
        ),
    };
    let hostname = hostname(node, pod);
    let basics = (!complete).then_some(hostname.as_str());
    let vars = variables(container, &image, &own, &edits.env, basics).map_err(config)?;
    let inputs = MountInputs {
        given,
        own: &own,
        hostname: &hostname,
        devices: &edits.mounts,
        attempt,
    };
    let mut mounts = mounts(node, pod, container, &inputs, complete)?;
    let mut security = security_of(node, pod, container, &image, complete)?;
    security.groups.extend(edits.additional_gids);
    if !security.privileged && !complete {
        // Devices come from drivers only.
        let volumes = volumes::count(container);
        for mount in mounts.iter_mut().take(volumes) {
            mount.options.push("rnodev".into());
        }
    }
    let hooks = edits.hooks.into_iter();
    let spec = ContainerSpec {
        owner: owner(pod, container, attempt),
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
        hooks: hooks.map(|hook| hooks::own(&node.config, hook)).collect(),
        net_devices: edits.net_devices,
        intel_rdt: edits.intel_rdt,
        security,
        limits: limits_of(node, pod, container, complete),
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

/// The variables that the pod gives a container.
async fn variables_of_pod(
    node: &Node,
    pod: &Pod,
    container: &Container,
) -> Result<Variables, WaitingReason> {
    let mut sources = Sources::new(node.client.clone(), pod.namespace().unwrap_or_default());
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
    let own = env::environment(&downward, container, &mut sources, services);
    own.await.map_err(config)
}

fn hostname(node: &Node, pod: &Pod) -> String {
    let spec = pod.spec.as_ref();
    let host_network = spec.and_then(|spec| spec.host_network);
    match (spec.and_then(|spec| spec.hostname.clone()), host_network) {
        (Some(name), _) => name,
        (None, Some(true)) => node.config.node_name.clone(),
        (None, _) => pod.name_any().chars().take(63).collect(),
    }
}

/// All variables of a container: first the image's, then the pod's, then the devices'; later ones override earlier ones. With
/// `hostname`, those come before them that a runtime adds.
fn variables(
    container: &Container,
    image: &ImageConfig,
    own: &Variables,
    devices: &[String],
    hostname: Option<&str>,
) -> Result<Variables, EnvError> {
    let mut vars = Variables::default();
    let (mut first, mut terminal) = (Vec::new(), None);
    if let Some(hostname) = hostname {
        first.push(("PATH".to_owned(), PATH.to_owned()));
        first.push(("HOSTNAME".to_owned(), hostname.to_owned()));
        let wanted = container.tty == Some(true);
        terminal = wanted.then(|| ("TERM".to_owned(), "xterm".to_owned()));
    }
    let all = first.into_iter().chain(pairs(&image.env)).chain(terminal);
    let all = all.chain(own.iter().cloned()).chain(pairs(devices));
    vars.extend(all)?;
    Ok(vars)
}

/// What the mounts of a container are made from.
struct MountInputs<'a> {
    given: ContainerInputs<'a>,
    /// The variables that the pod gives it.
    own: &'a Variables,
    hostname: &'a str,
    /// The mounts of its devices.
    devices: &'a [allot_cdi::Mount],
    attempt: u32,
}

/// The mounts of a container, first those of its volumes. `complete`: a runtime makes the rest.
fn mounts(
    node: &Node,
    pod: &Pod,
    container: &Container,
    inputs: &MountInputs<'_>,
    complete: bool,
) -> Result<Vec<Mount>, WaitingReason> {
    let given = inputs.given;
    let mut mounts =
        volumes::mounts(container, given.volumes, given.files, inputs.own).map_err(config)?;
    for mount in inputs.devices {
        mounts.push(device_mount(node, mount).map_err(config)?);
    }
    if complete {
        let directory = node.pod_dir(&pod.uid().unwrap_or_default());
        volumes::mount_sub_paths(&directory, &container.name, &mut mounts).map_err(config)?;
    }
    if given.files.image.is_some() || complete || node.has_own_network(pod) {
        // The host's files have them already, with the host's addresses.
        etc::add(node, pod, inputs.hostname, &mut mounts).map_err(config)?;
    }
    mounts.extend(message::mount(node, pod, container, inputs.attempt).map_err(config)?);
    Ok(mounts)
}

/// The security context of a container. `complete`: the runtime applies it, and the kubelet's part is to refuse root.
fn security_of(
    node: &Node,
    pod: &Pod,
    container: &Container,
    image: &ImageConfig,
    complete: bool,
) -> Result<Security, WaitingReason> {
    if node.pretends() {
        return Ok(Security::default());
    }
    if complete {
        security::check_user(pod, container, image).map_err(config)?;
        return Ok(Security::default());
    }
    let decided = decide(node, pod, container, image).map_err(config)?;
    for note in decided.notes {
        let events = &node.events;
        let name = Some(container.name.as_str());
        events.pod(pod, name, Kind::Warning, "SecurityContextNotApplied", note);
    }
    Ok(decided.security)
}

/// The limits of a container and of its pod.
fn limits_of(node: &Node, pod: &Pod, container: &Container, complete: bool) -> Limits {
    Limits {
        pids: match node.pretends() || complete {
            true => None,
            // Where processes are not counted by cgroups, a container has what its pod may have.
            false => [pids::container_limit(), node.config.pod_pids_limit]
                .into_iter()
                .flatten()
                .min(),
        },
        pod: limits::of_pod(pod, node.config.pod_pids_limit),
        ..limits::of(pod, container, node.memory())
    }
}

fn owner(pod: &Pod, container: &Container, attempt: u32) -> Owner {
    Owner {
        pod_uid: pod.uid().unwrap_or_default(),
        pod_namespace: pod.namespace().unwrap_or_default(),
        pod_name: pod.name_any(),
        container: container.name.clone(),
        attempt,
    }
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

/// The downward API of a pod on this node.
pub(super) fn downward<'a>(node: &'a Node, pod: &'a Pod) -> Downward<'a> {
    Downward {
        pod,
        node: &node.config.node_name,
        address: node.config.address.to_string(),
        pod_addresses: node.addresses(pod),
        config: &node.config,
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
