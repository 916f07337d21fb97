//! Flow schemas.

use super::FLOW;
use crate::registry::{Builtin, Rules};
use crate::{table, validate};

pub(super) static FLOW_SCHEMA: Builtin = Builtin {
    kind: "FlowSchema",
    plural: "flowschemas",
    rules: Rules {
        validate: validate::flow::schema,
        row_order: Some(table::control::flow_schema_place),
        table: Some((
            "Name|PriorityLevel|MatchingPrecedence|DistinguisherMethod|Age|MissingPL",
            table::control::flow_schema,
        )),
        ..FLOW.rules
    },
    ..FLOW
};
