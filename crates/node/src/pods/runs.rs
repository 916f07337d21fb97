//! What the runs of a container leave on disk while its pod exists: logs, and messages of any size.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::Node;
use crate::rules;

/// Removes what runs before the last one have left, when a container has been started again, or could not be. Nothing asks
/// for it any longer, and a container that is restarted again and again would fill the disk.
pub(super) fn forget(node: &Node, pod: &Pod, container: &str, attempt: u32) {
    let logs = rules::log_directory(&node.config.root_dir, pod);
    let messages = node.pod_dir(&pod.uid().unwrap_or_default());
    let kept = attempt.saturating_sub(1);
    for directory in [
        logs.join(container),
        messages.join("containers").join(container),
    ] {
        if let Err(error) = remove_before(&directory, kept) {
            tracing::warn!(directory = %directory.display(), %error, "files of earlier runs were not removed");
        }
    }
}

/// Removes the files of runs before a certain one; their names begin with the number of the run.
fn remove_before(directory: &Path, first: u32) -> std::io::Result<()> {
    if first == 0 {
        return Ok(());
    }
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.split('.').next());
        let number = number.and_then(|number| number.parse::<u32>().ok());
        if number.is_some_and(|number| number < first) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attack: a container that writes as much as a log may have, ends, and is restarted.
    #[test]
    fn the_files_of_the_last_two_runs_are_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let all = [
            "0.log",
            "0.log.20260101-000000",
            "8.log",
            "9.log",
            "9.log.20260101-000000",
            "10.log",
            "9",
            "1",
            "other",
        ];
        for name in all {
            std::fs::write(directory.path().join(name), "").expect("a file");
        }
        let left = || {
            let entries = std::fs::read_dir(directory.path()).expect("a directory");
            let mut names: Vec<String> = entries
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        };
        remove_before(directory.path(), 0).expect("removed");
        assert_eq!(left().len(), all.len());
        remove_before(directory.path(), 9).expect("removed");
        let kept = ["10.log", "9", "9.log", "9.log.20260101-000000", "other"];
        assert_eq!(left(), kept);
        remove_before(&directory.path().join("none"), 9).expect("nothing");
    }
}
