//! The files through which agent and shim talk.

use std::path::{Path, PathBuf};

use allot_cdi::{DeviceNode, Hook, IntelRdt, NetDevice};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{AtPath as _, PathError};

mod adjusted;
mod root;
mod security;
pub(crate) mod staged;

pub use adjusted::Adjusted;
pub(crate) use root::COPY;
pub use root::{ImageConfig, Mount, RootFs};
pub use security::{Confinement, Limits, PodLimits, Seccomp, Security};

/// The input of the shim, `spec.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ContainerSpec {
    /// Whose container it is; the agent finds it again by this.
    pub owner: Owner,
    /// Id of the container, the name of its directory.
    #[serde(default)]
    pub id: String,
    /// Program and arguments.
    pub args: Vec<String>,
    /// Environment, `NAME=value`.
    pub env: Vec<String>,
    /// Working directory in the container; `/` when absent.
    pub cwd: Option<String>,
    /// Host name in the container.
    pub hostname: String,
    /// The content of the root directory.
    #[serde(default)]
    pub root: RootFs,
    /// Bind mounts, in order.
    pub mounts: Vec<Mount>,
    /// Device nodes, besides the usual ones.
    pub devices: Vec<DeviceNode>,
    /// OCI hooks of the container's devices.
    #[serde(default)]
    pub hooks: Vec<Hook>,
    /// Interfaces of the node that its devices need in [`Self::network`]. The agent moves them there before the shim begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub net_devices: Vec<NetDevice>,
    /// Cache and memory bandwidth of its devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intel_rdt: Option<IntelRdt>,
    /// A terminal instead of pipes.
    pub tty: bool,
    /// Keep standard input open for attach.
    pub stdin: bool,
    /// The first client's end is the end of the input.
    #[serde(default)]
    pub stdin_once: bool,
    /// User and privileges of the program.
    #[serde(default)]
    pub security: Security,
    /// Resource limits.
    #[serde(default)]
    pub limits: Limits,
    /// Path of the log.
    pub log: PathBuf,
    /// Which namespaces to use.
    pub isolation: Isolation,
    /// The network namespace of the pod; that of the node when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<PathBuf>,
    /// Name of the cgroup of the pod, above that of the container. Containers of an earlier release have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_cgroup: Option<String>,
    /// What NRI plugins have added.
    #[serde(default)]
    pub adjusted: Adjusted,
    /// Whether cgroups can be written, so that limits and device rules are in force.
    #[serde(default)]
    pub cgroups: bool,
}

/// The container's identity in the API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// UID of the pod.
    pub pod_uid: String,
    /// Its namespace.
    pub pod_namespace: String,
    /// Its name.
    pub pod_name: String,
    /// Name of the container.
    pub container: String,
    /// How often it was started before.
    pub attempt: u32,
}

/// How much of the host is hidden.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Isolation {
    /// Own namespaces, as root.
    Namespaces,
    /// Own namespaces inside of a user namespace.
    UserNamespace,
    /// No isolation: a process group with an environment.
    #[default]
    None,
}

/// A program was started, `state.json`. Also the shim's answer to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// PID of the container's init on the host.
    pub pid: i32,
    /// Its start time in clock ticks after boot, which distinguishes it from a later process with the same PID.
    pub pid_start: u64,
    /// PID of the shim.
    pub shim: i32,
    /// Start time of the shim.
    pub shim_start: u64,
    /// When the program was started.
    pub started: Timestamp,
    /// The user of the program; unknown without namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
}

/// User and groups of a program, as they are in its container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The user.
    pub id: u32,
    /// The primary group.
    pub group: u32,
    /// The supplementary groups: the primary one among them, unless the pod names them exactly.
    pub others: Vec<u32>,
}

/// A program ended, `exit.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code; 128 + signal number when killed.
    pub code: i32,
    /// When.
    pub finished: Timestamp,
    /// The kernel killed a process of the container because its memory limit was reached.
    #[serde(default)]
    pub oom_killed: bool,
}

/// The shim's answer to the agent: one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The program runs.
    Started(State),
    /// It does not, and never did.
    Failed(String),
}

/// A further program in a running container: a file whose path is the argument of `exec`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecSpec {
    /// Directory of the container.
    pub directory: PathBuf,
    /// Program and arguments.
    pub args: Vec<String>,
    /// Standard input is a terminal.
    pub tty: bool,
}

/// Name of [`ContainerSpec`]'s file.
pub const SPEC: &str = "spec.json";
/// Name of [`State`]'s file.
pub const STATE: &str = "state.json";
/// Name of [`Exit`]'s file.
pub const EXIT: &str = "exit.json";
/// Socket for attach.
pub const ATTACH: &str = "attach.sock";
/// Longest data of a frame on that socket.
pub const MAX_FRAME: u32 = 64 * 1024;

/// Reads one of the files.
///
/// # Errors
/// The file is missing or damaged.
pub fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, PathError> {
    let bytes = std::fs::read(path).at(path)?;
    serde_json::from_slice(&bytes).at(path)
}

/// Replaces one of the files.
///
/// # Errors
/// Errors of the file system.
pub fn write<T: Serialize>(path: &Path, value: &T) -> Result<(), PathError> {
    let bytes = serde_json::to_vec(value).at(path)?;
    allot_cdi::file::write_atomic(path, &bytes, 0o600).at(path)
}

/// Bytes of a reserved file.
const RESERVED: usize = 512;

/// Creates a file that [`fill`] can write to when the disk is full. Until then it has blanks, which are no value.
///
/// # Errors
/// Errors of the file system.
pub fn reserve(path: &Path) -> Result<(), PathError> {
    allot_cdi::file::write_atomic(path, &[b' '; RESERVED], 0o600).at(path)
}

/// Writes a value into the place that is reserved for it.
///
/// # Errors
/// Errors of the file system; the value is too long.
pub fn fill<T: Serialize>(path: &Path, value: &T) -> Result<(), PathError> {
    let mut bytes = serde_json::to_vec(value).at(path)?;
    if bytes.len() > RESERVED {
        return Err(std::io::ErrorKind::FileTooLarge).at(path);
    }
    bytes.resize(RESERVED, b' ');
    let file = std::fs::OpenOptions::new().write(true).open(path);
    file.and_then(|mut file| std::io::Write::write_all(&mut file, &bytes))
        .at(path)
}

/// Start time of a process in clock ticks after boot; `None` when there is no such process (any longer).
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses and may contain anything.
    let rest = &stat[stat.rfind(')')? + 2..];
    let mut fields = rest.split(' ');
    // A zombie has ended; only its status has not been read.
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}
