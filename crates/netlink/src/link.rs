//! Links, and changes of them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoIpVlan, InfoKind, InfoMacVlan, InfoVlan, IpVlanMode, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage, MacVlanMode, Prop, State,
};

use super::Netlink;

/// Flags that a pod can set and that stay with the link across namespaces.
const PROMISCUOUS: LinkFlags = LinkFlags::Promisc.union(LinkFlags::Allmulti);

/// A link of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Link {
    /// Index in its namespace.
    pub index: u32,
    /// Name in its namespace.
    pub name: String,
    /// The alias (`ifalias`), which stays with the link across namespaces.
    pub alias: String,
    /// Alternative names, which stay with the link across namespaces, too.
    pub alternative_names: Vec<String>,
    /// Hardware address; empty if the link has none.
    pub mac: Vec<u8>,
    /// The hardware address that is stored in the hardware; empty if there is none.
    pub permanent_mac: Vec<u8>,
    /// Name of the physical port, if the hardware reports one.
    pub port: String,
    /// Maximum transmission unit, in bytes.
    pub mtu: u32,
    /// Whether it is the loopback interface.
    pub is_loopback: bool,
    /// Whether the link is administratively up.
    pub up: bool,
    /// Whether it is set to receive all packets, or all multicast packets.
    pub promiscuous: bool,
    /// Operational state as reported by the kernel: `up`, `down`, `unknown`, …
    pub state: String,
    /// Link kind: `veth`, `macvlan`, …; absent for hardware.
    pub kind: Option<String>,
    /// Link-layer type: `ether`, `infiniband`, `loopback`, …
    pub encapsulation: String,
    /// The bridge, bond or similar link that it is a port of.
    pub controller: Option<u32>,
    /// Index of the link that it is on top of, or of its peer.
    pub lower: Option<u32>,
    /// Whether that link is in another namespace, of which `lower` is an index then.
    pub lower_is_elsewhere: bool,
    /// Name of the underlying hardware device, and of its bus.
    pub hardware: Option<(String, String)>,
}

/// A link to create on top of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A macvlan link, with its own hardware address.
    MacVlan(MacVlanMode, [u8; 6]),
    /// An ipvlan link, with the hardware address of the parent.
    IpVlan(IpVlanMode),
    /// A VLAN link, with this VLAN ID.
    Vlan(u16),
}

impl Netlink {
    /// Lists all links.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn links(&mut self) -> io::Result<Vec<Link>> {
        let answers = self.list(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        let links = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(read(link)),
            _ => None,
        });
        Ok(links.collect())
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

    /// Moves a link into another namespace and renames it. It is down there, without addresses. If another link has the name, the
    /// kernel may move it under the name that it had.
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
}

#[cfg(any(test, feature = "fixtures"))]
impl Netlink {
    /// Creates a pair of links (veth), for tests.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn make_pair(&mut self, name: &str, peer: &str) -> io::Result<()> {
        use netlink_packet_route::link::InfoVeth;
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

    /// Makes a link a port of a bridge, for tests.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn add_port(&mut self, bridge: u32, port: u32) -> io::Result<()> {
        self.set(port, vec![LinkAttribute::Controller(bridge)])
    }

    /// Finds a link by name, for tests.
    ///
    /// # Panics
    /// The kernel does not list the links.
    pub fn link(&mut self, name: &str) -> Option<Link> {
        let links = self.links().expect("links");
        links.into_iter().find(|it| it.name == name)
    }
}

/// Formats the hardware address as colon-separated hexadecimal bytes.
pub fn mac_text(mac: &[u8]) -> String {
    let bytes: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

/// Parses a hardware address of colon-separated hexadecimal bytes, as [`mac_text`] formats it.
pub fn parse_mac(text: &str) -> Option<Vec<u8>> {
    let bytes = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok());
    bytes.collect()
}

/// Parses a link message from the kernel.
fn read(message: LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        is_loopback: message.header.flags.contains(LinkFlags::Loopback),
        up: message.header.flags.contains(LinkFlags::Up),
        promiscuous: message.header.flags.intersects(PROMISCUOUS),
        encapsulation: format!("{:?}", message.header.link_layer_type).to_lowercase(),
        state: "unknown".to_owned(),
        ..Link::default()
    };
    let (mut hardware, mut bus) = (None, None);
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::IfAlias(alias) => link.alias = alias,
            LinkAttribute::Address(mac) => link.mac = mac,
            LinkAttribute::PermAddress(mac) => link.permanent_mac = mac,
            LinkAttribute::PhysPortName(port) => link.port = port,
            LinkAttribute::PropList(all) => {
                let names = all.into_iter().filter_map(|it| match it {
                    Prop::AltIfName(name) => Some(name),
                    _ => None,
                });
                link.alternative_names = names.collect();
            }
            LinkAttribute::Link(index) => link.lower = Some(index),
            LinkAttribute::LinkNetNsId(_) => link.lower_is_elsewhere = true,
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::Controller(index) => link.controller = Some(index),
            LinkAttribute::ParentDevName(name) => hardware = Some(name),
            LinkAttribute::ParentDevBusName(name) => bus = Some(name),
            LinkAttribute::OperState(state) => {
                link.state = match state {
                    State::Up => "up",
                    State::Down => "down",
                    State::LowerLayerDown => "lowerlayerdown",
                    State::Dormant => "dormant",
                    State::Testing => "testing",
                    State::NotPresent => "notpresent",
                    _ => "unknown",
                }
                .to_owned();
            }
            LinkAttribute::LinkInfo(infos) => {
                link.kind = infos.into_iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    link.hardware = hardware.map(|name| (name, bus.unwrap_or_default()));
    link
}
