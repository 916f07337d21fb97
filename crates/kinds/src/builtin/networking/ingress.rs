//! Ingresses.

use serde_json::Value;

use super::NETWORKING;
use crate::registry::{Builtin, Generation, Rules, STATUS};
use crate::{table, validate};

pub(super) static INGRESS: Builtin = Builtin {
    kind: "Ingress",
    plural: "ingresses",
    short: &["ing"],
    subresources: &[STATUS],
    rules: Rules {
        storage_prefix: "ingress",
        generation: Generation::FromCreate,
        validate: validate::network::ingress,
        validate_status: Some(|ingress, _, errors| {
            validate::network::ingress_status(ingress, errors)
        }),
        warnings_create: Some(old_class),
        warnings_update: Some(|_, _| Vec::new()),
        table: Some((
            "Name|Class|Hosts|Address|Ports|Age",
            table::network::ingress,
        )),
        ..NETWORKING.rules
    },
    ..NETWORKING
};

fn old_class(ingress: &Value) -> Vec<String> {
    let class = "kubernetes.io/ingress.class";
    let mut found = Vec::new();
    if ingress["metadata"]["annotations"].get(class).is_some() {
        found.push(format!(
            "annotation {class:?} is deprecated, please use 'spec.ingressClassName' instead"
        ));
    }
    found
}
