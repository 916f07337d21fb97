//! From a container of the API to what the runtime starts.

use std::collections::BTreeMap;
use std::path::PathBuf;

use allot_cdi::{ContainerEdits, Registry};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;

use super::env::{self, Downward, Sources};
use super::volumes::Volume;
use super::{Node, log_path, message, volumes};
use crate::shim::spec::{ContainerSpec, Mount, Owner};

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

/// Everything about a container, from the pod, its volumes and its claims.
pub(super) async fn container_spec(
    node: &Node,
    pod: &Pod,
    container: &Container,
    volumes: &BTreeMap<String, Volume>,
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
    let args = arguments(container, &own, node.runtime.name())?;
    let edits = edits(node, pod, container)?;
    let spec = pod.spec.clone().unwrap_or_default();
    let hostname = match (&spec.hostname, spec.host_network) {
        (Some(name), _) => name.clone(),
        (None, Some(true)) => node.config.node_name.clone(),
        (None, _) => pod.name_any().chars().take(63).collect(),
    };
    let mut vars = vec![
        ("PATH".to_owned(), PATH.to_owned()),
        ("HOSTNAME".to_owned(), hostname.clone()),
    ];
    vars.push((
        "HOME".to_owned(),
        std::env::var("HOME").unwrap_or_else(|_| "/".into()),
    ));
    if container.tty == Some(true) {
        vars.push(("TERM".to_owned(), "xterm".to_owned()));
    }
    vars.extend(own.iter().cloned());
    let cdi = edits
        .env
        .iter()
        .filter_map(|variable| variable.split_once('='));
    vars.extend(cdi.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let mut mounts = volumes::mounts(container, volumes, &own).map_err(config)?;
    mounts.extend(edits.mounts.iter().map(|mount| Mount {
        source: PathBuf::from(&mount.host_path),
        target: PathBuf::from(&mount.container_path),
        read_only: mount.options.iter().any(|option| option == "ro"),
    }));
    mounts.extend(message::mount(node, pod, container, attempt).map_err(config)?);
    let pod_security = spec.security_context.unwrap_or_default();
    let security = container.security_context.clone().unwrap_or_default();
    let id = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok());
    let mut groups: Vec<u32> = edits.additional_gids;
    groups.extend(
        pod_security
            .supplemental_groups
            .iter()
            .flatten()
            .filter_map(|group| id(Some(*group))),
    );
    groups.extend(id(pod_security.fs_group));
    let user = id(security.run_as_user.or(pod_security.run_as_user));
    let group = id(security.run_as_group.or(pod_security.run_as_group)).or(user.map(|_| 0));
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
        cwd: container.working_dir.clone(),
        hostname,
        mounts,
        devices: edits.device_nodes,
        hidden: [
            vec![node.config.root_dir.clone()],
            node.config.hidden.clone(),
        ]
        .concat(),
        tty: container.tty.unwrap_or(false),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        user,
        group,
        groups,
        privileged: security.privileged.unwrap_or(false),
        log: log_path(&node.config.root_dir, pod, &container.name, attempt),
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

/// Images are not pulled, so the command has to be in the pod.
fn arguments(
    container: &Container,
    env: &[(String, String)],
    runtime: &str,
) -> Result<Vec<String>, Obstacle> {
    let command = container.command.iter().flatten();
    if container.command.as_ref().is_none_or(Vec::is_empty) && runtime != "simulated" {
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
    Ok(command
        .chain(container.args.iter().flatten())
        .map(|arg| env::expand(arg, env))
        .collect())
}

/// What the container's devices add.
fn edits(node: &Node, pod: &Pod, container: &Container) -> Result<ContainerEdits, Obstacle> {
    let ids = node
        .claims
        .cdi_devices(pod, &container.name)
        .map_err(|message| Obstacle {
            reason: "CreateContainerError",
            message: format!(
                "failed to generate container \"{}\" spec: {message}",
                container.name
            ),
        })?;
    if ids.is_empty() || node.pretends() {
        return Ok(ContainerEdits::default());
    }
    let registry = Registry::load(&node.config.cdi_dirs());
    let edits = registry.resolve(&ids).map_err(|error| Obstacle {
        reason: "CreateContainerError",
        message: format!("failed to inject CDI devices: {error}"),
    })?;
    if !edits.hooks.is_empty() || !edits.net_devices.is_empty() {
        tracing::warn!(
            pod = pod.name_any(),
            "CDI hooks and network devices are not applied by the process runtime"
        );
    }
    Ok(edits)
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
