//! What a node has.

use std::collections::BTreeMap;

use crate::config::Config;
use crate::memory::Memory;

/// The capacity of a node, which is allocatable as a whole: that of the machine, and what the configuration has instead.
pub(crate) fn capacity(config: &Config) -> BTreeMap<String, String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = Memory::read().map_or_else(
        || "1Gi".to_owned(),
        |memory| format!("{}Ki", memory.total / 1024),
    );
    let storage = rustix::fs::statvfs(&config.root_dir).map_or_else(
        |_| "1Gi".to_owned(),
        |stat| format!("{}Ki", stat.f_blocks * stat.f_frsize / 1024),
    );
    let mut capacity = BTreeMap::from([
        ("cpu".to_owned(), cpus.to_string()),
        ("memory".to_owned(), memory),
        ("ephemeral-storage".to_owned(), storage),
        ("pods".to_owned(), "110".to_owned()),
        ("hugepages-1Gi".to_owned(), "0".to_owned()),
        ("hugepages-2Mi".to_owned(), "0".to_owned()),
    ]);
    capacity.extend(config.capacity.clone());
    capacity
}
