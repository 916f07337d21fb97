//! File systems and volumes of a container.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::paths::{is_below, target_of};
use super::{Error, devices};
use crate::spec::staged::{Hierarchy, Staged};
use crate::spec::{ContainerSpec, Isolation, Mount};

/// Directories that are private to every container, even if its image or its volumes have something there.
const OWN: [&str; 3] = ["/sys", "/proc", DEV];

/// It comes last: libcontainer creates device nodes and links by their paths below it, when everything is mounted. Nothing
/// that another process controls may be in the way.
const DEV: &str = "/dev";

/// Everything that is mounted below the root directory, in order. A link can lead a volume to one of the container's own
/// directories: that is mounted afterwards, and covers the volume.
pub(super) fn all(spec: &ContainerSpec, staged: &Staged) -> Result<Vec<Value>, Error> {
    let mut volumes: Vec<(&Mount, PathBuf, &PathBuf)> = Vec::new();
    for (mount, source) in spec.mounts.iter().zip(&staged.mounts) {
        volumes.push((mount, target_of(mount)?, source));
    }
    let below = |own: Option<&'static str>| {
        volumes.iter().filter(move |(_, target, _)| {
            let found = OWN.iter().find(|it| target.starts_with(it));
            found.copied() == own
        })
    };
    let mut all = Vec::new();
    for (mount, target, source) in below(None) {
        all.push(volume(mount, target, source)?);
    }
    let system = system(spec, staged);
    for own in OWN {
        let is_own = |mount: &&Value| {
            let target = mount["destination"].as_str().unwrap_or_default();
            Path::new(target).starts_with(own)
        };
        all.extend(system.iter().filter(is_own).cloned());
        for (mount, target, source) in below(Some(own)) {
            if own == DEV {
                if is_of_the_host(spec, target, source) {
                    continue;
                }
                check_dev(spec, target, &volumes)?;
            }
            all.push(volume(mount, target, source)?);
        }
    }
    all.extend(devices::binds(spec, staged)?);
    Ok(all)
}

/// Whether a privileged container mounts the host's devices where it has them already.
fn is_of_the_host(spec: &ContainerSpec, target: &Path, source: &Path) -> bool {
    let identity = |path: &Path| {
        let found = rustix::fs::stat(path).ok()?;
        Some((found.st_dev, found.st_ino))
    };
    let all = spec.security.privileged && target == Path::new(DEV);
    all && identity(source).is_some_and(|own| identity(Path::new(DEV)) == Some(own))
}

/// A volume below `/dev` must not be that directory, nor lie in another volume: links there can lead to `/dev` itself.
fn check_dev(
    spec: &ContainerSpec,
    target: &Path,
    volumes: &[(&Mount, PathBuf, &PathBuf)],
) -> Result<(), Error> {
    let mut others = volumes.iter().map(|(_, other, _)| other);
    let nested = others.any(|other| is_below(target, other) && is_below(other, Path::new(DEV)));
    let shared = spec.security.host_ipc && is_below(target, Path::new("/dev/shm"));
    match target == Path::new(DEV) || nested || shared {
        true => Err(Error::Target(target.to_owned())),
        false => Ok(()),
    }
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
            let own = super::cgroup::of_processes(&super::cgroups_path(spec), staged.cgroups);
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

fn volume(mount: &Mount, target: &Path, source: &Path) -> Result<Value, Error> {
    if hides_proc(target, source) {
        return Err(Error::Target(target.to_owned()));
    }
    let mut options = vec!["rbind".to_owned()];
    if mount.read_only {
        options.push(if mount.shallow { "ro" } else { "rro" }.to_owned());
    }
    options.extend(mount.options.iter().cloned());
    Ok(json!({"destination": target, "type": "bind", "source": source, "options": options}))
}
