//! Nodes.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::{entries, list, resources, scheduling, text};

/// Checks a node. Upstream reports taints under `metadata`, and so do we.
pub(super) fn validate(node: &Value, errors: &mut ErrorList) {
    scheduling::taints(
        list(&node["spec"], "taints"),
        &Path::new("metadata").child("taints"),
        errors,
    );
    let path = Path::new("spec").child("podCIDRs");
    for (index, cidr) in list(&node["spec"], "podCIDRs").iter().enumerate() {
        let cidr = cidr.as_str().unwrap_or_default();
        let valid = cidr.split_once('/').is_some_and(|(address, length)| {
            let most = match address.parse::<std::net::IpAddr>() {
                Ok(std::net::IpAddr::V4(_)) => 32,
                Ok(std::net::IpAddr::V6(_)) => 128,
                Err(_) => return false,
            };
            length.parse::<u8>().is_ok_and(|length| length <= most)
        });
        if !valid {
            let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(Error::invalid(&path.index(index), cidr, detail));
        }
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
