//! Resource pool status requests.

use allot_model::Kind;
use allot_model::validate::warnings;

use super::RESOURCE;
use crate::registry::{Builtin, Rules, STATUS};

pub(super) static RESOURCE_POOL_STATUS_REQUEST: Builtin = Builtin {
    kind: "ResourcePoolStatusRequest",
    plural: "resourcepoolstatusrequests",
    namespaced: false,
    versions: &["!v1alpha3"],
    deprecated: &[("v1alpha3", "v1.39", "v1.42", "")],
    subresources: &[STATUS],
    rules: Rules {
        status_has_table: false,
        requires_version: |_| true,
        warnings: |object| warnings(Kind::ResourcePoolStatusRequest, object),
        ..RESOURCE.rules
    },
    ..RESOURCE
};
