//! File systems and volumes of a container.

use std::path::Path;

use serde_json::{Value, json};

use super::devices;
use crate::spec::staged::{Hierarchy, Staged};
use crate::spec::{ContainerSpec, Isolation, Mount};

/// Everything that is mounted below the root directory, in order.
pub(super) fn all(spec: &ContainerSpec, staged: &Staged) -> Result<Vec<Value>, String> {
    let mut all = system(spec, staged);
    for (mount, source) in spec.mounts.iter().zip(&staged.mounts) {
        all.push(volume(mount, source)?);
    }
    all.extend(devices::binds(spec, staged));
    Ok(all)
}

fn system(spec: &ContainerSpec, staged: &Staged) -> Vec<Value> {
    let security = &spec.security;
    let root = spec.isolation == Isolation::Namespaces;
    let mount = |target: &str, kind: &str, options: &[&str]| json!({"destination": target, "type": kind, "source": kind, "options": options});
    let none = ["nosuid", "noexec", "nodev"];
    let access = if security.privileged { "rw" } else { "ro" };
    let mut all = vec![
        mount("/proc", "proc", &none),
        mount("/dev", "tmpfs", &["nosuid", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            &[
                "nosuid",
                "noexec",
                "newinstance",
                "ptmxmode=0666",
                "mode=0620",
            ],
        ),
    ];
    if security.host_ipc {
        all.push(json!({"destination": "/dev/shm", "type": "bind", "source": "/dev/shm", "options": ["rbind", "nosuid", "nodev"]}));
    } else {
        let options = [&none[..], &["mode=1777", "size=65536k"]].concat();
        all.push(mount("/dev/shm", "tmpfs", &options));
        all.push(mount("/dev/mqueue", "mqueue", &none));
    }
    if root {
        all.push(mount("/sys", "sysfs", &[&none[..], &[access]].concat()));
    } else {
        // A new one would need a network namespace of the container's own.
        all.push(json!({"destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", "rro", "rnosuid", "rnoexec", "rnodev"]}));
    }
    match staged.cgroups {
        Hierarchy::V2 => all.push(mount(
            "/sys/fs/cgroup",
            "cgroup",
            &[&none[..], &["relatime", access]].concat(),
        )),
        Hierarchy::V1 => {
            all.push(mount(
                "/sys/fs/cgroup",
                "tmpfs",
                &[&none[..], &["mode=755", "size=64k"]].concat(),
            ));
            // Programs read their limits here. Only the container's own directory is visible.
            let own = super::cgroups_path(spec);
            for controller in ["cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb"] {
                let mounted = Path::new("/sys/fs/cgroup").join(controller);
                if mounted.is_dir() && !mounted.is_symlink() {
                    let source = mounted.join(own.strip_prefix("/").unwrap_or(&own));
                    all.push(
                        json!({"destination": mounted, "type": "bind", "source": source,
                        "options": ["bind", "nosuid", "noexec", "nodev", access]}),
                    );
                }
            }
        }
        Hierarchy::None => all.push(mount(
            "/sys/fs/cgroup",
            "tmpfs",
            &[&none[..], &["ro", "mode=755", "size=4k"]].concat(),
        )),
    }
    all
}

/// Whether a mount would put other files in the place of `/proc`: masked paths, and the labels of security modules, are written
/// there. As in runc, single files that tools replace are excepted.
fn hides_proc(target: &Path, source: &Path) -> bool {
    const REPLACED: [&str; 10] = [
        "cpuinfo",
        "diskstats",
        "loadavg",
        "meminfo",
        "net/dev",
        "slabinfo",
        "stat",
        "swaps",
        "sys/kernel/ns_last_pid",
        "uptime",
    ];
    match target.strip_prefix("/proc") {
        Err(_) => false,
        Ok(rest) if rest.as_os_str().is_empty() => !is_proc_root(source),
        Ok(rest) => !REPLACED.iter().any(|name| rest == Path::new(name)),
    }
}

/// Whether a directory is the root of such a file system, and not a part of it.
fn is_proc_root(path: &Path) -> bool {
    /// `PROC_ROOT_INO`.
    const ROOT: u64 = 1;
    is_proc(path) && rustix::fs::stat(path).is_ok_and(|found| found.st_ino == ROOT)
}

/// Whether a file is one of the kernel's about processes.
pub(crate) fn is_proc(path: &Path) -> bool {
    /// `PROC_SUPER_MAGIC`.
    const PROC: u64 = 0x9fa0;
    rustix::fs::statfs(path).is_ok_and(|found| found.f_type as u64 == PROC)
}

fn volume(mount: &Mount, source: &Path) -> Result<Value, String> {
    let target = Path::new("/").join(&mount.target);
    let names = target.components().count() > 1;
    let up = target.components().any(|it| it.as_os_str() == "..");
    if !names || up || hides_proc(&target, source) {
        return Err(format!("{}: cannot be mounted on", mount.target.display()));
    }
    let mut options = vec!["rbind".to_owned()];
    if mount.read_only {
        options.push(if mount.shallow { "ro" } else { "rro" }.to_owned());
    }
    options.extend(mount.options.iter().cloned());
    Ok(json!({"destination": target, "type": "bind", "source": source, "options": options}))
}
