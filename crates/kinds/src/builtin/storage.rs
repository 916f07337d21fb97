//! The kinds of `storage.k8s.io`.

use crate::registry::{Builtin, CLUSTER, Rules};

mod csi_driver;
mod csi_node;
mod csi_storage_capacity;
mod storage_class;
mod volume_attachment;
mod volume_attributes_class;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[
    &csi_driver::CSI_DRIVER,
    &csi_node::CSI_NODE,
    &csi_storage_capacity::CSI_STORAGE_CAPACITY,
    &storage_class::STORAGE_CLASS,
    &volume_attachment::VOLUME_ATTACHMENT,
    &volume_attributes_class::VOLUME_ATTRIBUTES_CLASS,
];

/// What the kinds of the group have in common.
const STORAGE: Builtin = Builtin {
    group: "storage.k8s.io",
    rules: Rules {
        delete_returns_object: |_| true,
        ..Rules::DEFAULT
    },
    ..CLUSTER
};
