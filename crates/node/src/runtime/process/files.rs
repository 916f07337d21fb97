//! The directories of containers: their permissions, the exit code that the helper leaves in them, and their removal.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use jiff::Timestamp;

use crate::shim::spec::{self, Exit};
use crate::{oci, rdt};

/// Makes a directory that other users of the machine cannot enter: where layers cannot be laid over each other, the programs of
/// images are in it, with the right to run as their owners.
pub(super) fn make_private(directory: &Path) -> std::io::Result<()> {
    const MODE: u32 = 0o700;
    allot_cdi::file::create_private_dir(directory, MODE)?;
    // All users could enter the directory of an earlier release, which keeps its mode.
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(MODE))
}

/// Removes what is left of a container that has ended.
pub(super) fn discard(directory: &Path, cgroups: bool) {
    if cgroups {
        // Left behind by a helper that was killed.
        for cgroup in oci::cgroups_of(directory) {
            oci::cgroup::kill(&cgroup);
            oci::cgroup::remove(&cgroup);
        }
    }
    if let Err(error) = rdt::remove(directory) {
        tracing::warn!(%error, "the resctrl group of a container was not removed");
    }
    if let Err(error) = allot_images::remove_tree(directory)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(directory = %directory.display(), %error, "container directory was not removed");
    }
}

/// What the shim wrote down; when it was killed, so was the container.
pub(super) fn how_it_ended(directory: &Path) -> Exit {
    spec::read(&directory.join(spec::EXIT)).unwrap_or_else(|_| Exit {
        code: 137,
        finished: Timestamp::now(),
        oom_killed: false,
    })
}
