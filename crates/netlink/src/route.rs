//! Routes.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{Netlink, family};

/// A route of the main table over one link.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// Index of the link.
    pub link: u32,
    /// Its destination; a default route has none.
    pub destination: Option<IpNet>,
    family: AddressFamily,
    gateway: Option<IpAddr>,
}

/// A link that a default route uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uplink {
    /// Index of the link.
    pub link: u32,
    /// Whether the route is in the main table. Rules of policy routing decide which packets take routes of another one.
    pub is_main: bool,
}

impl Route {
    /// The route of a message, unless it is in another table or has several links.
    fn of(message: &RouteMessage) -> Option<Self> {
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
    fn is(&self, link: u32, destination: IpNet, gateway: Option<IpAddr>) -> bool {
        let wanted = Some(destination).filter(|it| it.prefix_len() > 0);
        (self.link, self.destination, self.gateway) == (link, wanted, gateway)
            && self.family == family(destination.addr())
    }
}

impl Netlink {
    /// The routes of the main table, but for those with several next hops.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn routes(&mut self) -> io::Result<Vec<Route>> {
        let messages = self.route_messages()?;
        Ok(messages.iter().filter_map(Route::of).collect())
    }

    /// The links that default routes use, those with several next hops included.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn uplinks(&mut self) -> io::Result<Vec<Uplink>> {
        let mut uplinks = Vec::new();
        for message in self.route_messages()? {
            let header = &message.header;
            if header.destination_prefix_length > 0 || header.kind != RouteType::Unicast {
                continue;
            }
            let is_main = header.table == RouteHeader::RT_TABLE_MAIN;
            let uplink = |link| Uplink { link, is_main };
            for attribute in &message.attributes {
                match attribute {
                    RouteAttribute::Oif(link) => uplinks.push(uplink(*link)),
                    RouteAttribute::MultiPath(hops) => {
                        uplinks.extend(hops.iter().map(|hop| uplink(hop.interface_index)));
                    }
                    _ => {}
                }
            }
        }
        Ok(uplinks)
    }

    fn route_messages(&mut self) -> io::Result<Vec<RouteMessage>> {
        let answers = self.list(RouteNetlinkMessage::GetRoute(RouteMessage::default()))?;
        let messages = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(message) => Some(message),
            _ => None,
        });
        Ok(messages.collect())
    }

    /// Adds a route over a link, unless it exists.
    ///
    /// # Errors
    /// An error from the kernel, such as `ENETUNREACH` for a gateway outside the link's subnets; `AlreadyExists` if packets to the
    /// destination take another route.
    pub fn add_route(
        &mut self,
        link: u32,
        destination: IpNet,
        gateway: Option<IpAddr>,
    ) -> io::Result<()> {
        let mut message = RouteMessage::default();
        let header = &mut message.header;
        header.address_family = family(destination.addr());
        header.destination_prefix_length = destination.prefix_len();
        header.table = RouteHeader::RT_TABLE_MAIN;
        header.protocol = RouteProtocol::Static;
        header.kind = RouteType::Unicast;
        header.scope = match gateway {
            None if destination.addr().is_ipv4() => RouteScope::Link,
            _ => RouteScope::Universe,
        };
        message.attributes.push(RouteAttribute::Oif(link));
        if destination.prefix_len() > 0 {
            let address = destination.addr().into();
            message
                .attributes
                .push(RouteAttribute::Destination(address));
        }
        if let Some(gateway) = gateway {
            message
                .attributes
                .push(RouteAttribute::Gateway(gateway.into()));
        }
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        let added = self.change(RouteNetlinkMessage::NewRoute(message), flags);
        match added {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut routes = self.routes()?.into_iter();
                match routes.any(|it| it.is(link, destination, gateway)) {
                    true => Ok(()),
                    false => Err(io::Error::new(
                        error.kind(),
                        "the pod has another one already",
                    )),
                }
            }
            added => added,
        }
    }
}

#[cfg(any(test, feature = "fixtures"))]
impl Netlink {
    /// Adds a default route of IPv4 over several links, for tests.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn add_default_over(&mut self, links: &[u32], table: u8) -> io::Result<()> {
        use netlink_packet_route::route::RouteNextHop;
        let hop = |link: &u32| {
            let mut hop = RouteNextHop::default();
            hop.interface_index = *link;
            hop
        };
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.table = table;
        message.header.protocol = RouteProtocol::Static;
        message.header.kind = RouteType::Unicast;
        message.header.scope = RouteScope::Link;
        let hops = links.iter().map(hop).collect();
        message.attributes.push(RouteAttribute::MultiPath(hops));
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.change(RouteNetlinkMessage::NewRoute(message), flags)
    }
}

fn address(of: &RouteAddress) -> Option<IpAddr> {
    match of {
        RouteAddress::Inet(it) => Some(IpAddr::from(*it)),
        RouteAddress::Inet6(it) => Some(IpAddr::from(*it)),
        _ => None,
    }
}
