//! The interfaces of a node as devices. Attribute names follow DRANET where it defines them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use allot_driver::attributes::{self, Sysfs, flag, number, text};
use allot_netlink::{Link, Netlink, mac_text};
use ipnet::IpNet;
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceAttribute, DeviceCapacity,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::identity::Identity;

#[cfg(test)]
mod tests;

/// Maximum length of a string attribute.
const TEXT: usize = 64;
/// The capacity of a shared device: each claim consumes one unless it requests more.
pub const SHARES: &str = "interfaces";

/// Selects the interfaces to publish.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Interface name patterns, in which `*` matches any characters; if empty, hardware, bonds and VLANs are selected.
    pub patterns: Vec<String>,
    /// Maximum number of interfaces created from each device; 1 means that a device is exclusive to one claim.
    pub shares: u32,
    /// Mount point of sysfs.
    pub sysfs: PathBuf,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            patterns: Vec::new(),
            shares: 1,
            sysfs: "/sys".into(),
        }
    }
}

/// An interface discovered on the node.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The device as published.
    pub device: Device,
    /// The link as reported by the kernel.
    pub link: Link,
    /// Its identity.
    pub identity: Identity,
    /// The interface's addresses.
    pub addresses: Vec<IpNet>,
    /// Whether a default route of the node uses the interface.
    pub uplink: bool,
    /// The sysfs directory of its hardware.
    pub hardware: Option<PathBuf>,
}

/// Discovers the selected interfaces of the node.
///
/// # Errors
/// A netlink query failed.
pub fn discover(selection: &Selection) -> io::Result<Vec<Found>> {
    let mut node = Netlink::here()?;
    let (links, addresses) = (node.links()?, node.addresses()?);
    let uplinks = node.uplinks()?;
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    // The device is that of the hardware's own interface, not of one on top of it that a pod created there.
    let (stacked, own): (Vec<&Link>, Vec<&Link>) = links
        .iter()
        .partition(|it| it.hardware.is_some() && it.lower.is_some());
    for link in stacked.into_iter().chain(own) {
        if !is_selected(selection, link) {
            continue;
        }
        let on_link = addresses.iter().filter(|it| it.link == link.index);
        let on_link = on_link.filter_map(|it| it.address.network()).collect();
        let uplink = uplinks.iter().any(|it| it.is_main && it.link == link.index);
        let one = describe(selection, link, &links, on_link, uplink);
        found.insert(one.device.name.clone(), one);
    }
    Ok(found.into_values().collect())
}

fn is_selected(selection: &Selection, link: &Link) -> bool {
    if link.name == "lo" {
        return false;
    }
    match selection.patterns.is_empty() {
        true => link.hardware.is_some() || matches!(link.kind.as_deref(), Some("bond" | "vlan")),
        false => selection
            .patterns
            .iter()
            .any(|pattern| matches(pattern.as_bytes(), link.name.as_bytes())),
    }
}

/// Whether a name matches a pattern with `*`. Both are short.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|at| matches(rest, &name[at..])),
        Some((first, rest)) => name.first() == Some(first) && matches(rest, &name[1..]),
    }
}

/// Joins values with commas, as many as fit into an attribute.
fn list(values: impl Iterator<Item = String>) -> String {
    let mut all = String::new();
    for value in values {
        let comma = usize::from(!all.is_empty());
        if all.len() + comma + value.len() > TEXT {
            break;
        }
        if comma == 1 {
            all.push(',');
        }
        all.push_str(&value);
    }
    all
}

