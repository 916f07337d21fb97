//! Endpoint slices.

use crate::registry::{BASE, Builtin, Generation, Rules, anything_changed};
use crate::{table, validate, warnings};

pub(super) static ENDPOINT_SLICE: Builtin = Builtin {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    plural: "endpointslices",
    rules: Rules {
        generation: Generation::FromCreate,
        spec_changed: anything_changed,
        validate: validate::network::endpoint_slice,
        validate_update: Some(validate::network::endpoint_slice_update),
        checks_metadata_change: |_| false,
        warnings: warnings::addresses::endpoint_slice,
        table: Some((
            "Name|AddressType|Ports|Endpoints|Age",
            table::network::endpoint_slice,
        )),
        ..Rules::DEFAULT
    },
    ..BASE
};
