//! Translation of pods and containers to CRI messages, without side effects.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use allot_protos::cri_v1 as v1;
use k8s_openapi::api::core::v1::{
    AppArmorProfile, Pod, PodSecurityContext, SELinuxOptions, SeccompProfile, SecurityContext,
};
use kube::ResourceExt;
use v1::security_profile::ProfileType;

use crate::oci;
use crate::rules::{self, SeccompError};
use crate::runtime::{Image, Request};
use crate::shim::spec::{ContainerSpec, Limits, Mount};
use crate::sysctls::{self, SysctlError};

#[cfg(test)]
mod tests;

/// A setting of a pod that this node refuses.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// A kernel parameter.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// A seccomp profile.
    #[error(transparent)]
    Seccomp(#[from] SeccompError),
    /// A user namespace for the pod.
    #[error(
        "hostUsers: false is not possible on this node: no range of user IDs is set aside for pods"
    )]
    UserNamespace,
}

/// Labels that identify sandboxes and containers. They are the same as the kubelet's, so that tools can show pod names.
pub(super) mod label {
    pub(crate) const POD_NAME: &str = "io.kubernetes.pod.name";
    pub(crate) const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    pub(crate) const POD_UID: &str = "io.kubernetes.pod.uid";
    pub(crate) const CONTAINER: &str = "io.kubernetes.container.name";
    /// Directory of the owning node. The agent ignores sandboxes and containers that do not have its own value.
    pub(crate) const OWNER: &str = "allot.dev/node-directory";
}

/// Annotations of sandboxes and containers.
pub(super) mod annotation {
    /// Of a sandbox: `true` if the runtime had a pod network when the sandbox was created.
    pub(crate) const NETWORKS: &str = "allot.dev/pod-networks";
    pub(crate) const RESTARTS: &str = "io.kubernetes.container.restartCount";
    /// `true` if standard input is open.
    pub(crate) const STDIN: &str = "allot.dev/stdin";
    /// `true` if the container has a terminal.
    pub(crate) const TTY: &str = "allot.dev/tty";
    /// IDs of the images that are volumes of a container, separated by commas.
    pub(crate) const IMAGES: &str = "allot.dev/image-volumes";
}

/// Sandbox parameters that do not come from the pod object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// The node's directory.
    pub(super) directory: &'a Path,
    /// Whether the runtime has a pod network.
    pub(super) networks: bool,
    /// Number of earlier sandboxes of the pod.
    pub(super) attempt: u32,
}

/// Whether a pod has its own network namespace.
pub(super) fn own_network(pod: &Pod, networks: bool) -> bool {
    let asked = pod.spec.as_ref().and_then(|spec| spec.host_network);
    networks && asked != Some(true)
}

fn id(value: Option<i64>) -> Option<v1::Int64Value> {
    value.map(|value| v1::Int64Value { value })
}

fn labels(pod: &Pod, directory: &Path) -> HashMap<String, String> {
    let owner = directory.to_string_lossy().into_owned();
    HashMap::from([
        (label::POD_NAME.into(), pod.name_any()),
        (
            label::POD_NAMESPACE.into(),
            pod.namespace().unwrap_or_default(),
        ),
        (label::POD_UID.into(), pod.uid().unwrap_or_default()),
        (label::OWNER.into(), owner),
    ])
}

