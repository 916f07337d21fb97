//! Routes as the kernel reports them.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage};

use super::family;

/// A route of the main table over one link.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownRoute {
    /// Index of the link.
    pub link: u32,
    /// Its destination; a default route has none.
    pub destination: Option<IpNet>,
    family: AddressFamily,
    gateway: Option<IpAddr>,
}

impl KnownRoute {
    /// The route of a message, unless it is in another table or has several links.
    pub(super) fn of(message: &RouteMessage) -> Option<Self> {
        if message.header.table != RouteHeader::RT_TABLE_MAIN {
            return None;
        }
        let (mut link, mut destination, mut gateway) = (None, None, None);
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Oif(index) => link = Some(*index),
                RouteAttribute::Destination(it) => destination = address(it),
                RouteAttribute::Gateway(it) => gateway = address(it),
                _ => {}
            }
        }
        let prefix = message.header.destination_prefix_length;
        Some(Self {
            link: link?,
            destination: destination.and_then(|it| IpNet::new(it, prefix).ok()),
            family: message.header.address_family,
            gateway,
        })
    }

    /// Whether it leads to the destination in this way.
    pub(super) fn is(&self, link: u32, destination: IpNet, gateway: Option<IpAddr>) -> bool {
        let wanted = Some(destination).filter(|it| it.prefix_len() > 0);
        (self.link, self.destination, self.gateway) == (link, wanted, gateway)
            && self.family == family(destination.addr())
    }
}

fn address(of: &RouteAddress) -> Option<IpAddr> {
    match of {
        RouteAddress::Inet(it) => Some(IpAddr::from(*it)),
        RouteAddress::Inet6(it) => Some(IpAddr::from(*it)),
        _ => None,
    }
}
