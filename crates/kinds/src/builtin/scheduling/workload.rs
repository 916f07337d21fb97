//! Workloads.

use crate::registry::{BASE, Builtin, Rules};
use crate::{strategy, validate};

pub(super) static WORKLOAD: Builtin = Builtin {
    group: "scheduling.k8s.io",
    versions: &["!v1alpha2"],
    kind: "Workload",
    plural: "workloads",
    rules: Rules {
        drop_disabled: Some(strategy::groups::drop_from_workload),
        validate: validate::workload::workload,
        validate_update: Some(validate::workload::workload_update),
        validates_metadata_again: false,
        ..Rules::DEFAULT
    },
    ..BASE
};
