//! Addresses and protocols of endpoints and services.

use std::net::IpAddr;

use allot_apimachinery::field::{Error, ErrorList, Path};

use super::ip;

pub(crate) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// An address that traffic from elsewhere can reach.
pub(crate) fn reachable_address(text: &str, path: &Path, errors: &mut ErrorList) {
    if let Some(why) = ip::address_text(text) {
        errors.push(Error::invalid(path, text, why));
        return;
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        reachable(address, text, path, errors);
    }
}

/// As [`reachable_address`], of an address that has been read.
pub(crate) fn reachable(address: IpAddr, text: &str, path: &Path, errors: &mut ErrorList) {
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
