//! Nodes.

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use serde_json::Value;

use super::{entries, ip, list, resources, scheduling, text};

/// Checks a node. Upstream reports taints under `metadata`, and so do we.
pub(super) fn validate(node: &Value, errors: &mut ErrorList) {
    scheduling::taints(
        list(&node["spec"], "taints"),
        &Path::new("metadata").child("taints"),
        errors,
    );
    validate_addresses(node, errors);
    let path = Path::new("spec").child("podCIDRs");
    for (index, cidr) in list(&node["spec"], "podCIDRs").iter().enumerate() {
        let cidr = cidr.as_str().unwrap_or_default();
        ip::range(cidr, &path.index(index), errors);
    }
    let status = Path::new("status");
    for key in ["capacity", "allocatable"] {
        for (name, amount) in entries(&node["status"], key) {
            let one = serde_json::json!({ name.as_str(): amount });
            if name.contains('/') {
                resources::quantities(&one, &status.child(key), errors);
            }
        }
    }
}

/// No address is there twice.
pub(super) fn validate_addresses(node: &Value, errors: &mut ErrorList) {
    let path = Path::new("status").child("addresses");
    let addresses = list(&node["status"], "addresses");
    for (index, address) in addresses.iter().enumerate() {
        let same = |other: &Value| {
            ["type", "address"]
                .iter()
                .all(|key| text(other, key) == text(address, key))
        };
        if addresses[..index].iter().any(same) {
            let shown = format!(
                "{{\"Type\":{},\"Address\":{}}}",
                address["type"], address["address"]
            );
            errors.push(Error::duplicate(&path.index(index), BadValue::raw(shown)));
        }
    }
}

/// Checks a change of a node.
pub(super) fn validate_update(node: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, before, path) = (&node["spec"], &old["spec"], Path::new("spec"));
    validate(node, errors);
    if !list(before, "podCIDRs").is_empty() && spec["podCIDRs"] != before["podCIDRs"] {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(Error::forbidden(&path.child("podCIDRs"), detail));
    }
    let provider = text(before, "providerID");
    if !provider.is_empty() && provider != text(spec, "providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.push(Error::forbidden(&path.child("providerID"), detail));
    }
}
