//! Bindings, which bind a pod to a node and are not stored.

use crate::registry::{BASE, Builtin, CREATE, Create, Rules};

pub(super) static BINDING: Builtin = Builtin {
    kind: "Binding",
    plural: "bindings",
    verbs: CREATE,
    rules: Rules {
        create: Create::Bind,
        ..Rules::DEFAULT
    },
    ..BASE
};
