//! Converts security contexts of the API to the privileges of containers.
//!
//! No setting of a pod is ignored silently. A setting that this machine does not support is rejected; if it is
//! supported only in part, a note says so.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, Pod, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext,
};
use kube::ResourceExt;

use crate::oci::capabilities::{self, CapabilityError};
use crate::rules::{self, SeccompError};
use crate::shim::spec::{Confinement, ImageConfig, Isolation, Seccomp, Security};
use crate::sysctls::{self, SysctlError};

mod labels;
#[cfg(test)]
mod tests;

/// A setting of a security context that this node refuses. Texts about the user are the kubelet's.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecurityError {
    /// A user or group number of this field.
    #[error("invalid {field} {value}")]
    Number { field: &'static str, value: i64 },
    /// The pod is for another operating system.
    #[error("the OS field of the pod ({0:?}) does not match the OS of the node ({os:?})", os = OS)]
    OperatingSystem(String),
    /// `runAsNonRoot` with root as the user.
    #[error("container's runAsUser breaks non-root policy {0}")]
    Root(String),
    /// `runAsNonRoot` with an image of which the user is root.
    #[error("container has runAsNonRoot and image will run as root {0}")]
    RootImage(String),
    /// `runAsNonRoot` with an image of which the user is a name, which could be root's.
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root {container}"
    )]
    NamedUser { user: String, container: String },
    /// A seccomp profile.
    #[error(transparent)]
    Seccomp(#[from] SeccompError),
    /// The file of a seccomp profile.
    #[error("cannot load seccomp profile {path:?}: {source}")]
    SeccompFile {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A capability.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// A kernel parameter.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// An AppArmor profile, on a kernel without AppArmor.
    #[error("Cannot enforce AppArmor: AppArmor is not enabled on the host")]
    NoAppArmor,
    /// The runtime's own AppArmor profile.
    #[error(
        "Cannot enforce AppArmor: this runtime has no profile of its own, name a profile of the host"
    )]
    NoDefaultProfile,
    /// An AppArmor profile that the kernel does not have, or whose name means something else to it.
    #[error("Cannot enforce AppArmor: profile {0:?} is not loaded")]
    ProfileNotLoaded(String),
    /// A part of an SELinux label that would be several, or lines of its own.
    #[error("invalid seLinuxOptions.{field} {value:?}")]
    SelinuxOption { field: &'static str, value: String },
    /// An SELinux label, on a kernel without SELinux.
    #[error("Cannot apply seLinuxOptions: SELinux is not enabled on the host")]
    NoSelinux,
    /// `procMount: Unmasked` with the users of the host.
    #[error("procMount Unmasked is not possible: `hostUsers` must be false to use it")]
    Unmasked,
    /// A setting that the isolation of this node does not allow.
    #[error("{what} is not possible on this node: {why}")]
    NotPossible {
        what: &'static str,
        why: &'static str,
    },
}

/// The operating system of this node, as `spec.os` of a pod names it.
const OS: &str = "linux";

/// What decisions depend on besides the pod.
pub(super) struct NodeCapabilities<'a> {
    /// How containers are isolated here.
    pub(super) isolation: Isolation,
    /// The node's directory.
    pub(super) root: &'a Path,
    /// The kernel enforces profiles of AppArmor.
    pub(super) apparmor: bool,
    /// The kernel enforces labels of SELinux.
    pub(super) selinux: bool,
    /// The pod has a network namespace of its own.
    pub(super) own_network: bool,
    /// Capabilities of the agent, for containers without their own user namespace.
    pub(super) capabilities: &'a [String],
}

/// Whether AppArmor and SELinux are available.
pub(super) fn kernel_modules() -> (bool, bool) {
    let apparmor = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled");
    (
        apparmor.is_ok_and(|text| text.starts_with('Y')),
        Path::new("/sys/fs/selinux/enforce").exists(),
    )
}

/// A decision, and notes about it.
#[derive(Debug, Default)]
pub(super) struct Decided {
    pub(super) security: Security,
    pub(super) notes: Vec<String>,
}

/// A pod as the kubelet writes it in messages.
fn named(pod: &Pod) -> String {
    format!(
        "{}_{}({})",
        pod.name_any(),
        pod.namespace().unwrap_or_default(),
        pod.uid().unwrap_or_default()
    )
}

