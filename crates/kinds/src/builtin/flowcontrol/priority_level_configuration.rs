//! Priority level configurations.

use super::FLOW;
use crate::registry::{Builtin, Rules};
use crate::{table, validate};

pub(super) static PRIORITY_LEVEL_CONFIGURATION: Builtin = Builtin {
    kind: "PriorityLevelConfiguration",
    plural: "prioritylevelconfigurations",
    rules: Rules {
        validate: validate::flow::level,
        table: Some((
            "Name|Type|NominalConcurrencyShares|Queues|HandSize|QueueLengthLimit|Age",
            table::control::priority_level,
        )),
        ..FLOW.rules
    },
    ..FLOW
};
