//! Volumes in memory: `emptyDir` volumes with a size that the kernel enforces, and those with private keys.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::VolumeError;

/// Whether a volume is on `medium: Memory`.
pub(super) fn is_wanted(volume: &EmptyDirVolumeSource) -> bool {
    volume.medium.as_deref() == Some("Memory")
}

/// The size limit of a volume in bytes; `None` without one.
pub(super) fn limit(volume: &EmptyDirVolumeSource) -> Option<u64> {
    let limit: Quantity = volume.size_limit.as_ref()?.0.parse().ok()?;
    u64::try_from(limit.value()).ok().filter(|limit| *limit > 0)
}

/// Mounts memory on a directory, once. Its size is the least of the volume's limit, what the pod's containers may use
/// together and `memory`, the node's.
pub(super) fn prepare(
    volume: &EmptyDirVolumeSource,
    pod: &Pod,
    path: &Path,
    memory: u64,
) -> Result<(), VolumeError> {
    if is_mounted(path) {
        return Ok(());
    }
    let all = [limit(volume), of_containers(pod), Some(memory)];
    let size = all.into_iter().flatten().filter(|size| *size > 0).min();
    let mut options = match super::group(pod) {
        Some(group) => format!("mode={:o},gid={group}", 0o777 | super::GROUP.0),
        None => "mode=0777".to_owned(),
    };
    if let Some(size) = size {
        let _ = write!(options, ",size={size}");
    }
    mount_on(path, &options)
}

fn mount_on(path: &Path, options: &str) -> Result<(), VolumeError> {
    let failed = |source: std::io::Error| VolumeError::Memory {
        path: path.to_owned(),
        source,
    };
    let options = std::ffi::CString::new(options).map_err(|error| failed(error.into()))?;
    let flags = MountFlags::NODEV | MountFlags::NOSUID;
    mount("tmpfs", path, "tmpfs", flags, options.as_c_str()).map_err(|error| failed(error.into()))
}

/// The most memory of a volume with private keys; its files are there twice while they are replaced.
const OF_KEYS: &str = "256m";

/// Mounts memory on the directory of a volume with private keys, once. Without the right to, the directory has to be in memory
/// already.
pub(super) fn for_keys(path: &Path) -> Result<(), VolumeError> {
    if is_mounted(path) {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        return match is_in_memory(path) {
            true => Ok(()),
            false => Err(VolumeError::KeysOnDisk),
        };
    }
    // Old kernels do not know that memory is not swapped.
    let options = format!("mode=0755,size={OF_KEYS}");
    mount_on(path, &format!("{options},noswap")).or_else(|_| mount_on(path, &options))
}

/// Whether files of a directory are in memory.
fn is_in_memory(path: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    let found = rustix::fs::statfs(path).map(|found| found.f_type as u64);
    found.is_ok_and(|found| matches!(found, TMPFS | RAMFS))
}

/// The memory that the containers of a pod may use together, if each of them has a limit.
fn of_containers(pod: &Pod) -> Option<u64> {
    let spec = pod.spec.as_ref()?;
    let mut limits = spec.containers.iter().map(crate::memory::limit_of);
    limits.try_fold(0_u64, |sum, limit| sum.checked_add(limit?))
}

/// Whether something is mounted on a directory or file of the node's own.
pub(in crate::pods) fn is_mounted(path: &Path) -> bool {
    let device = |path: &Path| fs::symlink_metadata(path).map(|data| data.dev()).ok();
    match (device(path), path.parent().and_then(device)) {
        (Some(own), Some(parent)) => own != parent,
        _ => false,
    }
}

/// Unmounts the volumes of a pod whose containers have ended, and its network namespace, so that its directory can be removed.
/// `directory` is the pod's.
pub(crate) fn unmount_all(directory: &Path) {
    super::super::network::remove(directory);
    let entries = fs::read_dir(directory.join(super::DIRECTORY));
    for entry in entries.into_iter().flatten().flatten() {
        let path = entry.path();
        if is_mounted(&path)
            && let Err(error) = unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
        {
            tracing::warn!(volume = %path.display(), %error, "was not unmounted");
        }
    }
}
