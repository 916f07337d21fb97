//! Runs plugins: programs with a bounded output, a deadline and an environment of their own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::config::is_name;
use super::{Attachment, INTERFACE};

/// The longest answer of a plugin.
const LONGEST: usize = 1 << 20;
/// Limit of a plugin's other output in messages.
const SHOWN: usize = 4096;
/// Where plugins find the programs that they call.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How often, and how far apart, a program is tried that is being written: as libcni.
const BUSY: (u32, Duration) = (5, Duration::from_secs(1));

/// Why a plugin did not do what it was called for. The texts are those of libcni, as far as it has one.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The configuration does not name the plugin.
    #[error("missing 'type'")]
    NoType,
    /// A type that cannot be the name of a program.
    #[error("invalid plugin name: {0:?}")]
    Name(String),
    /// No directory has the program.
    #[error("failed to find plugin {kind:?} in path [{}]", shown(.directories))]
    NotFound {
        kind: String,
        directories: Vec<PathBuf>,
    },
    /// The paths of the directories cannot be in one variable.
    #[error(transparent)]
    Paths(#[from] std::env::JoinPathsError),
    /// The ID of the pod's sandbox.
    #[error("invalid characters in containerID: {0:?}")]
    ContainerId(String),
    /// A value for `CNI_ARGS` that would be read as several.
    #[error("CNI_ARGS: invalid characters in {key}: {value:?}")]
    Args { key: String, value: String },
    /// The input cannot be written as JSON.
    #[error(transparent)]
    Input(serde_json::Error),
    /// The program cannot be started.
    #[error(transparent)]
    Start(std::io::Error),
    /// It took too long.
    #[error("it did not end within {} s and was killed", .0.as_secs_f64())]
    Timeout(Duration),
    /// Its exit status is not known.
    #[error("it was not waited for: {0}")]
    Wait(#[source] std::io::Error),
    /// Its output is larger than any result.
    #[error("it wrote more than {} bytes", LONGEST)]
    TooLong,
    /// It failed; the text is from its own output.
    #[error("{0}")]
    Failed(String),
    /// It succeeded, and its output is not a result.
    #[error("netplugin succeeded, but its result is malformed: {0}")]
    Result(#[source] serde_json::Error),
}

fn shown(directories: &[PathBuf]) -> String {
    let shown = directories.iter().map(|it| it.display().to_string());
    shown.collect::<Vec<_>>().join(" ")
}

/// Whether a type can be the name of a program in a directory of plugins.
///
/// # Errors
/// It would lead elsewhere.
pub(super) fn check_name(kind: &str) -> Result<(), PluginError> {
    if kind.is_empty() {
        return Err(PluginError::NoType);
    }
    let odd = |byte: u8| byte == b'/' || byte.is_ascii_control() || byte.is_ascii_whitespace();
    match kind.len() > 255 || kind == "." || kind == ".." || kind.bytes().any(odd) {
        true => Err(PluginError::Name(kind.to_owned())),
        false => Ok(()),
    }
}

/// The program of a plugin.
///
/// # Errors
/// No directory has it.
pub(super) fn find(kind: &str, directories: &[PathBuf]) -> Result<PathBuf, PluginError> {
    check_name(kind)?;
    let mut all = directories.iter().map(|directory| directory.join(kind));
    let found = all.find(|path| path.is_file());
    found.ok_or_else(|| PluginError::NotFound {
        kind: kind.to_owned(),
        directories: directories.to_owned(),
    })
}

/// The environment of a plugin, and nothing of the agent's.
///
/// # Errors
/// A part of it would be read as something else.
pub(super) fn variables(
    command: &str,
    pod: Option<&Attachment>,
    directories: &[PathBuf],
) -> Result<Vec<(&'static str, OsString)>, PluginError> {
    let paths = std::env::join_paths(directories)?;
    let mut all = vec![
        ("PATH", OsString::from(PATH)),
        ("CNI_COMMAND", command.into()),
        ("CNI_PATH", paths),
    ];
    let Some(pod) = pod else {
        return Ok(all);
    };
    if !is_name(&pod.id) {
        return Err(PluginError::ContainerId(pod.id.clone()));
    }
    let mut args = Vec::new();
    for (key, value) in &pod.args {
        if [key, value].iter().any(|it| it.contains([';', '=', '\0'])) {
            let (key, value) = (key.clone(), value.clone());
            return Err(PluginError::Args { key, value });
        }
        args.push(format!("{key}={value}"));
    }
    let namespace = pod.namespace.as_deref().unwrap_or(Path::new(""));
    all.push(("CNI_CONTAINERID", pod.id.clone().into()));
    all.push(("CNI_NETNS", namespace.into()));
    all.push(("CNI_IFNAME", INTERFACE.into()));
    all.push(("CNI_ARGS", args.join(";").into()));
    Ok(all)
}

/// A plugin with the programs that it has started. They end with it, also where the agent stops waiting.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // A leader that was waited for has no number any more; before that the number is its own.
        let pid = self.0.id().and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// Runs a program to its end; returns its standard output.
///
/// # Errors
/// What it says itself, or what went wrong with it.
pub(super) async fn run(
    program: &Path,
    variables: Vec<(&'static str, OsString)>,
    input: Vec<u8>,
    limit: Duration,
) -> Result<Vec<u8>, PluginError> {
    let mut group = start(program, variables).await?;
    let work = async {
        let (stdin, stdout, stderr) = (
            group.0.stdin.take(),
            group.0.stdout.take(),
            group.0.stderr.take(),
        );
        let write = async {
            if let Some(mut stdin) = stdin {
                // A plugin that does not read its configuration may still answer.
                let _ = stdin.write_all(&input).await;
            }
        };
        let ((), out, err) = tokio::join!(write, answer(stdout), start_of(stderr));
        (group.0.wait().await, out, err)
    };
    let Ok((status, out, err)) = tokio::time::timeout(limit, work).await else {
        return Err(PluginError::Timeout(limit));
    };
    let status = status.map_err(PluginError::Wait)?;
    if out.len() > LONGEST {
        return Err(PluginError::TooLong);
    }
    match status.success() {
        true => Ok(out),
        false => Err(PluginError::Failed(words(status, &out, &err))),
    }
}

async fn start(
    program: &Path,
    variables: Vec<(&'static str, OsString)>,
) -> Result<Group, PluginError> {
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs(variables)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let mut tries = 0;
    loop {
        match command.spawn() {
            Err(error)
                if error.kind() == std::io::ErrorKind::ExecutableFileBusy && tries < BUSY.0 =>
            {
                tries += 1;
                tokio::time::sleep(BUSY.1).await;
            }
            result => return result.map(Group).map_err(PluginError::Start),
        }
    }
}

/// The answer of a program. One that writes more loses its output, and has failed.
async fn answer(from: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    if let Some(from) = from {
        // What was read before an error counts.
        let _ = from.take(LONGEST as u64 + 1).read_to_end(&mut kept).await;
    }
    kept
}

/// The beginning of a program's output. The rest is read and dropped, so that the program does not block.
async fn start_of(from: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut from) = from else { return kept };
    let mut buffer = vec![0; 8192];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let room = SHOWN.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..n.min(room)]);
    }
    kept
}

/// Why a plugin failed, as libcni reports it.
fn words(status: ExitStatus, out: &[u8], err: &[u8]) -> String {
    let shown = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).into_owned();
        text.trim_end().to_owned()
    };
    if out.is_empty() && err.is_empty() {
        return format!("netplugin failed with no error message: {status}");
    }
    if out.is_empty() {
        return format!("netplugin failed: {:?}", shown(err));
    }
    let parsed = serde_json::from_slice::<Value>(out).ok();
    let Some(error) = parsed.filter(|it| it["msg"].is_string()) else {
        return format!(
            "netplugin failed but error parsing its diagnostic message {:?}",
            shown(out)
        );
    };
    let text = |key: &str| shown(error[key].as_str().unwrap_or_default().as_bytes());
    match text("details") {
        details if details.is_empty() => text("msg"),
        details => format!("{}; {details}", text("msg")),
    }
}