/// Builds the sandbox configuration of a pod.
pub(super) fn sandbox(pod: &Pod, place: Place<'_>) -> Result<v1::PodSandboxConfig, TranslateError> {
    let spec = pod.spec.clone().unwrap_or_default();
    let of_pod = spec.security_context.clone().unwrap_or_default();
    let own = own_network(pod, place.networks);
    let init = spec.init_containers.iter().flatten();
    let privileged = init.chain(&spec.containers).any(|container| {
        let context = container.security_context.as_ref();
        context.and_then(|context| context.privileged) == Some(true)
    });
    let mut parameters = HashMap::new();
    for sysctl in of_pod.sysctls.iter().flatten() {
        let name = sysctls::of_the_pod(&sysctl.name, own, spec.host_ipc == Some(true))?;
        parameters.insert(name, sysctl.value.clone());
    }
    // The agent's labels take precedence over the pod's.
    let mut all: HashMap<String, String> = pod.labels().clone().into_iter().collect();
    all.extend(labels(pod, place.directory));
    let mut annotations: HashMap<String, String> = pod.annotations().clone().into_iter().collect();
    annotations.insert(annotation::NETWORKS.into(), place.networks.to_string());
    let hostname: String = match (&spec.hostname, own) {
        // The pod shares the host's UTS namespace, and with it the host's name.
        (_, false) => String::new(),
        (Some(name), true) => name.clone(),
        (None, true) => pod.name_any().chars().take(63).collect(),
    };
    let seccomp = profile(place.directory, of_pod.seccomp_profile.as_ref())?;
    Ok(v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            namespace: pod.namespace().unwrap_or_default(),
            attempt: place.attempt,
        }),
        hostname,
        log_directory: rules::log_directory(place.directory, pod)
            .to_string_lossy()
            .into_owned(),
        dns_config: None,
        labels: all,
        annotations,
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: String::new(),
            sysctls: parameters,
            security_context: Some(v1::LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(pod, own)),
                selinux_options: of_pod.se_linux_options.as_ref().map(selinux),
                run_as_user: id(of_pod.run_as_user),
                run_as_group: id(of_pod.run_as_group.filter(|_| of_pod.run_as_user.is_some())),
                readonly_rootfs: false,
                supplemental_groups: groups(&of_pod),
                supplemental_groups_policy: policy(&of_pod) as i32,
                privileged,
                // The only process in the sandbox is the runtime's pause process.
                seccomp: Some(seccomp.unwrap_or(v1::SecurityProfile {
                    profile_type: ProfileType::RuntimeDefault as i32,
                    localhost_ref: String::new(),
                })),
                apparmor: None,
            }),
        }),
    })
}

fn namespaces(pod: &Pod, own_network: bool) -> v1::NamespaceOption {
    let spec = pod.spec.as_ref();
    let asks = |get: fn(&k8s_openapi::api::core::v1::PodSpec) -> Option<bool>| {
        spec.and_then(get) == Some(true)
    };
    let pid = if asks(|spec| spec.host_pid) {
        v1::NamespaceMode::Node
    } else if asks(|spec| spec.share_process_namespace) {
        v1::NamespaceMode::Pod
    } else {
        v1::NamespaceMode::Container
    };
    let or_node = |node: bool| match node {
        true => v1::NamespaceMode::Node as i32,
        false => v1::NamespaceMode::Pod as i32,
    };
    v1::NamespaceOption {
        network: or_node(!own_network),
        pid: pid as i32,
        ipc: or_node(asks(|spec| spec.host_ipc)),
        target_id: String::new(),
    }
}

fn groups(of_pod: &PodSecurityContext) -> Vec<i64> {
    let own = of_pod.supplemental_groups.iter().flatten().copied();
    own.chain(of_pod.fs_group).collect()
}

fn policy(of_pod: &PodSecurityContext) -> v1::SupplementalGroupsPolicy {
    match of_pod.supplemental_groups_policy.as_deref() {
        Some("Strict") => v1::SupplementalGroupsPolicy::Strict,
        _ => v1::SupplementalGroupsPolicy::Merge,
    }
}

fn selinux(options: &SELinuxOptions) -> v1::SeLinuxOption {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    v1::SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    }
}

/// Translates a seccomp profile.
fn profile(
    directory: &Path,
    asked: Option<&SeccompProfile>,
) -> Result<Option<v1::SecurityProfile>, TranslateError> {
    let Some(asked) = rules::seccomp(directory, asked)? else {
        return Ok(None);
    };
    let (kind, file) = match asked {
        rules::Seccomp::Unconfined => (ProfileType::Unconfined, None),
        rules::Seccomp::RuntimeDefault => (ProfileType::RuntimeDefault, None),
        rules::Seccomp::Localhost(file) => (ProfileType::Localhost, Some(file)),
    };
    Ok(Some(v1::SecurityProfile {
        profile_type: kind as i32,
        localhost_ref: file.unwrap_or_default().to_string_lossy().into_owned(),
    }))
}

