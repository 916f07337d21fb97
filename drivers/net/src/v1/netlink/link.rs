//! Links as values.

use netlink_packet_route::link::{
    IpVlanMode, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, MacVlanMode, State,
};

/// A link, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Link {
    /// Number in its namespace.
    pub index: u32,
    /// Name in its namespace.
    pub name: String,
    /// A text that goes with the link wherever it goes.
    pub alias: String,
    /// Hardware address; empty where there is none.
    pub mac: Vec<u8>,
    /// Largest packet.
    pub mtu: u32,
    /// An administrator has set it up.
    pub up: bool,
    /// What the kernel calls its operational state: `up`, `down`, `unknown`, …
    pub state: String,
    /// What made it: `veth`, `macvlan`, …; nothing for hardware.
    pub kind: Option<String>,
    /// What frames look like: `ether`, `infiniband`, `loopback`, …
    pub encapsulation: String,
    /// The bridge, bond or the like that it is a part of.
    pub controller: Option<u32>,
    /// Name of the hardware below it, and of its bus.
    pub hardware: Option<(String, String)>,
}

/// A link to make on top of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// With a hardware address of its own.
    MacVlan(MacVlanMode, [u8; 6]),
    /// With the hardware address of the parent.
    IpVlan(IpVlanMode),
    /// Frames with this tag.
    Vlan(u16),
}

/// The hardware address in the usual form.
pub fn mac_text(mac: &[u8]) -> String {
    let bytes: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

/// What the kernel says about a link.
pub(super) fn read(message: LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        up: message.header.flags.contains(LinkFlags::Up),
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