fn describe(
    selection: &Selection,
    link: &Link,
    links: &[Link],
    addresses: Vec<IpNet>,
    uplink: bool,
) -> Found {
    let class = selection.sysfs.join("class/net").join(&link.name);
    let hardware = link.hardware.as_ref().map(|(name, bus)| {
        selection
            .sysfs
            .join("bus")
            .join(bus)
            .join("devices")
            .join(name)
    });
    let pci = pci_address(link, hardware.as_deref());
    let read = |file: &str| -> Option<i64> {
        let content = fs::read_to_string(class.join(file)).ok()?;
        content.trim().parse().ok()
    };
    let mut all = BTreeMap::new();
    let mut put = |name: &str, value: DeviceAttribute| all.insert(name.to_owned(), value);
    put("dra.net/ifName", text(&link.name));
    put(
        "dra.net/type",
        text(link.kind.as_deref().unwrap_or("device")),
    );
    put("dra.net/encapsulation", text(&link.encapsulation));
    put("dra.net/state", text(&link.state));
    put("dra.net/mtu", number(link.mtu.into()));
    put("dra.net/mac", text(mac_text(&link.mac)));
    put("dra.net/virtual", flag(link.hardware.is_none()));
    let alias: String = link.alias.chars().take(TEXT / 4).collect();
    put("dra.net/alias", text(alias));
    for (name, six) in [("dra.net/ipv4", false), ("dra.net/ipv6", true)] {
        let family = addresses.iter().filter(|it| it.addr().is_ipv6() == six);
        let family = list(family.map(ToString::to_string));
        if !family.is_empty() {
            put(name, text(family));
        }
    }
    let functions = read("device/sriov_totalvfs").unwrap_or(0);
    put("dra.net/sriov", flag(functions > 0));
    if functions > 0 {
        put(
            "dra.net/sriovVfs",
            number(read("device/sriov_numvfs").unwrap_or(0)),
        );
    }
    let rdma = fs::read_dir(class.join("device/infiniband"));
    let rdma = rdma.into_iter().flatten().flatten().next();
    put("dra.net/rdma", flag(rdma.is_some()));
    if let Some(device) = rdma.and_then(|entry| entry.file_name().into_string().ok()) {
        put("dra.net/rdmaDevice", text(device));
    }
    if let Some(address) = &pci {
        let sysfs = Sysfs::new(&selection.sysfs);
        put("dra.net/pciAddress", text(address));
        if let Ok(value) = attributes::pci_bus_id(address) {
            put(attributes::PCI_BUS_ID, value);
        }
        if let Ok(value) = sysfs.pcie_root(address) {
            put(attributes::PCIE_ROOT, value);
        }
        if let Ok(Some(value)) = sysfs.numa_node(address) {
            put("dra.net/numaNode", value.clone());
            put(attributes::NUMA_NODE, value);
        }
    }
    // Attributes that DRANET does not define.
    if let Some(speed) = read("speed").filter(|speed| *speed > 0) {
        put("speed", number(speed));
    }
    put("uplink", flag(uplink));
    put("sriovVf", flag(class.join("device/physfn").exists()));
    let mut subnets: Vec<IpNet> = addresses.iter().map(IpNet::trunc).collect();
    subnets.sort_unstable();
    subnets.dedup();
    if !subnets.is_empty() {
        put(
            "subnets",
            text(list(subnets.iter().map(ToString::to_string))),
        );
    }
    let mut device = Device {
        name: device_name(&link.name, pci.as_deref()),
        attributes: Some(all),
        ..Device::default()
    };
    if selection.shares > 1 {
        share(&mut device, selection.shares);
    }
    Found {
        device,
        addresses,
        uplink,
        hardware,
        identity: Identity::of(link, links),
        link: link.clone(),
    }
}

/// Allows multiple allocations of a device.
fn share(device: &mut Device, shares: u32) {
    let quantity = |value: u32| Quantity(value.to_string());
    device.allow_multiple_allocations = Some(true);
    let capacity = DeviceCapacity {
        value: quantity(shares),
        request_policy: Some(CapacityRequestPolicy {
            default: Some(quantity(1)),
            valid_range: Some(CapacityRequestPolicyRange {
                min: quantity(1),
                max: Some(quantity(shares)),
                step: Some(quantity(1)),
            }),
            ..CapacityRequestPolicy::default()
        }),
    };
    device.capacity = Some(BTreeMap::from([(SHARES.to_owned(), capacity)]));
}

/// The PCI address of the hardware; for a virtio device, that of its parent device.
fn pci_address(link: &Link, hardware: Option<&Path>) -> Option<String> {
    let (name, bus) = link.hardware.as_ref()?;
    if bus == "pci" {
        return Some(name.clone());
    }
    let path = hardware?.canonicalize().ok()?;
    let parent = path.parent()?.file_name()?.to_str()?.to_owned();
    attributes::pci_bus_id(&parent).is_ok().then_some(parent)
}

/// The device name: derived from the PCI address, as interfaces can be renamed; otherwise from the interface name.
fn device_name(interface: &str, pci: Option<&str>) -> String {
    if let Some(address) = pci {
        return format!("pci-{}", address.replace([':', '.'], "-"));
    }
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let is_label = interface.bytes().all(allowed)
        && !interface.starts_with('-')
        && !interface.ends_with('-')
        // The prefix is reserved for the generated names below.
        && !interface.starts_with("net-");
    match is_label {
        true => interface.to_owned(),
        false => {
            let hex: String = interface
                .bytes()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!("net-{hex}")
        }
    }
}
