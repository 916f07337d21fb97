//! Pods and containers in the form in which plugins are notified of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use allot_protos::nri::{
    Container, ContainerState, Hook, Hooks, LinuxContainer, LinuxDevice, LinuxNamespace,
    LinuxNetDevice, LinuxPodSandbox, Mount, OptionalFileMode, OptionalInt, OptionalUInt32,
    PodSandbox, SecurityProfile, User, security_profile::ProfileType,
};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::resources;
use crate::oci;
use crate::spec::{self, ContainerSpec, Owner, PodLimits, Seccomp};

/// What is known of a pod on its node.
pub(crate) struct Facts {
    /// Its own addresses.
    pub(crate) addresses: Vec<String>,
    /// Its own network namespace.
    pub(crate) network: Option<PathBuf>,
    /// What its containers may use up together.
    pub(crate) limits: PodLimits,
}

/// A label or annotation of the kubelet.
fn of_kubelet(name: &str) -> String {
    format!("io.kubernetes.{name}")
}

/// The labels that a kubelet gives a pod, besides its own.
fn labels(owner: &Owner) -> BTreeMap<String, String> {
    BTreeMap::from([
        (of_kubelet("pod.name"), owner.pod_name.clone()),
        (of_kubelet("pod.namespace"), owner.pod_namespace.clone()),
        (of_kubelet("pod.uid"), owner.pod_uid.clone()),
    ])
}

/// The cgroup of a pod; empty for a UID that cannot have one.
fn cgroup_parent(uid: &str) -> String {
    let name = oci::pod::name(uid);
    let path = name.map(|name| oci::pod::path(&name).to_string_lossy().into_owned());
    path.unwrap_or_default()
}

/// A pod of which only its name is known.
pub(super) fn sandbox_of(owner: &Owner) -> PodSandbox {
    PodSandbox {
        id: owner.pod_uid.clone(),
        name: owner.pod_name.clone(),
        uid: owner.pod_uid.clone(),
        namespace: owner.pod_namespace.clone(),
        labels: labels(owner),
        linux: Some(LinuxPodSandbox {
            cgroup_parent: cgroup_parent(&owner.pod_uid),
            ..LinuxPodSandbox::default()
        }),
        ..PodSandbox::default()
    }
}

/// A pod. Its sandbox has the UID as ID.
pub(crate) fn sandbox(pod: &Pod, facts: Facts) -> PodSandbox {
    let owner = Owner {
        pod_uid: pod.uid().unwrap_or_default(),
        pod_namespace: pod.namespace().unwrap_or_default(),
        pod_name: pod.name_any(),
        ..Owner::default()
    };
    let mut sandbox = sandbox_of(&owner);
    sandbox.labels.extend(pod.labels().clone());
    sandbox.annotations.extend(pod.annotations().clone());
    sandbox.ips = facts.addresses;
    let linux = sandbox.linux.get_or_insert_default();
    linux.pod_resources = Some(resources::of_pod(facts.limits));
    // As with containerd, a pod in the network of the node has no such namespace.
    linux.namespaces = namespaces(facts.network.as_ref());
    sandbox
}

fn namespaces(network: Option<&PathBuf>) -> Vec<LinuxNamespace> {
    let network = network.map(|path| LinuxNamespace {
        r#type: "network".to_owned(),
        path: path.to_string_lossy().into_owned(),
    });
    network.into_iter().collect()
}