fn apparmor(asked: &AppArmorProfile) -> v1::SecurityProfile {
    let kind = match asked.type_.as_str() {
        "Localhost" => ProfileType::Localhost,
        "Unconfined" => ProfileType::Unconfined,
        _ => ProfileType::RuntimeDefault,
    };
    v1::SecurityProfile {
        profile_type: kind as i32,
        localhost_ref: asked.localhost_profile.clone().unwrap_or_default(),
    }
}

/// Builds the configuration of a container.
pub(super) fn container(
    spec: &ContainerSpec,
    request: &Request,
    place: Place<'_>,
) -> Result<v1::ContainerConfig, TranslateError> {
    let Request {
        pod,
        container,
        image,
        ..
    } = request;
    let mut labels = labels(pod, place.directory);
    labels.insert(label::CONTAINER.into(), container.name.clone());
    let mut annotations = HashMap::from([
        (annotation::RESTARTS.into(), spec.owner.attempt.to_string()),
        (annotation::STDIN.into(), spec.stdin.to_string()),
        (annotation::TTY.into(), spec.tty.to_string()),
    ]);
    if !request.volumes.is_empty() {
        let images: Vec<&str> = request.volumes.values().map(|it| it.id.as_str()).collect();
        annotations.insert(annotation::IMAGES.into(), images.join(","));
    }
    let variables = spec.env.iter().filter_map(|line| line.split_once('='));
    let envs = variables.map(|(key, value)| v1::KeyValue {
        key: key.to_owned(),
        value: value.into(),
    });
    let devices = request.cdi_devices.iter().cloned();
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: container.name.clone(),
            attempt: spec.owner.attempt,
        }),
        image: Some(image_spec(image)),
        command: request.command.clone(),
        args: request.args.clone(),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: envs.collect(),
        mounts: spec.mounts.iter().map(|it| mount(request, it)).collect(),
        labels,
        annotations,
        log_path: rules::log_name(&container.name, spec.owner.attempt),
        stdin: spec.stdin,
        stdin_once: spec.stdin_once,
        tty: spec.tty,
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(resources(&spec.limits)),
            security_context: Some(security(request, place)?),
        }),
        cdi_devices: devices.map(|name| v1::CdiDevice { name }).collect(),
    })
}

fn image_spec(image: &Image) -> v1::ImageSpec {
    v1::ImageSpec {
        image: image.id.clone(),
        user_specified_image: image.reference.clone(),
        ..v1::ImageSpec::default()
    }
}

fn mount(request: &Request, mount: &Mount) -> v1::Mount {
    let mut asked = request.container.volume_mounts.iter().flatten();
    let asked = asked.find(|asked| Path::new(&asked.mount_path) == mount.target);
    let recursive =
        asked.is_some_and(|asked| asked.recursive_read_only.as_deref() == Some("Enabled"));
    let image = asked.and_then(|asked| request.volumes.get(&asked.name));
    let sub_path = mount.sub_path.as_deref().filter(|_| image.is_some());
    let propagation = match (mount.both_ways, mount.follow) {
        (true, _) => v1::MountPropagation::PropagationBidirectional,
        (false, true) => v1::MountPropagation::PropagationHostToContainer,
        (false, false) => v1::MountPropagation::PropagationPrivate,
    };
    v1::Mount {
        container_path: mount.target.to_string_lossy().into_owned(),
        host_path: mount.source.to_string_lossy().into_owned(),
        readonly: mount.read_only,
        selinux_relabel: false,
        propagation: propagation as i32,
        recursive_read_only: recursive,
        image: image.map(image_spec),
        image_sub_path: sub_path.map_or_else(String::new, |it| it.to_string_lossy().into_owned()),
    }
}

