//! The plugin DenyServiceExternalIPs: with an external address a service takes the traffic for whatever has that address.

use std::collections::HashSet;

use serde_json::Value;

use super::{Attributes, Operation, forbidden};
use crate::error::Result;
use crate::object::{at, items};

/// Refuses external addresses that the service did not have.
///
/// # Errors
/// 403.
pub(super) fn deny_external_addresses(attributes: &Attributes<'_>, service: &Value) -> Result<()> {
    let written = matches!(attributes.operation, Operation::Create | Operation::Update);
    let concerned = attributes.resource.is("", "services") && attributes.subresource.is_empty();
    if !written || !concerned {
        return Ok(());
    }
    let before = attributes.old.map_or(&[][..], external_addresses);
    // Their number is bounded by the size of the object alone.
    let before: HashSet<&str> = before.iter().filter_map(Value::as_str).collect();
    let mut addresses = external_addresses(service).iter().filter_map(Value::as_str);
    if addresses.all(|address| before.contains(address)) {
        return Ok(());
    }
    let why = "Use of external IPs is denied by admission control";
    Err(forbidden(attributes, why))
}

fn external_addresses(service: &Value) -> &[Value] {
    items(at(service, &["spec", "externalIPs"]))
}