/// A container that has been put together and was not started.
pub(super) fn container(spec: &ContainerSpec) -> Container {
    let owner = &spec.owner;
    let mut labels = labels(owner);
    labels.insert(of_kubelet("container.name"), owner.container.clone());
    let annotations = [
        (
            of_kubelet("container.restartCount"),
            owner.attempt.to_string(),
        ),
        (of_kubelet("cri.container-type"), "container".to_owned()),
        (of_kubelet("cri.container-name"), owner.container.clone()),
        (of_kubelet("cri.sandbox-id"), owner.pod_uid.clone()),
        (of_kubelet("cri.sandbox-name"), owner.pod_name.clone()),
        (
            of_kubelet("cri.sandbox-namespace"),
            owner.pod_namespace.clone(),
        ),
        (of_kubelet("cri.sandbox-uid"), owner.pod_uid.clone()),
    ];
    let mut annotations = BTreeMap::from(annotations);
    annotations.extend(spec.adjusted.annotations.clone());
    let security = &spec.security;
    let profile = match security.seccomp {
        Seccomp::Unconfined => ProfileType::Unconfined,
        Seccomp::RuntimeDefault => ProfileType::RuntimeDefault,
        Seccomp::Profile(_) => ProfileType::Localhost,
    };
    let mut namespaces = namespaces(spec.network.as_ref());
    let own = [("pid", !security.host_pid), ("ipc", !security.host_ipc)];
    let own = own
        .into_iter()
        .filter(|(_, own)| *own)
        .map(|(kind, _)| kind);
    namespaces.extend(
        ["mount", "uts"]
            .into_iter()
            .chain(own)
            .map(|kind| LinuxNamespace {
                r#type: kind.to_owned(),
                path: String::new(),
            }),
    );
    let score = spec.limits.oom_score_adj.map(i64::from);
    Container {
        id: spec.id.clone(),
        pod_sandbox_id: owner.pod_uid.clone(),
        name: owner.container.clone(),
        state: ContainerState::ContainerCreated as i32,
        labels,
        annotations,
        args: spec.args.clone(),
        env: spec.env.clone(),
        mounts: spec.mounts.iter().map(mount).collect(),
        hooks: Some(hooks(spec)),
        linux: Some(LinuxContainer {
            namespaces,
            devices: spec.devices.iter().map(device).collect(),
            resources: Some(resources::described(&spec.limits)),
            oom_score_adj: score.map(|value| OptionalInt { value }),
            cgroups_path: oci::cgroups_path(spec).to_string_lossy().into_owned(),
            seccomp_profile: Some(SecurityProfile {
                profile_type: profile as i32,
                localhost_ref: String::new(),
            }),
            sysctl: security.sysctls.clone(),
            net_devices: net_devices(spec),
            ..LinuxContainer::default()
        }),
        user: Some(User {
            uid: security.user.unwrap_or_default(),
            gid: security.group.unwrap_or_default(),
            additional_gids: security.groups.clone(),
        }),
        ..Container::default()
    }
}

fn net_devices(spec: &ContainerSpec) -> BTreeMap<String, LinuxNetDevice> {
    let devices = spec.net_devices.iter().map(|device| {
        let name = device.name.clone();
        (device.host_interface_name.clone(), LinuxNetDevice { name })
    });
    devices.collect()
}

fn mount(mount: &spec::Mount) -> Mount {
    let mut options = vec!["rbind".to_owned()];
    options.push(if mount.read_only { "ro" } else { "rw" }.to_owned());
    options.push(if mount.follow { "rslave" } else { "rprivate" }.to_owned());
    options.extend(mount.options.iter().cloned());
    let source = match &mount.sub_path {
        Some(below) => mount.source.join(below),
        None => mount.source.clone(),
    };
    Mount {
        destination: mount.target.to_string_lossy().into_owned(),
        r#type: "bind".to_owned(),
        source: source.to_string_lossy().into_owned(),
        options,
    }
}

/// A device of a CDI file may leave to the host what it is; plugins are told what is known here.
fn device(device: &allot_cdi::DeviceNode) -> LinuxDevice {
    LinuxDevice {
        path: device.path.clone(),
        r#type: device.kind.clone().unwrap_or_default(),
        major: device.major.unwrap_or_default(),
        minor: device.minor.unwrap_or_default(),
        file_mode: device.file_mode.map(|value| OptionalFileMode { value }),
        uid: device.uid.map(|value| OptionalUInt32 { value }),
        gid: device.gid.map(|value| OptionalUInt32 { value }),
    }
}

fn hooks(spec: &ContainerSpec) -> Hooks {
    let mut all = Hooks::default();
    for hook in &spec.hooks {
        let point = match hook.hook_name.as_str() {
            "prestart" => &mut all.prestart,
            "createRuntime" => &mut all.create_runtime,
            "createContainer" => &mut all.create_container,
            "startContainer" => &mut all.start_container,
            "poststart" => &mut all.poststart,
            _ => &mut all.poststop,
        };
        point.push(Hook {
            path: hook.path.clone(),
            args: hook.args.clone(),
            env: hook.env.clone(),
            timeout: hook.timeout.map(|value| OptionalInt { value }),
        });
    }
    all
}
