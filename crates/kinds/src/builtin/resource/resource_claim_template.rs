//! Resource claim templates.

use allot_model::Kind;
use allot_model::validate::warnings;

use super::RESOURCE;
use crate::registry::{Builtin, Rules};

pub(super) static RESOURCE_CLAIM_TEMPLATE: Builtin = Builtin {
    kind: "ResourceClaimTemplate",
    plural: "resourceclaimtemplates",
    rules: Rules {
        warnings: |object| warnings(Kind::ResourceClaimTemplate, object),
        ..RESOURCE.rules
    },
    ..RESOURCE
};
