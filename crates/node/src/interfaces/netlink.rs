//! Links, addresses and default routes of a network namespace, by route netlink.
//!
//! A socket stays bound to the namespace in which it was opened: [`Netlink::inside`] opens one in another namespace on a
//! thread of its own, which ends.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd as _, AsRawFd as _};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

/// The kernel answers at once; a socket that does not for this long is broken.
const DEADLINE: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};
/// Most answers to one question; a machine has fewer links, addresses and routes.
const ANSWERS: usize = 1 << 20;

/// A link of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Link {
    /// Index in its namespace.
    pub(super) index: u32,
    /// Name in its namespace.
    pub(super) name: String,
    /// Hardware address, which stays with the link across namespaces; empty if the link has none.
    pub(super) mac: Vec<u8>,
    /// Whether it is the loopback interface.
    pub(super) is_loopback: bool,
    /// The bridge, bond or similar link that it is a port of.
    pub(super) controller: Option<u32>,
    /// Index of the link that it is on top of, or of its peer, if that is in the same namespace.
    pub(super) lower: Option<u32>,
}

/// An address of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Address {
    local: IpAddr,
    /// The other end of a link between two points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    peer: Option<IpAddr>,
    prefix: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    broadcast: Option<Ipv4Addr>,
}

/// A socket of route netlink.
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// A socket in the network namespace of this thread.
    pub(super) fn here() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// A socket in the network namespace of a file.
    pub(super) fn inside(namespace: &File) -> io::Result<Self> {
        let namespace = namespace.try_clone()?;
        let opened = std::thread::spawn(move || {
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

    fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.ask(message, NLM_F_ACK | flags).map(drop)
    }

    /// All links.
    pub(super) fn links(&mut self) -> io::Result<Vec<Link>> {
        let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.ask(question, NLM_F_DUMP)?;
        let links = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(read(link)),
            _ => None,
        });
        Ok(links.collect())
    }

    /// The addresses of a link that stay with it when it is moved: the permanent ones of global scope.
    pub(super) fn addresses(&mut self, link: u32) -> io::Result<Vec<Address>> {
        let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.ask(question, NLM_F_DUMP)?;
        let of_link = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewAddress(message) => address(link, &message),
            _ => None,
        });
        Ok(of_link.collect())
    }

    /// The links that default routes use.
    pub(super) fn uplinks(&mut self) -> io::Result<Vec<u32>> {
        let question = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let answers = self.ask(question, NLM_F_DUMP)?;
        let mut uplinks = Vec::new();
        for answer in answers {
            let RouteNetlinkMessage::NewRoute(route) = answer else {
                continue;
            };
            let header = &route.header;
            if header.destination_prefix_length > 0 || header.kind != RouteType::Unicast {
                continue;
            }
            for attribute in route.attributes {
                match attribute {
                    RouteAttribute::Oif(link) => uplinks.push(link),
                    RouteAttribute::MultiPath(hops) => {
                        uplinks.extend(hops.iter().map(|hop| hop.interface_index));
                    }
                    _ => {}
                }
            }
        }
        Ok(uplinks)
    }

    /// Moves a link into another namespace under a name. It is down there, without addresses. If another link has the name it
    /// may have been moved under the name that it had.
    pub(super) fn move_to(&mut self, link: u32, name: &str, namespace: &File) -> io::Result<()> {
        let attributes = vec![
            LinkAttribute::NetNsFd(namespace.as_raw_fd()),
            LinkAttribute::IfName(name.to_owned()),
        ];
        self.set(link, attributes)
    }

    /// Renames a link that is down.
    pub(super) fn rename(&mut self, link: u32, name: &str) -> io::Result<()> {
        self.set(link, vec![LinkAttribute::IfName(name.to_owned())])
    }

    fn set(&mut self, link: u32, attributes: Vec<LinkAttribute>) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = link;
        message.attributes = attributes;
        self.change(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Sets a link up.
    pub(super) fn set_up(&mut self, link: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = link;
        message.header.change_mask = LinkFlags::Up;
        message.header.flags = LinkFlags::Up;
        self.change(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Adds an address to a link, unless the link has it.
    pub(super) fn add_address(&mut self, link: u32, address: &Address) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = match address.local {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        message.header.prefix_len = address.prefix;
        message.header.index = link;
        // The link had it before: nothing else has it.
        message.header.flags = AddressHeaderFlags::Nodad;
        message.attributes = vec![
            AddressAttribute::Local(address.local),
            AddressAttribute::Address(address.peer.unwrap_or(address.local)),
        ];
        let broadcast = address.broadcast.map(AddressAttribute::Broadcast);
        message.attributes.extend(broadcast);
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        match self.change(RouteNetlinkMessage::NewAddress(message), flags) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }
}

fn read(message: LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        is_loopback: message.header.flags.contains(LinkFlags::Loopback),
        ..Link::default()
    };
    let mut lower_is_elsewhere = false;
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Address(mac) => link.mac = mac,
            LinkAttribute::Controller(index) => link.controller = Some(index),
            LinkAttribute::Link(index) => link.lower = Some(index),
            LinkAttribute::LinkNetNsId(_) => lower_is_elsewhere = true,
            _ => {}
        }
    }
    link.lower = link.lower.filter(|_| !lower_is_elsewhere);
    link
}

fn address(link: u32, message: &AddressMessage) -> Option<Address> {
    let header = &message.header;
    let (mut first, mut local, mut broadcast) = (None, None, None);
    let mut permanent = header.flags.contains(AddressHeaderFlags::Permanent);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(found) => first = Some(*found),
            AddressAttribute::Local(found) => local = Some(*found),
            AddressAttribute::Broadcast(found) => broadcast = Some(*found),
            AddressAttribute::Flags(flags) => permanent = flags.contains(AddressFlags::Permanent),
            _ => {}
        }
    }
    let is_kept = header.index == link && header.scope == AddressScope::Universe && permanent;
    let local = local.or(first).filter(|_| is_kept)?;
    Some(Address {
        local,
        peer: first.filter(|first| *first != local),
        prefix: header.prefix_len,
        broadcast,
    })
}

#[cfg(test)]
impl Netlink {
    /// Creates a pair of links.
    pub(super) fn make_pair(&mut self, name: &str, peer: &str) -> io::Result<()> {
        use netlink_packet_route::link::{InfoData, InfoKind, InfoVeth, LinkInfo};
        let mut other = LinkMessage::default();
        other.attributes = vec![LinkAttribute::IfName(peer.to_owned())];
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

    /// Makes a link a port of a bridge.
    pub(super) fn add_port(&mut self, bridge: u32, port: u32) -> io::Result<()> {
        self.set(port, vec![LinkAttribute::Controller(bridge)])
    }

    /// Adds a default route over a link.
    pub(super) fn make_default(&mut self, link: u32) -> io::Result<()> {
        use netlink_packet_route::route::{RouteHeader, RouteProtocol, RouteScope};
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.kind = RouteType::Unicast;
        message.header.scope = RouteScope::Link;
        message.attributes.push(RouteAttribute::Oif(link));
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.change(RouteNetlinkMessage::NewRoute(message), flags)
    }
}

#[cfg(test)]
impl Address {
    pub(super) fn of(local: &str, prefix: u8) -> Self {
        Self {
            local: local.parse().expect("an address"),
            peer: None,
            prefix,
            broadcast: None,
        }
    }

    pub(super) fn with_peer(mut self, peer: &str) -> Self {
        self.peer = Some(peer.parse().expect("an address"));
        self
    }
}