/// Applies the security contexts of a container and its pod; the container's take precedence.
///
/// # Errors
/// Why the container cannot be started: the reason of its waiting state is `CreateContainerConfigError`.
pub(super) fn decide(
    machine: &NodeCapabilities<'_>,
    pod: &Pod,
    container: &Container,
    image: &ImageConfig,
) -> Result<Decided, SecurityError> {
    let spec = pod.spec.clone().unwrap_or_default();
    check_system(&spec)?;
    let of_pod = spec.security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let mut decided = Decided::default();
    let security = &mut decided.security;
    user(security, pod, container, (&own, &of_pod), image)?;
    security.privileged = own.privileged.unwrap_or(false);
    security.capabilities = capabilities::of(own.capabilities.as_ref(), security.privileged)?;
    let missing = match machine.isolation {
        Isolation::Namespaces => {
            let asked = own.capabilities.as_ref();
            capabilities::restrict(&mut security.capabilities, asked, machine.capabilities)?
        }
        // A new user namespace has all of them; plain processes have the agent's.
        Isolation::UserNamespace | Isolation::None => Vec::new(),
    };
    security.no_new_privileges = own.allow_privilege_escalation == Some(false);
    security.read_only_root = own.read_only_root_filesystem.unwrap_or(false);
    security.unmasked = own.proc_mount.as_deref() == Some("Unmasked");
    let separate = spec.host_users == Some(false);
    if security.unmasked
        && !separate
        && !security.privileged
        && machine.isolation == Isolation::Namespaces
    {
        // The rule of the API, which older servers do not have: what is masked is the host's.
        return Err(SecurityError::Unmasked);
    }
    let seccomp = own
        .seccomp_profile
        .as_ref()
        .or(of_pod.seccomp_profile.as_ref());
    security.seccomp = self::seccomp(machine.root, seccomp)?;
    let profile = rules::apparmor(pod, container);
    security.confinement = confinement(machine, profile.as_ref(), (&own, &of_pod))?;
    security.host_pid = spec.host_pid.unwrap_or(false);
    security.host_ipc = spec.host_ipc.unwrap_or(false);
    for sysctl in of_pod.sysctls.iter().flatten() {
        let name = sysctls::of_the_pod(&sysctl.name, machine.own_network, security.host_ipc)?;
        security.sysctls.insert(name, sysctl.value.clone());
    }
    possible(machine.isolation, &decided.security, separate)?;
    decided.notes = shortcomings(machine.isolation, &decided.security, &of_pod);
    if spec.share_process_namespace == Some(true) && !decided.security.host_pid {
        let note = "shareProcessNamespace has no effect: every container has its own processes";
        decided.notes.push(note.to_owned());
    }
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let mut named = ephemeral.filter(|it| it.name == container.name);
    if let Some(target) = named.find_map(|it| it.target_container_name.as_deref())
        && !target.is_empty()
        && !decided.security.host_pid
    {
        let note =
            format!("targetContainerName has no effect: the processes of {target} are not visible");
        decided.notes.push(note);
    }
    if !missing.is_empty() {
        let missing = missing.join(", ");
        decided.notes.push(format!(
            "the node agent does not have {missing} and cannot give it"
        ));
    }
    Ok(decided)
}

/// Whether a container whose image names a user may run as that.
///
/// # Errors
/// It would run as root, which the pod excludes.
pub(super) fn check_user(
    pod: &Pod,
    container: &Container,
    image: &ImageConfig,
) -> Result<(), SecurityError> {
    let spec = pod.spec.as_ref();
    let of_pod = spec.and_then(|spec| spec.security_context.clone());
    let own = container.security_context.clone().unwrap_or_default();
    let context = (&own, &of_pod.unwrap_or_default());
    user(&mut Security::default(), pod, container, context, image)
}

/// Refuses pods for another operating system: Pod Security asks less of those, because nothing here would run them.
pub(super) fn check_system(spec: &PodSpec) -> Result<(), SecurityError> {
    match &spec.os {
        Some(os) if os.name != OS => Err(SecurityError::OperatingSystem(os.name.clone())),
        _ => Ok(()),
    }
}

fn user(
    security: &mut Security,
    pod: &Pod,
    container: &Container,
    (own, of_pod): (&SecurityContext, &PodSecurityContext),
    image: &ImageConfig,
) -> Result<(), SecurityError> {
    let id = |value: Option<i64>, field: &'static str| {
        let invalid = |value| SecurityError::Number { field, value };
        let fits = |value| u32::try_from(value).map_err(|_| invalid(value));
        value.map(fits).transpose()
    };
    let asked = id(own.run_as_user.or(of_pod.run_as_user), "runAsUser")?;
    let name = image.user.split(':').next().unwrap_or_default();
    if own.run_as_non_root.or(of_pod.run_as_non_root) == Some(true) {
        let whose = format!("(pod: \"{}\", container: {})", named(pod), container.name);
        let by_number = if name.is_empty() {
            Some(0)
        } else {
            // Read as by the helper: what it takes for a name can be root.
            allot_images::user::id(name)
        };
        match (asked, by_number) {
            (Some(0), _) => return Err(SecurityError::Root(whose)),
            (None, Some(0)) => return Err(SecurityError::RootImage(whose)),
            (None, None) => {
                return Err(SecurityError::NamedUser {
                    user: name.to_owned(),
                    container: whose,
                });
            }
            _ => {}
        }
    }
    security.user = asked;
    security.user_name = (asked.is_none() && !image.user.is_empty()).then(|| image.user.clone());
    security.group = id(own.run_as_group.or(of_pod.run_as_group), "runAsGroup")?;
    for group in of_pod.supplemental_groups.iter().flatten() {
        security
            .groups
            .extend(id(Some(*group), "supplementalGroups")?);
    }
    security.groups.extend(id(of_pod.fs_group, "fsGroup")?);
    security.merge_groups = of_pod.supplemental_groups_policy.as_deref() != Some("Strict");
    Ok(())
}

