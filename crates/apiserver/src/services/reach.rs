//! Addresses that may lead to the server's own host.

use std::net::IpAddr;

use allot_apimachinery::metadata_service::embedded_ipv4;

use super::{ADDRESSES, ranges};
use crate::dial;
use crate::state::ServerState;

/// Whether the address may lead to this host: it is [one of its own](dial::is_own), the advertised one, which may be that of
/// something in front of the host, or one of a service, the server's own among them: of a range that services get
/// addresses from, or had. So may an IPv6 address whose gateway connects to one of these. If it cannot be determined, it may.
pub(crate) async fn is_host(core: &ServerState, ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let embedded = match ip {
        IpAddr::V6(ip) => embedded_ipv4(ip).map(IpAddr::V4),
        IpAddr::V4(_) => None,
    };
    for ip in std::iter::once(ip).chain(embedded) {
        let advertised = core.config.advertise.map(|own| own.ip()) == Some(ip);
        if advertised || dial::is_own(ip) || is_of_services(core, ip).await {
            return true;
        }
    }
    false
}

/// Whether services may have the address. A range that is about to be deleted counts, and an address of a service whose range
/// is gone.
async fn is_of_services(core: &ServerState, ip: IpAddr) -> bool {
    if core.config.service_addresses.has(ip) {
        return true;
    }
    match ranges::all(core).await {
        Ok(all) if all.iter().any(|range| range.has(ip)) => return true,
        Ok(_) => {}
        Err(_) => return true,
    }
    let shown = core.backend.get(ADDRESSES, &ip.to_string()).await;
    shown.map_or(true, |found| found.is_some())
}
