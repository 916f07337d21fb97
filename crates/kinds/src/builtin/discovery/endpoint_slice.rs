//! Endpoint slices.

use serde_json::Value;

use crate::registry::{BASE, Builtin, Generation, Rules, anything_changed};
use crate::{table, validate, warnings};

pub(super) static ENDPOINT_SLICE: Builtin = Builtin {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    plural: "endpointslices",
    rules: Rules {
        generation: Generation::FromCreate,
        spec_changed: |new, old| {
            anything_changed(new, old) || new["metadata"]["labels"] != old["metadata"]["labels"]
        },
        prepare_create: Some(drop_topology),
        prepare_update: Some(|slice, old, _| {
            if slice["endpoints"] != old["endpoints"] {
                drop_topology(slice);
            }
        }),
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

/// The topology of endpoints was for v1beta1; through v1 it is not written.
fn drop_topology(slice: &mut Value) {
    let endpoints = slice.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten() {
        if let Value::Object(endpoint) = endpoint {
            endpoint.remove("deprecatedTopology");
        }
    }
}
