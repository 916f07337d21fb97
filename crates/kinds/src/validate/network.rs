//! Endpoints, ingresses and network policies.

use std::net::IpAddr;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::{ip, list, one_of, rule, text, volume};

pub(super) mod addresses;
mod ingress;
mod policy;
mod slices;

pub(crate) use addresses::{address, address_update, range, range_update};
pub(crate) use ingress::{class as ingress_class, class_update, ingress, status as ingress_status};
pub(crate) use policy::policy;
pub(crate) use slices::{endpoint_slice, endpoint_slice_update};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// An address that traffic from elsewhere can reach.
pub(crate) fn reachable_address(text: &str, path: &Path, errors: &mut ErrorList) {
    if let Some(why) = ip::address_text(text) {
        errors.push(Error::invalid(path, text, why));
        return;
    }
    let Ok(address) = text.parse::<IpAddr>() else {
        return;
    };
    let mut refuse = |detail: String| errors.push(Error::invalid(path, text, detail));
    let (local, local_group) = match address {
        IpAddr::V4(it) => (it.is_link_local(), it.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(it) => (
            it.is_unicast_link_local(),
            it.segments()[0] & 0xff0f == 0xff02,
        ),
    };
    if address.is_unspecified() {
        refuse(format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        refuse("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned());
    }
    if local {
        refuse("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned());
    }
    if local_group {
        refuse("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned());
    }
}

/// Checks endpoints of the core group.
pub(crate) fn endpoints(object: &Value, errors: &mut ErrorList) {
    for (index, subset) in list(object, "subsets").iter().enumerate() {
        let path = Path::new("subsets").index(index);
        let all = ["addresses", "notReadyAddresses"];
        if all.iter().all(|key| list(subset, key).is_empty()) {
            let detail = "must specify `addresses` or `notReadyAddresses`";
            errors.push(Error::required(&path, detail));
        }
        for key in all {
            for (place, address) in list(subset, key).iter().enumerate() {
                let at = path.child(key).index(place);
                let (found, of) = (text(address, "ip"), at.child("ip"));
                let malformed = ip::address_text(found);
                if let Some(why) = malformed {
                    errors.push(Error::invalid(&of, found, why));
                }
                let host = text(address, "hostname");
                if !host.is_empty() {
                    let at = at.child("hostname");
                    rule(names::dns1123_label(host), host, &at, errors);
                }
                if let Some(node) = address["nodeName"].as_str() {
                    let at = at.child("nodeName");
                    rule(names::dns1123_subdomain(node), node, &at, errors);
                }
                // Upstream reports a malformed one in two ways.
                if found.parse::<IpAddr>().is_err() {
                    errors.push(Error::invalid(&of, found, "must be a valid IP address"));
                } else if malformed.is_none() {
                    reachable_address(found, &of, errors);
                }
            }
        }
        let ports = list(subset, "ports");
        for (place, port) in ports.iter().enumerate() {
            let at = path.child("ports").index(place);
            let name = text(port, "name");
            if name.is_empty() {
                if ports.len() > 1 {
                    errors.push(Error::required(&at.child("name"), ""));
                }
            } else {
                rule(names::dns1123_label(name), name, &at.child("name"), errors);
            }
            let number = port["port"].as_i64().unwrap_or_default();
            volume::port(number, &at.child("port"), errors);
            let protocol = text(port, "protocol");
            one_of(protocol, &PROTOCOLS, true, &at.child("protocol"), errors);
            if let Some(name) = port["appProtocol"].as_str() {
                let at = at.child("appProtocol");
                rule(names::qualified_name(name), name, &at, errors);
            }
        }
    }
}
