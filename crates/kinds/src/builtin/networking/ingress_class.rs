//! Ingress classes.

use super::NETWORKING;
use crate::registry::{Builtin, Generation, Rules};
use crate::{table, validate};

pub(super) static INGRESS_CLASS: Builtin = Builtin {
    kind: "IngressClass",
    plural: "ingressclasses",
    namespaced: false,
    rules: Rules {
        generation: Generation::FromCreate,
        validate: validate::network::ingress_class,
        validate_update: Some(validate::network::class_update),
        table: Some((
            "Name|Controller|Parameters|Age",
            table::network::ingress_class,
        )),
        ..NETWORKING.rules
    },
    ..NETWORKING
};
