//! Columns and rows of `kubectl get` for the classic kinds.

use jiff::Timestamp;
use serde_json::Value;

use super::Kind;
use crate::table::{AGE, Column, NAME, since, text};
use crate::view::View;

/// The columns of a kind's table.
pub fn columns(kind: Kind) -> &'static [Column] {
    const DRIVER_NAME: Column = text(
        "DriverName",
        "Driver that allocates resources of the class.",
    );
    const CLASS: Column = text(
        "ResourceClassName",
        "Class of the resource that is asked for.",
    );
    const MODE: Column = text(
        "AllocationMode",
        "Whether the resource is allocated at once or for the first pod.",
    );
    const STATE: Column = text(
        "State",
        "Where the claim stands: pending, allocated, reserved for pods, deallocating, deleted.",
    );
    const SELECTED: Column = text(
        "SelectedNode",
        "Node for which the claims shall be allocated.",
    );
    const GENERATED: Column = text(
        "GeneratedFrom",
        "Vendor's object that the parameters come from.",
    );
    const NODE: Column = text("Node", "Node that has the resources.");
    const DRIVER: Column = text("Driver", "Driver that publishes the resources.");
    match kind {
        Kind::ResourceClass => &[NAME, DRIVER_NAME, AGE],
        Kind::ResourceClaim => &[NAME, CLASS, MODE, STATE, AGE],
        Kind::ResourceClaimTemplate => &[NAME, CLASS, MODE, AGE],
        Kind::PodScheduling | Kind::PodSchedulingContext => &[NAME, SELECTED, AGE],
        Kind::ResourceSlice => &[NAME, NODE, DRIVER, AGE],
        Kind::ResourceClaimParameters | Kind::ResourceClassParameters => &[NAME, GENERATED, AGE],
    }
}

/// The cells of an object, one per column. Ages are relative to `now`.
pub fn row(kind: Kind, value: &Value, now: Timestamp) -> Vec<Value> {
    let metadata = value.at("metadata");
    let (name, spec) = (metadata.text("name"), value.at("spec"));
    let age = since(metadata.at("creationTimestamp"), now, "<unknown>");
    let cells: Vec<String> = match kind {
        Kind::ResourceClass => vec![value.text("driverName").to_owned()],
        Kind::ResourceClaim => {
            vec![
                spec.text("resourceClassName").to_owned(),
                spec.text("allocationMode").to_owned(),
                claim_state(value),
            ]
        }
        Kind::ResourceClaimTemplate => {
            let spec = spec.at("spec");
            vec![
                spec.text("resourceClassName").to_owned(),
                spec.text("allocationMode").to_owned(),
            ]
        }
        Kind::PodScheduling | Kind::PodSchedulingContext => {
            vec![spec.text("selectedNode").to_owned()]
        }
        Kind::ResourceSlice => vec![
            value.text("nodeName").to_owned(),
            value.text("driverName").to_owned(),
        ],
        Kind::ResourceClaimParameters | Kind::ResourceClassParameters => {
            vec![generated_from(value.at("generatedFrom"))]
        }
    };
    std::iter::once(name.to_owned())
        .chain(cells)
        .chain([age])
        .map(Value::from)
        .collect()
}

/// The state of a claim in the `State` column.
pub fn claim_state(claim: &Value) -> String {
    crate::table::state_of(claim, true)
}

fn generated_from(reference: &Value) -> String {
    let (kind, group, name) = (
        reference.text("kind"),
        reference.text("apiGroup"),
        reference.text("name"),
    );
    if reference.is_null() {
        String::new()
    } else {
        format!("{kind}.{group} {name}")
    }
}
