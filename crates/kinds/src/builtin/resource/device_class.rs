//! Device classes.

use allot_model::Kind;
use allot_model::validate::warnings;

use super::RESOURCE;
use crate::registry::{Builtin, Rules};

pub(super) static DEVICE_CLASS: Builtin = Builtin {
    kind: "DeviceClass",
    plural: "deviceclasses",
    namespaced: false,
    rules: Rules {
        warnings: |object| warnings(Kind::DeviceClass, object),
        ..RESOURCE.rules
    },
    ..RESOURCE
};
