//! Addresses of links.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope,
};
use serde::{Deserialize, Serialize};

use super::{Netlink, family};

/// An address as a link has it. Its serialized form is part of records on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address of the link itself.
    pub local: IpAddr,
    /// The other end of a point-to-point link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<IpAddr>,
    /// Length of the prefix of its subnet, in bits.
    pub prefix: u8,
    /// The broadcast address of its subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<Ipv4Addr>,
}

impl Address {
    /// The address with the length of its prefix; none if that is longer than the address.
    pub fn network(&self) -> Option<IpNet> {
        IpNet::new(self.local, self.prefix).ok()
    }
}

impl From<IpNet> for Address {
    fn from(network: IpNet) -> Self {
        Self {
            local: network.addr(),
            peer: None,
            prefix: network.prefix_len(),
            broadcast: None,
        }
    }
}

/// An address, with the link that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkAddress {
    /// Index of the link.
    pub link: u32,
    /// Whether it stays until it is removed. Others end by themselves, such as those of router advertisements.
    pub is_permanent: bool,
    /// The address.
    pub address: Address,
}

impl Netlink {
    /// Lists the addresses of global scope on all links.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn addresses(&mut self) -> io::Result<Vec<LinkAddress>> {
        let answers = self.list(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
        let addresses = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewAddress(message) => read(&message),
            _ => None,
        });
        Ok(addresses.collect())
    }

    /// Adds an address to a link, unless the link has it. The kernel does not search for duplicates of it: an address that is
    /// added was allocated for the link, or moves with it.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn add_address(&mut self, link: u32, address: &Address) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address.local);
        message.header.prefix_len = address.prefix;
        message.header.index = link;
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
            added => added,
        }
    }
}

/// The address of a message, if it has global scope.
fn read(message: &AddressMessage) -> Option<LinkAddress> {
    let header = &message.header;
    if header.scope != AddressScope::Universe {
        return None;
    }
    let (mut first, mut local, mut broadcast) = (None, None, None);
    let mut is_permanent = header.flags.contains(AddressHeaderFlags::Permanent);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(found) => first = Some(*found),
            AddressAttribute::Local(found) => local = Some(*found),
            AddressAttribute::Broadcast(found) => broadcast = Some(*found),
            // All flags; the header has no room for some.
            AddressAttribute::Flags(flags) => {
                is_permanent = flags.contains(AddressFlags::Permanent);
            }
            _ => {}
        }
    }
    // On point-to-point links the first one is that of the peer.
    let local = local.or(first)?;
    Some(LinkAddress {
        link: header.index,
        is_permanent,
        address: Address {
            local,
            peer: first.filter(|first| *first != local),
            prefix: header.prefix_len,
            broadcast,
        },
    })
}
