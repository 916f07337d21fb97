//! Endpoint slices.

use serde_json::{Value, json};

use crate::object::{self, items, strings};
use crate::registry::{BASE, Builtin, Generation, Rules, anything_changed};
use crate::table::age;
use crate::table::format::{SHOWN_ENDPOINTS, list_with_more, name};
use crate::warnings::addresses;

mod validation;

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
        validate: validation::validate,
        validate_update: Some(validation::validate_update),
        checks_metadata_change: |_| false,
        warnings: of_addresses,
        warnings_create: Some(of_new),
        table: Some(("Name|AddressType|Ports|Endpoints|Age", row)),
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

fn row(object: &Value) -> Vec<Value> {
    let ports: Vec<String> = items(&object["ports"])
        .iter()
        .map(|port| {
            let name = port["name"].as_str().unwrap_or("*");
            let number = port["port"].as_i64();
            number.map_or(name.to_owned(), |number| number.to_string())
        })
        .collect();
    let addresses: Vec<String> = items(&object["endpoints"])
        .iter()
        .flat_map(|endpoint| strings(&endpoint["addresses"]))
        .collect();
    let ports = if ports.is_empty() {
        "<unset>".to_owned()
    } else {
        list_with_more(&ports, SHOWN_ENDPOINTS)
    };
    let addresses = if addresses.is_empty() {
        "<unset>".to_owned()
    } else {
        list_with_more(&addresses, SHOWN_ENDPOINTS)
    };
    vec![
        name(object),
        json!(object::text(object, &["addressType"])),
        json!(ports),
        json!(addresses),
        age(object),
    ]
}

/// Controllers that write addresses in their preferred form.
const CONTROLLERS: [&str; 2] = [
    "endpointslice-controller.k8s.io",
    "endpointslicemirroring-controller.k8s.io",
];

/// About a new slice.
fn of_new(object: &Value) -> Vec<String> {
    if object["addressType"] == "FQDN" {
        return vec!["spec.addressType: FQDN endpoints are deprecated".to_owned()];
    }
    of_addresses(object)
}

/// About the addresses of pods behind a service.
fn of_addresses(object: &Value) -> Vec<String> {
    let by = &object["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"];
    if CONTROLLERS.iter().any(|controller| by == *controller) {
        return Vec::new();
    }
    let about = |(index, endpoint): (usize, &Value)| {
        addresses::list(
            &format!("endpoints[{index}].addresses"),
            &endpoint["addresses"],
        )
    };
    items(&object["endpoints"])
        .iter()
        .enumerate()
        .flat_map(about)
        .collect()
}
