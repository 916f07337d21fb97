//! Network policies.

use super::NETWORKING;
use crate::registry::{Builtin, Generation, Rules};
use crate::{table, validate, warnings};

pub(super) static NETWORK_POLICY: Builtin = Builtin {
    kind: "NetworkPolicy",
    plural: "networkpolicies",
    short: &["netpol"],
    rules: Rules {
        generation: Generation::FromCreate,
        validate: validate::network::policy,
        validates_metadata_again: false,
        warnings: |policy| warnings::addresses::policy(&policy["spec"]),
        table: Some(("Name|Pod-Selector|Age", table::network::network_policy)),
        ..NETWORKING.rules
    },
    ..NETWORKING
};
