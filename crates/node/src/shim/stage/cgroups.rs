//! What libcontainer finds on `/sys/fs/cgroup`.

use std::fs;
use std::path::Path;

use rustix::mount::{MountFlags, mount};

use super::{Result, Step};
use crate::oci;
use crate::oci::cgroup::ROOT;
use crate::spec::ContainerSpec;
use crate::spec::staged::Hierarchy;

/// Detects the hierarchy, and limits the container's cgroup in it. If it is not writable, an empty one in memory replaces
/// it in the shim's view, so that attempts to use it have no effect and cause no error.
pub(super) fn prepare(spec: &ContainerSpec) -> Result<Hierarchy> {
    if spec.cgroups {
        if oci::cgroup::is_second_version(Path::new(ROOT)) {
            return Ok(Hierarchy::V2);
        }
        // That of the pod comes first: a container below it has no more.
        oci::pod::begin(spec, Hierarchy::V1)?;
        oci::cgroup::limit(&oci::cgroups_path(spec), &spec.limits)?;
        oci::pids::limit_all_containers(Hierarchy::V1)?;
        return Ok(Hierarchy::V1);
    }
    let missing = !Path::new(ROOT).is_dir();
    let target = if missing { "/sys" } else { ROOT };
    let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("tmpfs", target, "tmpfs", flags, c"mode=0755,size=1m").step(|| target.into())?;
    fs::create_dir_all(ROOT).step(|| ROOT.into())?;
    let table =
        fs::read_to_string("/proc/self/mountinfo").step(|| "/proc/self/mountinfo".into())?;
    for line in table.lines().filter(|line| line.contains(" - cgroup ")) {
        let Some(mounted) = line.split(' ').nth(4).filter(|it| it.starts_with(ROOT)) else {
            continue;
        };
        // One level for every component of the path: CPU sets are taken over from the level above.
        let path = oci::cgroups_path(spec);
        let levels = path.ancestors().filter_map(|it| it.strip_prefix("/").ok());
        for level in levels {
            let directory = Path::new(mounted).join(level);
            fs::create_dir_all(&directory).step(|| directory.display().to_string())?;
            for (file, content) in [
                ("cgroup.procs", ""),
                ("cpuset.cpus", "0\n"),
                ("cpuset.mems", "0\n"),
                ("devices.allow", ""),
                ("devices.deny", ""),
            ] {
                let file = directory.join(file);
                fs::write(&file, content).step(|| file.display().to_string())?;
            }
        }
    }
    Ok(Hierarchy::None)
}

/// Removes the files in memory that [`prepare`] has created: a cgroup can only be removed as a directory without files.
pub(super) fn forget(spec: &ContainerSpec) {
    let path = oci::cgroups_path(spec);
    let Some(Ok(top)) = path.ancestors().nth(1).map(|it| it.strip_prefix("/")) else {
        return;
    };
    for entry in fs::read_dir(ROOT).into_iter().flatten().flatten() {
        let _ = fs::remove_dir_all(entry.path().join(top));
    }
}
