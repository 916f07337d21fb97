//! Device nodes, and which devices the kernel lets a container open.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Error;
use super::paths::{is_below, leads_up, target_of};
use crate::spec::staged::{Hierarchy, Staged};
use crate::spec::{ContainerSpec, Isolation};

/// Nodes of the host that a privileged container gets at most.
const MOST: usize = 4096;

/// Whether a device is created as a node: devices outside of `/dev`, and pipes, are mounted instead.
fn is_node(spec: &ContainerSpec, path: &str, kind: &str) -> bool {
    spec.isolation == Isolation::Namespaces && kind != "p" && Path::new(path).starts_with("/dev")
}

/// Device nodes to create, besides those that every container has.
pub(super) fn nodes(spec: &ContainerSpec, staged: &Staged) -> Result<Value, Error> {
    let mut all: Vec<Value> = Vec::new();
    let volumes: Vec<PathBuf> = spec
        .mounts
        .iter()
        .filter_map(|mount| target_of(mount).ok())
        // The host's own, which is not mounted.
        .filter(|target| target != Path::new("/dev"))
        .collect();
    // libcontainer creates nodes by their paths: what controls a volume could lead them to the host.
    let in_volume = |path: &Path| volumes.iter().any(|volume| is_below(path, volume));
    for (node, found) in spec.devices.iter().zip(&staged.devices) {
        if !is_node(spec, &node.path, found.kind) {
            continue;
        }
        let path = Path::new(&node.path);
        if leads_up(path) || in_volume(path) {
            return Err(Error::Device(node.path.clone()));
        }
        all.push(json!({
            "path": node.path,
            "type": found.kind,
            "major": node.major.unwrap_or(i64::from(found.numbers.0)),
            "minor": node.minor.unwrap_or(i64::from(found.numbers.1)),
            "fileMode": node.file_mode.unwrap_or(found.mode),
            "uid": node.uid.unwrap_or(found.owner.0),
            "gid": node.gid.unwrap_or(found.owner.1),
        }));
    }
    if spec.security.privileged {
        of_the_host(Path::new("/dev"), &mut all);
        let mut seen = std::collections::HashSet::new();
        all.retain(|device| {
            let path = device["path"].as_str().unwrap_or_default();
            // Those in a volume are there already, and a volume at the path of one takes its place.
            let own = !volumes.iter().any(|it| Path::new(path).starts_with(it));
            own && seen.insert(path.to_owned())
        });
    }
    Ok(json!(all))
}

/// All device nodes of the host, as a privileged container gets them.
fn of_the_host(directory: &Path, all: &mut Vec<Value>) {
    /// Device nodes that every container has.
    const OWN: [&str; 12] = [
        "pts", "shm", "mqueue", "fd", "console", "ptmx", "null", "zero", "full", "random",
        "urandom", "tty",
    ];
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let own = OWN.iter().any(|own| path == Path::new("/dev").join(own));
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        let kind = metadata.file_type();
        if own || all.len() >= MOST {
            continue;
        } else if kind.is_dir() {
            of_the_host(&path, all);
        } else if kind.is_char_device() || kind.is_block_device() {
            let numbers = metadata.rdev();
            all.push(json!({
                "path": path,
                "type": if kind.is_char_device() { "c" } else { "b" },
                "major": rustix::fs::major(numbers),
                "minor": rustix::fs::minor(numbers),
                "fileMode": metadata.mode() & 0o7777,
                "uid": metadata.uid(),
                "gid": metadata.gid(),
            }));
        }
    }
}

/// Devices that are mounted from the host: without root no node can be created.
///
/// # Errors
/// A path that is not that of a device: it leads up, or to the kernel's own directories.
pub(super) fn binds(spec: &ContainerSpec, staged: &Staged) -> Result<Vec<Value>, Error> {
    let devices = spec.devices.iter().zip(&staged.devices);
    devices
        .filter(|(node, found)| !is_node(spec, &node.path, found.kind))
        .map(|(node, found)| {
            let target = Path::new("/").join(&node.path);
            let kernels = ["/proc", "/sys"].iter().any(|own| target.starts_with(own));
            if leads_up(&target) || kernels || target == Path::new("/") {
                return Err(Error::Device(node.path.clone()));
            }
            Ok(
                json!({"destination": target, "type": "bind", "source": found.source,
                "options": ["bind", "nosuid", "noexec"]}),
            )
        })
        .collect()
}

/// What the device controller permits: the container's devices, and those that every container has.
pub(super) fn rules(spec: &ContainerSpec, staged: &Staged) -> Vec<Value> {
    if staged.cgroups == Hierarchy::None {
        return Vec::new();
    }
    if spec.security.privileged {
        return vec![json!({"allow": true, "access": "rwm"})];
    }
    let mut rules = vec![json!({"allow": false, "access": "rwm"})];
    for (node, found) in spec.devices.iter().zip(&staged.devices) {
        if found.kind != "p" {
            rules.push(json!({
                "allow": true,
                "type": found.kind,
                "major": node.major.unwrap_or(i64::from(found.numbers.0)),
                "minor": node.minor.unwrap_or(i64::from(found.numbers.1)),
                "access": node.permissions.as_deref().unwrap_or("rwm"),
            }));
        }
    }
    rules.extend(spec.adjusted.device_rules.iter().cloned());
    rules
}
