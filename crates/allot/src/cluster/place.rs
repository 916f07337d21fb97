//! The directory of a cluster, and what happens when it is deleted.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

use super::{Args, default_directory};

/// How often the cluster checks whether its directory still exists.
const LOOK: Duration = Duration::from_secs(5);

/// Where a cluster keeps its files; of a cluster in memory, a temporary place that ends with it.
pub struct ClusterDirectory {
    /// The path, which `--data-dir` names.
    pub directory: PathBuf,
    /// Holds what a cluster in memory needs on disk.
    pub(super) scratch: Option<tempfile::TempDir>,
}

impl ClusterDirectory {
    /// The directory from the flags; a temporary one for a cluster in memory.
    ///
    /// # Errors
    /// There is no such place.
    pub fn of(args: &Args) -> anyhow::Result<Self> {
        // A restart in memory knows nothing of an earlier run: its files must not either.
        let scratch = (args.apiserver.in_memory && args.apiserver.data_dir.is_none())
            .then(|| tempfile::Builder::new().prefix("allot-").tempdir())
            .transpose()
            .context("cannot create a temporary directory")?;
        let directory = match (&scratch, &args.apiserver.data_dir) {
            (Some(scratch), _) => scratch.path().to_owned(),
            (None, Some(directory)) => std::path::absolute(directory)?,
            (None, None) => default_directory()?,
        };
        Ok(Self { directory, scratch })
    }

    /// The directory is deleted with the cluster.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.scratch.is_some()
    }
}

/// Completes when the directory is removed. One that is moved is not.
pub(super) async fn removed(directory: PathBuf) {
    let Ok(held) = std::fs::File::open(&directory) else {
        return std::future::pending().await;
    };
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held));
    loop {
        tokio::time::sleep(LOOK).await;
        let path = std::fs::read_link(&link).unwrap_or_default();
        if path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)") {
            return;
        }
    }
}

/// Stops the remaining containers of a deleted directory: nothing else could find them any longer.
pub(super) async fn end_containers(directory: PathBuf) {
    let ended = tokio::task::spawn_blocking(move || {
        allot_node::remains::end(allot_node::remains::find(&directory), Duration::ZERO)
    });
    for failed in ended.await.unwrap_or_default() {
        tracing::warn!("a container keeps running: {failed}");
    }
}