/// Translates the limits of a container.
pub(super) fn resources(limits: &Limits) -> v1::LinuxContainerResources {
    let pages: BTreeMap<_, _> = limits.huge_pages.iter().collect();
    v1::LinuxContainerResources {
        cpu_period: limits.cpu_quota.map_or(0, |_| 100_000),
        cpu_quota: limits.cpu_quota.unwrap_or(0),
        cpu_shares: limits.cpu_shares.unwrap_or(0).cast_signed(),
        memory_limit_in_bytes: limits.memory.unwrap_or(0),
        oom_score_adj: limits.oom_score_adj.unwrap_or(0).into(),
        hugepage_limits: pages
            .into_iter()
            .map(|(size, limit)| v1::HugepageLimit {
                page_size: size.clone(),
                limit: *limit,
            })
            .collect(),
    }
}

fn security(
    request: &Request,
    place: Place<'_>,
) -> Result<v1::LinuxContainerSecurityContext, TranslateError> {
    let Request { pod, container, .. } = request;
    let spec = pod.spec.clone().unwrap_or_default();
    let of_pod = spec.security_context.clone().unwrap_or_default();
    let own: SecurityContext = container.security_context.clone().unwrap_or_default();
    if spec.host_users == Some(false) {
        return Err(TranslateError::UserNamespace);
    }
    let user = own.run_as_user.or(of_pod.run_as_user);
    let group = own.run_as_group.or(of_pod.run_as_group);
    // A runtime applies the image's user and group itself, but rejects a group that is set without a user.
    let (user, user_name) = match (user, group) {
        (None, Some(_)) => {
            let name = request.image.user.split(':').next().unwrap_or_default();
            match (name, name.parse::<i64>()) {
                ("", _) => (Some(0), String::new()),
                (_, Ok(number)) => (Some(number), String::new()),
                (name, Err(_)) => (None, name.to_owned()),
            }
        }
        (user, _) => (user, String::new()),
    };
    let seccomp = own
        .seccomp_profile
        .as_ref()
        .or(of_pod.seccomp_profile.as_ref());
    let seccomp = profile(place.directory, seccomp)?.unwrap_or(v1::SecurityProfile {
        profile_type: ProfileType::Unconfined as i32,
        localhost_ref: String::new(),
    });
    let privileged = own.privileged.unwrap_or(false);
    let asked = own.capabilities.clone().unwrap_or_default();
    let mut capabilities = v1::Capability {
        add_capabilities: asked.add.unwrap_or_default(),
        drop_capabilities: asked.drop.unwrap_or_default(),
    };
    let added = |name: &str| {
        let mut all = capabilities.add_capabilities.iter();
        all.any(|it| it.eq_ignore_ascii_case(name) || it.eq_ignore_ascii_case("ALL"))
    };
    // A pod that shares the host's network without having requested it must not be able to read the host's traffic.
    let shares = !place.networks && spec.host_network != Some(true);
    if shares && !privileged && !added("NET_RAW") {
        capabilities.drop_capabilities.push("NET_RAW".into());
    }
    let masked = own.proc_mount.as_deref() != Some("Unmasked") && !privileged;
    let paths = |list: &[&str]| match masked {
        true => list.iter().map(|path| (*path).to_owned()).collect(),
        false => Vec::new(),
    };
    let options = own
        .se_linux_options
        .as_ref()
        .or(of_pod.se_linux_options.as_ref());
    Ok(v1::LinuxContainerSecurityContext {
        capabilities: Some(capabilities),
        privileged,
        namespace_options: Some(namespaces(pod, own_network(pod, place.networks))),
        selinux_options: options.map(selinux),
        run_as_user: id(user),
        run_as_username: user_name,
        readonly_rootfs: own.read_only_root_filesystem.unwrap_or(false),
        supplemental_groups: groups(&of_pod),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        run_as_group: id(group),
        masked_paths: paths(&oci::MASKED),
        readonly_paths: paths(&oci::READ_ONLY),
        seccomp: Some(seccomp),
        apparmor: rules::apparmor(pod, container).as_ref().map(apparmor),
        supplemental_groups_policy: policy(&of_pod) as i32,
    })
}
