//! The edits of containers: what a device adds to a container that uses it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Error, bounded};

/// Changes to a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerEdits {
    /// Environment, `NAME=value`.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list"
    )]
    pub env: Vec<String>,
    /// Device nodes to create.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list"
    )]
    pub device_nodes: Vec<DeviceNode>,
    /// Network interfaces to move into the container.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list"
    )]
    pub net_devices: Vec<NetDevice>,
    /// OCI hooks to run.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list"
    )]
    pub hooks: Vec<Hook>,
    /// File systems to mount.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list"
    )]
    pub mounts: Vec<Mount>,
    /// Cache and memory bandwidth control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intel_rdt: Option<IntelRdt>,
    /// Supplementary groups of the process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
}

/// A device node that a container gets. What is absent is as at the node of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceNode {
    /// Path in the container.
    pub path: String,
    /// Path on the host; the same as `path` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// `b`, `c`, `u` or `p`; taken from the host's node when absent.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Major number; taken from the host's node when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major: Option<i64>,
    /// Minor number; taken from the host's node when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<i64>,
    /// Permission bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_mode: Option<u32>,
    /// Access for the device cgroup: a subset of `rwm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
    /// Owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

/// A network interface of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetDevice {
    /// Name of the interface in the network namespace of the host; it is moved from there.
    pub host_interface_name: String,
    /// Its name in the container.
    pub name: String,
}

/// Points in the life of a container at which hooks run, in order.
pub const HOOK_NAMES: [&str; 6] = [
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
];

/// An OCI hook.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hook {
    /// When it runs: one of [`HOOK_NAMES`].
    pub hook_name: String,
    /// Program on the host.
    pub path: String,
    /// Arguments including the zeroth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment of the hook.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
}

/// A file or directory of the host that is mounted in a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mount {
    /// Source on the host.
    pub host_path: String,
    /// Target in the container.
    pub container_path: String,
    /// Mount options such as `ro`, `rbind`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// File system type; a bind mount when absent.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// Intel RDT settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntelRdt {
    /// Class of service.
    #[serde(default, rename = "closID", skip_serializing_if = "Option::is_none")]
    pub clos_id: Option<String>,
    /// L3 cache schema.
    #[serde(
        default,
        rename = "l3CacheSchema",
        skip_serializing_if = "Option::is_none"
    )]
    pub l3_cache_schema: Option<String>,
    /// Memory bandwidth schema.
    #[serde(
        default,
        rename = "memBwSchema",
        skip_serializing_if = "Option::is_none"
    )]
    pub mem_bw_schema: Option<String>,
    /// Cache monitoring on (before 1.1.0).
    #[serde(default, rename = "enableCMT", skip_serializing_if = "Option::is_none")]
    pub enable_cmt: Option<bool>,
    /// Bandwidth monitoring on (before 1.1.0).
    #[serde(default, rename = "enableMBM", skip_serializing_if = "Option::is_none")]
    pub enable_mbm: Option<bool>,
    /// Raw lines for the schemata file (1.1.0).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schemata: Vec<String>,
    /// A separate monitoring group (1.1.0).
    #[serde(
        default,
        rename = "enableMonitoring",
        skip_serializing_if = "Option::is_none"
    )]
    pub enable_monitoring: Option<bool>,
}

impl ContainerEdits {
    /// Contains no edit.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Appends the edits of `other`; a later environment variable of the same name wins in the container.
    pub fn append(&mut self, other: &Self) {
        self.env.extend_from_slice(&other.env);
        self.device_nodes.extend_from_slice(&other.device_nodes);
        self.net_devices.extend_from_slice(&other.net_devices);
        self.hooks.extend_from_slice(&other.hooks);
        self.mounts.extend_from_slice(&other.mounts);
        if other.intel_rdt.is_some() {
            self.intel_rdt.clone_from(&other.intel_rdt);
        }
        for gid in &other.additional_gids {
            if !self.additional_gids.contains(gid) {
                self.additional_gids.push(*gid);
            }
        }
    }

