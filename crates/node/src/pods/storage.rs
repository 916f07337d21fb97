//! What a pod uses of the disks of its node, and how much it may.

use std::collections::BTreeMap;
use std::path::Path;

use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::resources::{quantity, total};
use super::{etc, message, volumes};
use crate::claims::containers;
use crate::disk::{self, Used};
use crate::rules;

/// The resource of limits and requests.
const STORAGE: &str = "ephemeral-storage";

/// What a pod uses of disks, apart from the root directories of its containers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Storage {
    /// Its volumes by name, as far as they are on a disk and end with the pod.
    volumes: BTreeMap<String, Used>,
    /// The logs of its containers, by their names.
    logs: BTreeMap<String, Used>,
    /// Files of the node that its containers can write to.
    files: Used,
}

impl Storage {
    /// Measures the disks. `root` is the directory of the node, `directory` that of the pod. Blocks.
    pub(crate) fn measure(pod: &Pod, root: &Path, directory: &Path) -> Self {
        let logs = rules::log_directory(root, pod);
        let containers = containers(pod).map(|container| {
            let name = container.name.clone();
            let used = disk::of(&logs.join(&name));
            (name, used)
        });
        Self {
            logs: containers.collect(),
            volumes: volumes::on_disk(pod, directory),
            files: message::on_disk(directory) + etc::on_disk(directory),
        }
    }

    /// What belongs to the pod and not to one of its containers: volumes, termination messages, and files of `/etc`.
    pub(crate) fn of_pod(&self) -> Used {
        self.volumes.values().copied().sum::<Used>() + self.files
    }

    /// The logs of a container.
    pub(crate) fn logs_of(&self, container: &str) -> Used {
        self.logs.get(container).copied().unwrap_or_default()
    }
}

/// The limit of a container, if it has one.
fn limit_of(container: &Container) -> Option<Quantity> {
    let limits = container.resources.as_ref()?.limits.as_ref();
    quantity(limits, STORAGE).filter(|limit| !limit.is_zero())
}

/// Whether the storage of a pod is limited in any way.
pub(super) fn is_limited(pod: &Pod) -> bool {
    volumes::size_limits(pod).next().is_some() || containers(pod).any(|it| limit_of(it).is_some())
}

/// A limit of storage that a pod exceeds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Excess {
    /// The kubelet's name for such a limit in its metrics.
    pub(super) signal: &'static str,
    /// The kubelet's message.
    pub(super) message: String,
}

/// Which limit a pod exceeds, if any. `roots` is what containers have written to their root directories, by
/// their names, as far as that counts.
pub(super) fn excess(pod: &Pod, used: &Storage, roots: &BTreeMap<String, Used>) -> Option<Excess> {
    let exceeded = |signal, message| Some(Excess { signal, message });
    let is_more = |used: Used, limit: &Quantity| {
        used.bytes > u64::try_from(limit.value()).unwrap_or_default()
    };
    let of_volume = volumes::size_limits(pod).find(|(name, limit, _)| {
        let used = used.volumes.get(*name);
        used.is_some_and(|used| used.bytes > *limit)
    });
    if let Some((name, _, shown)) = of_volume {
        let message =
            format!("Usage of EmptyDir volume \"{name}\" exceeds the limit \"{shown}\". ");
        return exceeded("emptydirfs.limit", message);
    }
    let of_container = |container: &Container| {
        let root = roots.get(&container.name).copied().unwrap_or_default();
        root + used.logs_of(&container.name)
    };
    let all: Used = containers(pod).map(of_container).sum();
    if let Some(limit) = total(pod, STORAGE, |it| it.limits.as_ref())
        && is_more(all + used.of_pod(), &limit)
    {
        let message = format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
        );
        return exceeded("ephemeralpodfs.limit", message);
    }
    let mut main = pod.spec.iter().flat_map(|spec| &spec.containers);
    main.find_map(|container| {
        let limit = limit_of(container).filter(|limit| is_more(of_container(container), limit))?;
        let message = format!(
            "Container {} exceeded its local ephemeral storage limit \"{limit}\". ",
            container.name
        );
        exceeded("ephemeralcontainerfs.limit", message)
    })
}

/// Bytes of storage that a pod requests.
pub(crate) fn request(pod: &Pod) -> i64 {
    let request = total(pod, STORAGE, |it| it.requests.as_ref());
    request.map_or(0, |request| request.value())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn kib(number: u64) -> Used {
        Used {
            bytes: number << 10,
            inodes: 1,
        }
    }

    #[test]
    fn the_limits_are_those_of_volumes_pods_and_containers() {
        let limit = |size: &str| json!({"limits": {"ephemeral-storage": size}});
        let with_files = |limits: [Value; 2],
                          volume: u64,
                          roots: [u64; 2],
                          logs: [u64; 2],
                          files: u64| {
            let [a, b] = limits;
            let spec = json!({
                "containers": [{"name": "a", "resources": a}, {"name": "b", "resources": b}],
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "8Ki"}}, {"name": "w", "emptyDir": {}}],
            });
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
            let by_name = |all: [u64; 2]| {
                let all = ["a", "b"].into_iter().zip(all);
                all.map(|(name, used)| (name.to_owned(), kib(used)))
                    .collect()
            };
            let storage = Storage {
                volumes: [("v".to_owned(), kib(volume)), ("w".to_owned(), kib(1))].into(),
                logs: by_name(logs),
                files: kib(files),
            };
            let found = excess(&pod, &storage, &by_name(roots));
            found.map_or_else(String::new, |it| format!("{}: {}", it.signal, it.message))
        };
        let check = |limits, volume, roots, logs| with_files(limits, volume, roots, logs, 0);
        let none = || [json!({}), json!({})];
        let of_volume =
            "emptydirfs.limit: Usage of EmptyDir volume \"v\" exceeds the limit \"8Ki\". ";
        assert_eq!(check(none(), 8, [900, 900], [900, 900]), "");
        assert_eq!(check(none(), 9, [0, 0], [0, 0]), of_volume);
        let one = || [limit("10Ki"), json!({})];
        // All containers, their logs and the volumes count against the sum of the limits.
        let of_pod = "ephemeralpodfs.limit: Pod ephemeral local storage usage exceeds the total limit of containers 10Ki. ";
        assert_eq!(check(one(), 2, [2, 2], [2, 1]), "");
        assert_eq!(check(one(), 2, [2, 2], [2, 2]), of_pod);
        assert_eq!(with_files(one(), 2, [2, 2], [2, 1], 1), of_pod);
        let both = || [limit("10Ki"), limit("100Ki")];
        let of_container = "ephemeralcontainerfs.limit: Container a exceeded its local ephemeral storage limit \"10Ki\". ";
        assert_eq!(check(both(), 8, [8, 0], [2, 80]), "");
        assert_eq!(check(both(), 8, [8, 0], [3, 80]), of_container);
    }
}
