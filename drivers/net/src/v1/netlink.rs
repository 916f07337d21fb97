//! Links, addresses and routes of a network namespace, over route netlink.
//!
//! A socket stays bound to the namespace in which it was opened: [`Netlink::inside`] opens one in another namespace on a
//! short-lived thread, so that no other code of the process ever runs in that namespace.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use ipnet::IpNet;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::link::{
    InfoData, InfoIpVlan, InfoKind, InfoMacVlan, InfoVlan, LinkAttribute, LinkFlags, LinkInfo,
    LinkMessage, Prop,
};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

mod changes;
mod link;
mod routes;

pub use changes::Changes;
pub use link::{Kind, Link, mac_text, parse_mac};
use link::{PROMISCUOUS, read};
pub use routes::KnownRoute;

/// The kernel replies immediately; a socket without a reply for this long is considered broken.
const DEADLINE: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};
/// Maximum number of replies to one request; a machine has fewer links, addresses and routes.
const ANSWERS: usize = 1 << 20;

/// A route netlink socket.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in the network namespace of this process.
    ///
    /// # Errors
    /// The kernel does not support the socket.
    pub fn here() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Opens a socket in another network namespace, given by its file (`/proc/PID/ns/net`).
    ///
    /// # Errors
    /// The process is not permitted to enter the namespace.
    pub fn inside(namespace: &File) -> io::Result<Self> {
        let namespace = namespace.try_clone()?;
        let opened = std::thread::spawn(move || {
            use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
            use std::os::fd::AsFd;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            Self::here()
        });
        let ended = opened.join();
        ended.map_err(|_| io::Error::other("the thread in the namespace ended"))?
    }

    fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        loop {
            let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
            if poll(&mut watched, Some(&DEADLINE))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let (received, _) = self.socket.recv_from_full()?;
            let mut rest = &received[..];
            while !rest.is_empty() {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(io::Error::other)?;
                let length = (answer.header.length as usize).next_multiple_of(4);
                rest = rest.get(length.max(16)..).unwrap_or_default();
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                match answer.payload {
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) => match error.code {
                        None => return Ok(answers),
                        Some(code) => {
                            return Err(io::Error::from_raw_os_error(code.get().wrapping_neg()));
                        }
                    },
                    NetlinkPayload::InnerMessage(message) => answers.push(message),
                    _ => {}
                }
                if answers.len() > ANSWERS {
                    return Err(io::Error::other("the answer has no end"));
                }
            }
        }
    }

    /// Lists all links.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn links(&mut self) -> io::Result<Vec<Link>> {
        let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.ask(question, NLM_F_DUMP)?;
        let links = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(read(link)),
            _ => None,
        });
        Ok(links.collect())
    }

    /// Lists the addresses of global scope on all links, each with its link index.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn addresses(&mut self) -> io::Result<Vec<(u32, IpNet)>> {
        let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.ask(question, NLM_F_DUMP)?;
        let addresses = answers.into_iter().filter_map(|answer| {
            let RouteNetlinkMessage::NewAddress(message) = answer else {
                return None;
            };
            if message.header.scope != AddressScope::Universe {
                return None;
            }
            let (mut address, mut local) = (None, None);
            for attribute in &message.attributes {
                match attribute {
                    AddressAttribute::Address(found) => address = Some(*found),
                    AddressAttribute::Local(found) => local = Some(*found),
                    _ => {}
                }
            }
            // On point-to-point links, `address` is that of the peer.
            let network = IpNet::new(local.or(address)?, message.header.prefix_len).ok()?;
            Some((message.header.index, network))
        });
        Ok(addresses.collect())
    }

    /// Indexes of the links used by default routes.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn uplinks(&mut self) -> io::Result<Vec<u32>> {
        let routes = self.routes()?;
        let default = routes.into_iter().filter(|it| it.destination.is_none());
        Ok(default.map(|it| it.link).collect())
    }

    /// The routes of the main table.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn routes(&mut self) -> io::Result<Vec<KnownRoute>> {
        let question = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let answers = self.ask(question, NLM_F_DUMP)?;
        let routes = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => KnownRoute::of(&route),
            _ => None,
        });
        Ok(routes.collect())
    }

    /// Creates a link on top of `parent` in another namespace, with the link down.
    ///
    /// # Errors
    /// An error from the kernel: the link type is not supported, or the name is already in use.
    pub fn make(
        &mut self,
        name: &str,
        parent: u32,
        kind: &Kind,
        namespace: &File,
    ) -> io::Result<()> {
        let (info, data) = match kind {
            Kind::MacVlan(mode, _) => (
                InfoKind::MacVlan,
                InfoData::MacVlan(vec![InfoMacVlan::Mode(*mode)]),
            ),
            Kind::IpVlan(mode) => (
                InfoKind::IpVlan,
                InfoData::IpVlan(vec![InfoIpVlan::Mode(*mode)]),
            ),
            Kind::Vlan(tag) => (InfoKind::Vlan, InfoData::Vlan(vec![InfoVlan::Id(*tag)])),
        };
        let mut message = LinkMessage::default();
        let attributes = &mut message.attributes;
        attributes.push(LinkAttribute::IfName(name.to_owned()));
        attributes.push(LinkAttribute::Link(parent));
        if let Kind::MacVlan(_, mac) = kind {
            attributes.push(LinkAttribute::Address(mac.to_vec()));
        }
        attributes.push(LinkAttribute::NetNsFd(namespace.as_raw_fd()));
        attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(info),
            LinkInfo::Data(data),
        ]));
        self.change(
            RouteNetlinkMessage::NewLink(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Moves a link into another namespace and renames it.
    ///
    /// # Errors
    /// An error from the kernel: the link cannot be moved, or the name is already in use.
    pub fn move_to(&mut self, link: u32, name: &str, namespace: &File) -> io::Result<()> {
        self.set(
            link,
            vec![
                LinkAttribute::NetNsFd(namespace.as_raw_fd()),
                LinkAttribute::IfName(name.to_owned()),
            ],
        )
    }

    /// Renames a link, which must be down.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn rename(&mut self, link: u32, name: &str) -> io::Result<()> {
        self.set(link, vec![LinkAttribute::IfName(name.to_owned())])
    }

    /// Sets the alias of a link, which stays with the link across namespaces; an empty one removes it.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn set_alias(&mut self, link: u32, alias: &str) -> io::Result<()> {
        self.set(link, vec![LinkAttribute::IfAlias(alias.to_owned())])
    }

    /// Sets the MTU of a link.
    ///
    /// # Errors
    /// An error from the kernel, such as an MTU outside the range of the link's driver.
    pub fn set_mtu(&mut self, link: u32, mtu: u32) -> io::Result<()> {
        self.set(link, vec![LinkAttribute::Mtu(mtu)])
    }

    /// Sets a link up or down.
    ///
    /// # Errors
    /// An error from the kernel, such as `EADDRINUSE` for a second link with the same hardware address on one parent.
    pub fn set_up(&mut self, link: u32, up: bool) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = link;
        message.header.change_mask = LinkFlags::Up;
        if up {
            message.header.flags = LinkFlags::Up;
        }
        self.change(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Sets the hardware address of a link, which must be down for some hardware.
    ///
    /// # Errors
    /// An error from the kernel, such as `EOPNOTSUPP` for hardware whose address is fixed.
    pub fn set_mac(&mut self, link: u32, mac: Vec<u8>) -> io::Result<()> {
        self.set(link, vec![LinkAttribute::Address(mac)])
    }

    /// Removes the flags by which a link receives all packets, or all multicast packets.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn clear_promiscuous(&mut self, link: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = link;
        message.header.change_mask = PROMISCUOUS;
        self.change(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Adds or removes an alternative name of a link.
    ///
    /// # Errors
    /// An error from the kernel, such as `EEXIST` for a name that another link has.
    pub fn set_alternative_name(&mut self, link: u32, name: &str, add: bool) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = link;
        let names = vec![Prop::AltIfName(name.to_owned())];
        message.attributes = vec![LinkAttribute::PropList(names)];
        match add {
            true => self.change(
                RouteNetlinkMessage::NewLinkProp(message),
                NLM_F_CREATE | NLM_F_EXCL | NLM_F_APPEND,
            ),
            false => self.change(RouteNetlinkMessage::DelLinkProp(message), 0),
        }
    }

    fn set(&mut self, link: u32, attributes: Vec<LinkAttribute>) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = link;
        message.attributes = attributes;
        self.change(RouteNetlinkMessage::SetLink(message), 0)
    }

    fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.ask(message, NLM_F_ACK | flags).map(drop)
    }

    /// Adds an address; an existing one is kept.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn add_address(&mut self, link: u32, address: IpNet) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address.addr());
        message.header.prefix_len = address.prefix_len();
        message.header.index = link;
        // The address is allocated exclusively, so duplicate address detection is unnecessary.
        message.header.flags = AddressHeaderFlags::Nodad;
        message.attributes = vec![
            AddressAttribute::Local(address.addr()),
            AddressAttribute::Address(address.addr()),
        ];
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        exists_already(self.change(RouteNetlinkMessage::NewAddress(message), flags))
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

#[cfg(test)]
impl Netlink {
    /// Creates a veth pair.
    pub(super) fn make_pair(&mut self, name: &str, peer: &str) -> io::Result<()> {
        use netlink_packet_route::link::InfoVeth;
        let mut other = LinkMessage::default();
        other
            .attributes
            .push(LinkAttribute::IfName(peer.to_owned()));
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(other))),
            ]),
        ];
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.change(RouteNetlinkMessage::NewLink(message), flags)
    }

    /// Finds a link by name.
    pub(super) fn link(&mut self, name: &str) -> Option<Link> {
        let links = self.links().expect("links");
        links.into_iter().find(|it| it.name == name)
    }
}

fn exists_already(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
