//! Observing the node.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{Amount, Observations, Signal};
use crate::memory::Memory;
use crate::processes;

/// The directories whose file systems are observed.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// That of the node.
    pub(crate) node: PathBuf,
    /// That of the images; `None` while it is unknown.
    pub(crate) images: Option<PathBuf>,
    /// That of what containers write to their root directories; `None` if it is the one of the images.
    pub(crate) containers: Option<PathBuf>,
}

impl Places {
    /// Whether images are on another file system than the node's directory.
    pub(crate) fn has_image_disk(&self) -> bool {
        let images = self.images.as_deref().and_then(device);
        images.is_some_and(|images| Some(images) != device(&self.node))
    }

    /// Whether containers write to another file system than that of the images.
    pub(crate) fn splits_containers(&self) -> bool {
        let images = self.images.as_deref().and_then(device);
        let containers = self.containers.as_deref().and_then(device);
        containers.is_some_and(|containers| images.is_some_and(|images| images != containers))
    }
}

fn device(path: &Path) -> Option<u64> {
    Some(std::fs::metadata(path).ok()?.dev())
}

/// Observes everything.
pub(crate) fn observe(places: &Places) -> Observations {
    let mut all = Observations::new();
    all.extend(memory().map(|amount| (Signal::Memory, amount)));
    all.extend(process_ids().map(|amount| (Signal::Processes, amount)));
    let (space, inodes) = disk(&places.node);
    all.extend(space.map(|amount| (Signal::NodeSpace, amount)));
    all.extend(inodes.map(|amount| (Signal::NodeInodes, amount)));
    if let Some(images) = &places.images {
        let (space, inodes) = disk(images);
        all.extend(space.map(|amount| (Signal::ImageSpace, amount)));
        all.extend(inodes.map(|amount| (Signal::ImageInodes, amount)));
    }
    all
}

fn memory() -> Option<Amount> {
    let memory = Memory::read()?;
    Some(Amount {
        available: memory.available,
        capacity: memory.total,
    })
}

fn process_ids() -> Option<Amount> {
    let number = |path: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let most = number("/proc/sys/kernel/pid_max")?;
    let capacity = most.min(number("/proc/sys/kernel/threads-max")?);
    Some(Amount {
        available: capacity.saturating_sub(processes::count()?),
        capacity,
    })
}

/// Bytes and inodes of a file system.
fn disk(path: &Path) -> (Option<Amount>, Option<Amount>) {
    let Ok(stat) = rustix::fs::statvfs(path) else {
        return (None, None);
    };
    let space = Amount {
        available: stat.f_bavail.saturating_mul(stat.f_frsize),
        capacity: stat.f_blocks.saturating_mul(stat.f_frsize),
    };
    let inodes = Amount {
        available: stat.f_favail,
        capacity: stat.f_files,
    };
    // Some file systems do not count their inodes.
    let counted = |amount: Amount| (amount.capacity > 0).then_some(amount);
    (counted(space), counted(inodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_can_be_observed() {
        let root = tempfile::tempdir().expect("a directory");
        let mut places = Places {
            node: root.path().to_owned(),
            images: None,
            containers: None,
        };
        let all = observe(&places);
        for signal in [Signal::Memory, Signal::NodeSpace, Signal::Processes] {
            let amount = all.get(&signal);
            assert!(
                amount.is_some_and(|it| it.available <= it.capacity),
                "{signal:?} {amount:?}"
            );
        }
        assert_eq!(all.get(&Signal::ImageSpace), None);
        places.images = Some(root.path().to_owned());
        places.containers = Some(root.path().to_owned());
        let all = observe(&places);
        assert!(all.contains_key(&Signal::ImageSpace));
        assert!(!places.has_image_disk() && !places.splits_containers());
        // Another file system on every Linux.
        places.images = Some("/proc".into());
        assert!(places.has_image_disk() && places.splits_containers());
    }
}
