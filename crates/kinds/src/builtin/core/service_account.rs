//! Service accounts.

use crate::registry::{BASE, Builtin, CREATE, Rules};
use crate::table;

pub(super) static SERVICE_ACCOUNT: Builtin = Builtin {
    kind: "ServiceAccount",
    plural: "serviceaccounts",
    short: &["sa"],
    subresources: &[(
        "token",
        "TokenRequest",
        "authentication.k8s.io",
        "v1",
        CREATE,
    )],
    rules: Rules {
        delete_returns_object: |_| true,
        table: Some(("Name|Age", table::cluster::service_account)),
        ..Rules::DEFAULT
    },
    ..BASE
};
