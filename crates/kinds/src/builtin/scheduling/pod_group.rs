//! Pod groups.

use crate::registry::{ALL_METADATA, BASE, Builtin, Rules, STATUS};
use crate::{strategy, validate};

pub(super) static POD_GROUP: Builtin = Builtin {
    group: "scheduling.k8s.io",
    versions: &["!v1alpha2"],
    kind: "PodGroup",
    plural: "podgroups",
    subresources: &[STATUS],
    rules: Rules {
        drop_disabled: Some(strategy::groups::drop_from_group),
        status_keeps: ALL_METADATA,
        status_ignores_deletion: true,
        validate: validate::workload::group,
        validate_update: Some(validate::workload::group_update),
        validate_status: Some(validate::workload::group_status),
        validates_metadata_again: false,
        ..Rules::DEFAULT
    },
    ..BASE
};
