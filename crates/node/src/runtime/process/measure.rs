//! What containers use.

use std::path::Path;

use jiff::Timestamp;

use super::Container;
use crate::disk;
use crate::oci;
use crate::runtime::{Measured, Written};
use crate::spec::COPY;

/// Measures containers in their cgroups.
pub(super) fn usage(running: Vec<(String, Container)>) -> Vec<Measured> {
    let all = running.into_iter().map(|(id, container)| Measured {
        id,
        pod_uid: container.owner.pod_uid,
        container: container.owner.container,
        at: Timestamp::now(),
        cgroup: container.cgroup.to_string_lossy().into_owned(),
        cpu_nanocores: None,
        figures: oci::measure::measure(&container.cgroup),
    });
    all.collect()
}

/// Measures the root directories of containers. Without a copy of its image, a container writes to memory. `directory` is that of
/// the directories of all containers.
pub(super) fn written(running: Vec<(String, Container)>, directory: &Path) -> Vec<Written> {
    let all = running.into_iter().map(|(id, container)| Written {
        pod_uid: container.owner.pod_uid,
        container: container.owner.container,
        used: disk::of(&directory.join(id).join(COPY)),
    });
    all.collect()
}
