//! Paths in a container at which something is mounted.

use std::path::{Component, Path, PathBuf};

use super::Error;
use crate::spec::Mount;

/// Where a volume is mounted, without dots and repeated slashes.
///
/// # Errors
/// It is the root directory, or leads up.
pub(super) fn target_of(mount: &Mount) -> Result<PathBuf, Error> {
    let target = Path::new("/").join(&mount.target);
    let names = target.components().count() > 1;
    match names && !leads_up(&target) {
        true => Ok(target.components().collect()),
        false => Err(Error::Target(mount.target.clone())),
    }
}

/// Whether a path has a part that is `..`.
pub(crate) fn leads_up(path: &Path) -> bool {
    path.components().any(|it| it == Component::ParentDir)
}

/// Whether a path is in a directory, and not the directory itself.
pub(super) fn is_below(path: &Path, directory: &Path) -> bool {
    path != directory && path.starts_with(directory)
}
