//! A root directory from the host's files, for containers whose image is not available.
//!
//! Only what programs need is included: the directories of programs and libraries, and a few files of `/etc` that
//! configure them. All of it is read-only. Everything else is empty and the container's own: no home directory,
//! temporary file, key or state of the host is visible.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::{Result, Source, Step, attach, make};
use crate::shim::sys;

/// Programs and their libraries. `/nix` is for NixOS.
const PROGRAMS: &[&str] = &[
    "usr",
    "bin",
    "sbin",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "libexec",
    "nix/store",
];

/// Empty directories that programs expect, with their permissions.
const EMPTY: &[(&str, u32)] = &[
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("srv", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/tmp", 0o1777),
];

/// Files of `/etc` that are copied: users, name resolution, library paths.
const FILES: &[&str] = &[
    "bash.bashrc",
    "bindresvport.blacklist",
    "ca-certificates.conf",
    "debian_version",
    "ethertypes",
    "gai.conf",
    "group",
    "host.conf",
    "hosts",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "locale.alias",
    "locale.conf",
    "machine-info",
    "mime.types",
    "nsswitch.conf",
    "passwd",
    "profile",
    "protocols",
    "redhat-release",
    "resolv.conf",
    "rpc",
    "services",
    "shells",
    "ssl/openssl.cnf",
    "timezone",
];

/// Directories and links of `/etc` that contain only public data on every machine.
const SHARED: &[&str] = &[
    "OpenCL",
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "fonts",
    "glvnd",
    "ld.so.conf.d",
    "localtime",
    "os-release",
    "perl",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "ssl/certs",
    "terminfo",
    "vulkan",
    "java-11-openjdk",
];

/// Larger ones are not configuration.
const LARGEST: u64 = 4 << 20;

/// Fills an empty root directory. `targets` are the paths of later mounts: read-only directories of the host that lack
/// them are replaced by copies with mount points for them.
pub(super) fn fill(root: &Path, targets: &[&Path]) -> Result {
    for name in PROGRAMS {
        if let Some(parent) = Path::new(name).parent().filter(|it| *it != Path::new("")) {
            fs::create_dir_all(root.join(parent)).step(|| (*name).into())?;
        }
        show(&Path::new("/").join(name), &root.join(name), targets)?;
    }
    for (name, mode) in EMPTY {
        let path = root.join(name);
        if fs::symlink_metadata(&path).is_err() {
            make(&path)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(*mode))
                .step(|| (*name).into())?;
        }
    }
    for (link, to) in [("var/run", "/run"), ("var/lock", "/run/lock")] {
        let _ = symlink(to, root.join(link));
    }
    etc(root)
}

fn etc(root: &Path) -> Result {
    let etc = root.join("etc");
    for name in FILES {
        let (from, to) = (Path::new("/etc").join(name), etc.join(name));
        // Files that a user cannot read, or that do not exist, are not needed either.
        let Ok(metadata) = fs::metadata(&from) else {
            continue;
        };
        let readable = metadata.permissions().mode() & 0o004 != 0;
        if !metadata.is_file() || !readable || metadata.len() > LARGEST {
            continue;
        }
        let Ok(content) = fs::read(&from) else {
            continue;
        };
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).step(|| parent.display().to_string())?;
        }
        fs::write(&to, content).step(|| to.display().to_string())?;
    }
    for name in SHARED {
        let to = etc.join(name);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).step(|| parent.display().to_string())?;
        }
        show(&Path::new("/etc").join(name), &to, &[])?;
    }
    let _ = symlink("/proc/self/mounts", etc.join("mtab"));
    Ok(())
}

/// Makes a file, link or directory of the host visible, read-only. A path that does not exist is skipped.
fn show(from: &Path, to: &Path, targets: &[&Path]) -> Result {
    let Ok(metadata) = fs::symlink_metadata(from) else {
        return Ok(());
    };
    if metadata.is_symlink() {
        let content = fs::read_link(from).step(|| from.display().to_string())?;
        return symlink(content, to).step(|| to.display().to_string());
    }
    let missing: Vec<&Path> = targets
        .iter()
        .copied()
        .filter(|target| lacks(from, target))
        .collect();
    if metadata.is_dir() && !missing.is_empty() {
        return open_up(from, to, &missing);
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(fd) = rustix::fs::open(from, flags, Mode::empty()) else {
        return Ok(());
    };
    let source = Source {
        fd,
        is_dir: metadata.is_dir(),
    };
    attach(&source, to).step(|| from.display().to_string())?;
    sys::read_only(to).step(|| format!("{}: read-only", from.display()))
}

/// Whether a directory of the host has no place for a mount on `target` below it.
fn lacks(directory: &Path, target: &Path) -> bool {
    let Ok(rest) = target.strip_prefix(directory) else {
        return false;
    };
    let mut path = PathBuf::from(directory);
    for part in rest.components() {
        path.push(part);
        match fs::symlink_metadata(&path) {
            Err(_) => return true,
            // Its target is checked when it is mounted; the link itself exists.
            Ok(metadata) if metadata.is_symlink() => return false,
            Ok(_) => {}
        }
    }
    false
}

/// A directory in memory with the content of one of the host.
fn open_up(from: &Path, to: &Path, targets: &[&Path]) -> Result {
    make(to)?;
    let entries = fs::read_dir(from).step(|| from.display().to_string())?;
    for entry in entries.flatten() {
        show(&entry.path(), &to.join(entry.file_name()), targets)?;
    }
    Ok(())
}
