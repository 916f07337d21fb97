//! A root directory in memory with the host's directories mounted into it, for where an overlay is not permitted.
//!
//! Only the skeleton itself can be written to: the root and the directories that had to be opened up for a mount. What
//! comes from the host is read-only; its files belong to users that a namespace with one id does not know, so
//! an overlay could not change them either.

use std::fs;
use std::path::{Component, Path, PathBuf};

use rustix::mount::mount_bind_recursive;

use super::{OLD, Result, Step, bind, host, layer, tmpfs};

/// Directories that get something of their own later.
const OWN: [&str; 4] = ["proc", "sys", "dev", "tmp"];

/// Builds the root directory below the container's directory and returns its path.
pub(super) fn root(directory: &Path) -> Result<PathBuf> {
    let root = layer(directory)?.join("root");
    fs::create_dir(&root).step(|| root.display().to_string())?;
    // To be a root it has to be a mount.
    mount_bind_recursive(&root, &root).step(|| "the container's root".into())?;
    fill(Path::new("/"), &root, |name| {
        OWN.contains(&name) || OLD.ends_with(name)
    })?;
    for own in OWN {
        let path = root.join(own);
        fs::create_dir_all(&path).step(|| path.display().to_string())?;
    }
    Ok(root)
}

/// Makes everything in a directory of the host visible in one of ours.
fn fill(from: &Path, to: &Path, skip: impl Fn(&str) -> bool) -> Result {
    let entries = fs::read_dir(from).step(|| from.display().to_string())?;
    for entry in entries.flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if skip(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        // What the agent's user may not see stays out.
        let _ = if kind.is_symlink() {
            fs::read_link(&source)
                .and_then(|to| std::os::unix::fs::symlink(to, &target))
                .step(|| target.display().to_string())
        } else {
            bind(&source, &target, true)
        };
    }
    Ok(())
}

/// Makes sure that a mount on `target` has a place: a directory of the host that lacks it is replaced by one in memory
/// with the same content. Called inside of the new root.
pub(super) fn make_room(target: &Path) -> Result {
    if fs::symlink_metadata(target).is_ok() {
        return Ok(());
    }
    let mut path = PathBuf::from("/");
    for component in target.components() {
        let Component::Normal(name) = component else {
            continue;
        };
        let parent = fs::canonicalize(&path).unwrap_or(path);
        path = parent.join(name);
        if fs::symlink_metadata(&path).is_ok() {
            continue;
        }
        if fs::create_dir(&path).is_ok() {
            // A file is mounted on a file: whoever mounts it makes the last component.
            fs::remove_dir(&path).step(|| path.display().to_string())?;
            return Ok(());
        }
        tmpfs(&parent, "mode=0755")?;
        return fill(&host(&parent), &parent, |_| false);
    }
    Ok(())
}
