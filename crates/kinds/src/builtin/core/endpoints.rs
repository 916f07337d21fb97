//! Endpoints.

use crate::registry::{BASE, Builtin, Rules};
use crate::{table, validate, warnings};

pub(super) static ENDPOINTS: Builtin = Builtin {
    kind: "Endpoints",
    plural: "endpoints",
    short: &["ep"],
    deprecated: &[("v1", "v1.33", "")],
    replacement: "discovery.k8s.io/v1 EndpointSlice",
    rules: Rules {
        storage_prefix: "services/endpoints",
        create_on_update: true,
        validate: validate::network::endpoints,
        warnings: warnings::addresses::endpoints,
        table: Some(("Name|Endpoints|Age", table::network::endpoints)),
        ..Rules::DEFAULT
    },
    ..BASE
};