fn seccomp(root: &Path, asked: Option<&SeccompProfile>) -> Result<Seccomp, SecurityError> {
    match rules::seccomp(root, asked)? {
        None | Some(rules::Seccomp::Unconfined) => Ok(Seccomp::Unconfined),
        Some(rules::Seccomp::RuntimeDefault) => Ok(Seccomp::RuntimeDefault),
        Some(rules::Seccomp::Localhost(path)) => {
            let content = std::fs::read_to_string(&path).map(Seccomp::Profile);
            content.map_err(|source| SecurityError::SeccompFile { path, source })
        }
    }
}

fn confinement(
    machine: &NodeCapabilities<'_>,
    profile: Option<&AppArmorProfile>,
    (own, of_pod): (&SecurityContext, &PodSecurityContext),
) -> Result<Confinement, SecurityError> {
    let mut confinement = Confinement::default();
    if let Some(profile) = profile.filter(|profile| profile.type_ != "Unconfined") {
        if !machine.apparmor {
            return Err(SecurityError::NoAppArmor);
        }
        if profile.type_ == "RuntimeDefault" {
            return Err(SecurityError::NoDefaultProfile);
        }
        let name = profile.localhost_profile.as_deref().unwrap_or_default();
        let loaded = std::fs::read_to_string("/sys/kernel/security/apparmor/profiles").ok();
        labels::check_profile(name, loaded.as_deref())?;
        confinement.apparmor = Some(name.to_owned());
    }
    let options = own
        .se_linux_options
        .as_ref()
        .or(of_pod.se_linux_options.as_ref());
    if let Some(options) = options {
        if !machine.selinux {
            return Err(SecurityError::NoSelinux);
        }
        confinement.selinux = Some(labels::selinux(options)?);
    }
    Ok(confinement)
}

/// Rejects settings that cannot be carried out.
fn possible(
    isolation: Isolation,
    security: &Security,
    separate_users: bool,
) -> Result<(), SecurityError> {
    let refuse = |what, why| Err(SecurityError::NotPossible { what, why });
    match isolation {
        Isolation::Namespaces if separate_users => refuse(
            "hostUsers: false",
            "no range of user IDs is set aside for pods",
        ),
        Isolation::Namespaces => Ok(()),
        Isolation::UserNamespace => {
            const WHY: &str = "the agent does not run as root";
            if security.host_pid {
                refuse("hostPID", WHY)
            } else if security
                .groups
                .iter()
                .any(|group| Some(*group) != security.group)
            {
                refuse("a supplementary group or fsGroup", WHY)
            } else {
                Ok(())
            }
        }
        Isolation::None => {
            const WHY: &str =
                "containers are plain processes, because namespaces are not permitted";
            if separate_users {
                return refuse("hostUsers: false", WHY);
            }
            let default = Security {
                user: security.user,
                group: security.group,
                groups: security.groups.clone(),
                merge_groups: security.merge_groups,
                no_new_privileges: security.no_new_privileges,
                // They are the agent's, with or without the setting.
                privileged: security.privileged,
                capabilities: security.capabilities.clone(),
                ..Security::default()
            };
            let given = capabilities::of(None, security.privileged).unwrap_or_default();
            if *security != default || security.capabilities != given {
                return refuse("the security context", WHY);
            }
            let root = rustix::process::geteuid().is_root();
            if !root && (security.user.is_some() || security.group.is_some()) {
                return refuse("runAsUser or runAsGroup", WHY);
            }
            Ok(())
        }
    }
}

/// Settings with less effect than their names promise.
fn shortcomings(
    isolation: Isolation,
    security: &Security,
    of_pod: &PodSecurityContext,
) -> Vec<String> {
    let mut notes = Vec::new();
    if isolation == Isolation::UserNamespace && security.privileged {
        notes.push(
            "privileged gives the rights of the agent's user only, which is not root on this node"
                .to_owned(),
        );
    }
    if isolation == Isolation::UserNamespace && of_pod.fs_group.is_some() {
        notes.push("fsGroup is the only group there is: the agent does not run as root".to_owned());
    }
    notes
}
