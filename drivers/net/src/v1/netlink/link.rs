//! Typed representation of links.

use netlink_packet_route::link::{
    IpVlanMode, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, MacVlanMode, Prop, State,
};

/// Flags that a pod can set and that stay with the link across namespaces.
pub(super) const PROMISCUOUS: LinkFlags = LinkFlags::Promisc.union(LinkFlags::Allmulti);

/// A link, with the properties used by the driver.
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
    /// Whether that link is in another namespace.
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
pub(super) fn read(message: LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
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
