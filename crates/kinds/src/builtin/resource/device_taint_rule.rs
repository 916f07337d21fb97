//! Device taint rules.

use allot_model::Kind;
use allot_model::validate::warnings;

use super::RESOURCE;
use crate::registry::{Builtin, Rules, STATUS};

pub(super) static DEVICE_TAINT_RULE: Builtin = Builtin {
    kind: "DeviceTaintRule",
    plural: "devicetaintrules",
    namespaced: false,
    versions: &["v1", "!v1beta2", "!v1alpha3"],
    deprecated: &[
        ("v1beta2", "v1.39", "v1.42", ""),
        ("v1alpha3", "v1.36", "v1.39", ""),
    ],
    subresources: &[STATUS],
    rules: Rules {
        requires_version: |version| version == "v1",
        status_has_table: false,
        // Not in the version that 1.37 added.
        delete_returns_object: |version| version != "v1",
        warnings: |object| warnings(Kind::DeviceTaintRule, object),
        ..RESOURCE.rules
    },
    ..RESOURCE
};
