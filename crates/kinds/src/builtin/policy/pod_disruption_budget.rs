//! Pod disruption budgets.

use allot_apimachinery::names;

use crate::registry::{BASE, Builtin, Generation, MetadataErrors, Rules, STATUS};
use crate::{table, validate};

pub(super) static POD_DISRUPTION_BUDGET: Builtin = Builtin {
    group: "policy",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    short: &["pdb"],
    subresources: &[STATUS],
    rules: Rules {
        name: names::path_segment_name,
        requires_version: |_| true,
        generation: Generation::FromCreate,
        validate: validate::config::budget,
        validate_status: Some(|budget, _, errors| validate::config::budget_status(budget, errors)),
        metadata_errors: MetadataErrors::Alone,
        checks_metadata_change: |_| false,
        validates_metadata_again: false,
        table: Some((
            "Name|Min Available|Max Unavailable|Allowed Disruptions:integer|Age",
            table::workloads::disruption_budget,
        )),
        ..Rules::DEFAULT
    },
    ..BASE
};
