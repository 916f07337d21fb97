//! Resource claims.

use allot_model::Kind;
use allot_model::validate::warnings;

use super::RESOURCE;
use crate::registry::{Builtin, Rules, STATUS};

pub(super) static RESOURCE_CLAIM: Builtin = Builtin {
    kind: "ResourceClaim",
    plural: "resourceclaims",
    subresources: &[STATUS],
    rules: Rules {
        status_has_table: false,
        warnings: |object| warnings(Kind::ResourceClaim, object),
        ..RESOURCE.rules
    },
    ..RESOURCE
};