    pub(super) fn validate(&self, field: &str) -> Result<(), Error> {
        let bad = |what: String, reason: &str| Error::Spec {
            field: format!("{field}.{what}"),
            reason: reason.into(),
        };
        for (i, env) in self.env.iter().enumerate() {
            if !matches!(env.split_once('='), Some((name, _)) if !name.is_empty()) {
                return Err(bad(
                    format!("env[{i}]"),
                    &format!("{env:?} is not of the form NAME=value"),
                ));
            }
        }
        for (i, node) in self.device_nodes.iter().enumerate() {
            if node.path.is_empty() {
                return Err(bad(format!("deviceNodes[{i}].path"), "must not be empty"));
            }
            if node
                .kind
                .as_deref()
                .is_some_and(|kind| !["", "b", "c", "u", "p"].contains(&kind))
            {
                return Err(bad(
                    format!("deviceNodes[{i}].type"),
                    "must be one of b, c, u, p",
                ));
            }
            if node
                .permissions
                .as_deref()
                .unwrap_or_default()
                .contains(|c| !"rwm".contains(c))
            {
                return Err(bad(
                    format!("deviceNodes[{i}].permissions"),
                    "must be a subset of rwm",
                ));
            }
        }
        let (mut hosts, mut names) = (BTreeSet::new(), BTreeSet::new());
        for (i, device) in self.net_devices.iter().enumerate() {
            if device.host_interface_name.is_empty() || device.name.is_empty() {
                return Err(bad(
                    format!("netDevices[{i}]"),
                    "hostInterfaceName and name must not be empty",
                ));
            }
            for (field, value, seen) in [
                ("hostInterfaceName", &device.host_interface_name, &mut hosts),
                ("name", &device.name, &mut names),
            ] {
                if !seen.insert(value) {
                    return Err(bad(
                        format!("netDevices[{i}].{field}"),
                        &format!("duplicate {value:?}"),
                    ));
                }
            }
        }
        let rdt = self.intel_rdt.as_ref();
        if let Some(group) = rdt.and_then(|rdt| rdt.clos_id.as_deref())
            && !is_group(group)
        {
            return Err(bad(
                "intelRdt.closID".to_owned(),
                &format!("{group:?} is not the name of a group"),
            ));
        }
        for (i, hook) in self.hooks.iter().enumerate() {
            if !HOOK_NAMES.contains(&hook.hook_name.as_str()) {
                return Err(bad(
                    format!("hooks[{i}].hookName"),
                    &format!("{:?} is not a hook", hook.hook_name),
                ));
            }
            if hook.path.is_empty() {
                return Err(bad(format!("hooks[{i}].path"), "must not be empty"));
            }
        }
        for (i, mount) in self.mounts.iter().enumerate() {
            if mount.host_path.is_empty() || mount.container_path.is_empty() {
                return Err(bad(
                    format!("mounts[{i}]"),
                    "hostPath and containerPath must not be empty",
                ));
            }
        }
        Ok(())
    }

    /// The lowest version with all used fields.
    pub(super) fn version(&self) -> usize {
        let rdt = self.intel_rdt.as_ref();
        let newest =
            rdt.is_some_and(|rdt| !rdt.schemata.is_empty() || rdt.enable_monitoring.is_some());
        [
            (newest || !self.net_devices.is_empty(), 7),
            (rdt.is_some() || !self.additional_gids.is_empty(), 4),
            (
                self.device_nodes
                    .iter()
                    .any(|node| node.host_path.is_some()),
                2,
            ),
            (self.mounts.iter().any(|mount| mount.kind.is_some()), 1),
        ]
        .into_iter()
        .find_map(|(used, version)| used.then_some(version))
        .unwrap_or(0)
    }
}

/// The rule of the specification: the name of a file; empty for a group of the container's own, `/` for the root group.
fn is_group(name: &str) -> bool {
    const LONGEST: usize = 4095;
    let is_name = !matches!(name, "." | "..") && !name.contains(['/', '\n']);
    name == "/" || (is_name && name.len() <= LONGEST)
}
