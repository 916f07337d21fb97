//! The last message of a container: a file that it may write, or the end of its log.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;

use super::{Node, log_path};
use crate::disk::{self, Used};
use crate::error::{AtPath as _, PathError};
use crate::shim::log::open_log;
use crate::shim::spec::Mount;

/// Of the file, and of the log: bytes, and lines.
const LONGEST: usize = 4096;
const LOG: (usize, usize) = (2048, 80);

/// Where the files are, below the directory of their pod.
const DIRECTORY: &str = "containers";

/// What the files of a pod use of the disk: any user of a container can write to its file. `directory` is the pod's.
pub(super) fn on_disk(directory: &Path) -> Used {
    disk::of(&directory.join(DIRECTORY))
}

fn path(node: &Node, pod: &Pod, container: &str, attempt: u32) -> PathBuf {
    node.pod_dir(&pod.uid().unwrap_or_default())
        .join(DIRECTORY)
        .join(container)
        .join(attempt.to_string())
}

/// Creates the termination message file for one run of a container; returns its mount.
pub(super) fn mount(
    node: &Node,
    pod: &Pod,
    container: &Container,
    attempt: u32,
) -> Result<Option<Mount>, PathError> {
    let target = container.termination_message_path.as_deref();
    let Some(target) = target.filter(|target| !target.is_empty()) else {
        return Ok(None);
    };
    let file = path(node, pod, &container.name, attempt);
    let make = || -> std::io::Result<_> {
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&file, "")?;
        // For any user that the container runs as.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666))?;
        file.canonicalize()
    };
    let source = make().at(&file)?;
    Ok(Some(Mount {
        source,
        target: target.into(),
        ..Mount::default()
    }))
}

/// The termination message of a container; empty without one.
pub(super) fn read(
    node: &Node,
    pod: &Pod,
    container: &Container,
    attempt: u32,
    code: i32,
) -> String {
    let file = path(node, pod, &container.name, attempt);
    let mut bytes = Vec::new();
    if let Ok(mut file) = open_log(&file) {
        // The end of it, as by a kubelet. What cannot be read was not said.
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let from = length.saturating_sub(LONGEST as u64);
        let _ = file.seek(SeekFrom::Start(from));
        let _ = file.take(LONGEST as u64).read_to_end(&mut bytes);
    }
    let fallback = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
    if bytes.is_empty() && fallback && code != 0 {
        let log = log_path(&node.config.root_dir, pod, &container.name, attempt);
        return end_of(&log).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The last lines of a log, without the times in front of them.
fn end_of(log: &Path) -> std::io::Result<String> {
    let mut file = open_log(log)?;
    let length = file.metadata()?.len();
    // The timestamps of the lines are removed later: sixteen times the limit is enough to read.
    let from = length.saturating_sub(16 * LOG.0 as u64);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // A part of a line is followed by the next one, or by nothing.
    let parts = |line| {
        let mut fields = str::splitn(line, 4, ' ').skip(2);
        let end = if fields.next()?.starts_with('P') {
            ""
        } else {
            "\n"
        };
        Some([fields.next()?, end])
    };
    let lines = text.lines().skip(usize::from(from > 0));
    let lines: Vec<[&str; 2]> = lines.filter_map(parts).collect();
    let last = &lines[lines.len().saturating_sub(LOG.1)..];
    let text: String = last.iter().flatten().copied().collect();
    let cut = text.ceil_char_boundary(text.len().saturating_sub(LOG.0));
    Ok(text[cut..].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that ends without a newline says nothing more than a kubelet shows.
    #[test]
    fn regression_parts_of_lines_have_no_newline() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let log = directory.path().join("0.log");
        let check = |lines: &[&str], expected: &str| {
            let lines = lines
                .iter()
                .map(|line| format!("2026-01-01T00:00:00Z stdout {line}\n"));
            fs::write(&log, lines.collect::<String>()).expect("a file");
            assert_eq!(end_of(&log).expect("a log"), expected);
        };
        check(&["F one", "F two words"], "one\ntwo words\n");
        check(&["P DONE"], "DONE");
        check(&["P a ", "F b", "P c"], "a b\nc");
        check(&[], "");
    }
    /// The attack: a pod with the directory of logs as its volume puts a link to a file of the host in the place of a log, which its
    /// status showed, or a pipe, for which a thread of the agent waited.
    #[test]
    fn regression_what_is_no_log_is_not_read() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let log = directory.path().join("0.log");
        let secret = directory.path().join("secret");
        fs::write(&secret, "2026-01-01T00:00:00Z stdout F secret\n").expect("a file");
        std::os::unix::fs::symlink(&secret, &log).expect("a link");
        end_of(&log).expect_err("a link");
        fs::remove_file(&log).expect("removed");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &log, kind, mode, 0).expect("a pipe");
        end_of(&log).expect_err("a pipe");
    }
}
