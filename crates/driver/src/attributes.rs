//! Standard device attributes: names with the same meaning for every driver, so that a claim can request a GPU and a
//! network card below the same PCIe root (`matchAttribute: resource.kubernetes.io/pcieRoot`); and the sources of their
//! values.
//!
//! ```no_run
//! use allot_driver::attributes::{self, Sysfs};
//! use k8s_openapi::api::resource::v1::Device;
//!
//! let (sysfs, address) = (Sysfs::default(), "0000:3b:00.0");
//! let mut device = Device { name: "gpu-0".into(), ..Default::default() };
//! let attributes = device.attributes.get_or_insert_default();
//! attributes.insert(attributes::PCI_BUS_ID.into(), attributes::pci_bus_id(address)?);
//! attributes.insert(attributes::PCIE_ROOT.into(), sysfs.pcie_root(address)?);
//! // A device without NUMA affinity has no such attribute.
//! if let Some(node) = sysfs.numa_node(address)? {
//!     attributes.insert(attributes::NUMA_NODE.into(), node);
//! }
//! # Ok::<(), attributes::Error>(())
//! ```

use std::path::{Path, PathBuf};

use k8s_openapi::api::resource::v1::DeviceAttribute;

#[cfg(test)]
mod tests;

/// PCIe root complex, such as `pci0000:00`.
pub const PCIE_ROOT: &str = "resource.kubernetes.io/pcieRoot";
/// Address of a PCI device, such as `0000:3b:00.0`.
pub const PCI_BUS_ID: &str = "resource.kubernetes.io/pciBusID";
/// Number of the NUMA node that a device belongs to; standardised since Kubernetes 1.37, usable as an attribute in
/// every release.
pub const NUMA_NODE: &str = "resource.kubernetes.io/numaNode";

/// Why a device has no such attribute.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No address at all.
    #[error("PCI Bus ID cannot be empty")]
    Empty,
    /// Not of the form `0123:45:1e.7`, in lower case.
    #[error("invalid PCI Bus ID format: {0}")]
    Format(String),
    /// The machine has no such device, or does not report it.
    #[error("failed to resolve {what} for PCI Bus ID {address}: {path}: {source}", path = .path.display())]
    Io {
        /// The name of the value that was read.
        what: &'static str,
        /// The PCI bus ID of the device.
        address: String,
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The content of a file is unexpected.
    #[error("failed to resolve {what} for PCI Bus ID {address}: {reason}")]
    Content {
        /// The name of the value that was read.
        what: &'static str,
        /// The PCI bus ID of the device.
        address: String,
        /// The reason.
        reason: String,
    },
}

/// The value of [`PCI_BUS_ID`].
///
/// # Errors
/// An address that is not `domain:bus:device.function` in lower case.
pub fn pci_bus_id(address: &str) -> Result<DeviceAttribute, Error> {
    check_address(address)?;
    Ok(text(address))
}

/// The kernel's file system of devices; `/sys` by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysfs {
    root: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Self {
        Self::new("/sys")
    }
}

impl Sysfs {
    /// Another directory, such as a mount of the host's `/sys` in the driver's container, or a model in a test.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The value of [`PCIE_ROOT`] for the device with this PCI address.
    ///
    /// # Errors
    /// A malformed address; a device that does not exist, or is not below a PCI root.
    pub fn pcie_root(&self, address: &str) -> Result<DeviceAttribute, Error> {
        const WHAT: &str = "PCIe Root Complex";
        check_address(address)?;
        let bus = Path::new("bus/pci/devices");
        let link = self.root.join(bus).join(address);
        let target = std::fs::read_link(&link).map_err(|source| Error::Io {
            what: WHAT,
            address: address.to_owned(),
            path: link,
            source,
        })?;
        // A relative link is relative to its directory: bus/pci/devices/../../../devices/pci0000:00/…/0000:3b:00.0
        let target = match target.is_absolute() {
            true => target,
            false => clean(&bus.join(target)),
        };
        let invalid = |rule: String| Error::Content {
            what: WHAT,
            address: address.to_owned(),
            reason: format!(
                "symlink target for PCI Bus ID {address} is invalid: it must {rule}: {}",
                target.display()
            ),
        };
        let root = target
            .strip_prefix("devices")
            .ok()
            .and_then(|path| path.iter().next()?.to_str())
            .filter(|root| root.starts_with("pci"))
            .ok_or_else(|| invalid("start with devices/pci".into()))?;
        if target.file_name() != Some(address.as_ref()) {
            return Err(invalid(format!("end with {address}")));
        }
        Ok(text(root))
    }

    /// The value of [`NUMA_NODE`] for the device with this PCI address; `None` for a device that is near to no node in
    /// particular, which must not have the attribute: it would match every other such device.
    ///
    /// # Errors
    /// A malformed address; a device that does not exist.
    pub fn numa_node(&self, address: &str) -> Result<Option<DeviceAttribute>, Error> {
        const WHAT: &str = "NUMA node";
        check_address(address)?;
        let path = self
            .root
            .join("bus/pci/devices")
            .join(address)
            .join("numa_node");
        let content = std::fs::read_to_string(&path).map_err(|source| Error::Io {
            what: WHAT,
            address: address.to_owned(),
            path,
            source,
        })?;
        let node: i64 = content.trim().parse().map_err(|_| Error::Content {
            what: WHAT,
            address: address.to_owned(),
            reason: format!("{:?} is not a number", content.trim()),
        })?;
        Ok((node >= 0).then(|| number(node)))
    }
}

/// A string attribute; the API allows 64 characters.
pub fn text(value: impl Into<String>) -> DeviceAttribute {
    DeviceAttribute {
        string: Some(value.into()),
        ..DeviceAttribute::default()
    }
}

/// An integer attribute.
pub fn number(value: i64) -> DeviceAttribute {
    DeviceAttribute {
        int: Some(value),
        ..DeviceAttribute::default()
    }
}

/// A boolean attribute.
pub fn flag(value: bool) -> DeviceAttribute {
    DeviceAttribute {
        bool: Some(value),
        ..DeviceAttribute::default()
    }
}

/// A version attribute, such as `1.2.3`.
pub fn version(value: impl Into<String>) -> DeviceAttribute {
    DeviceAttribute {
        version: Some(value.into()),
        ..DeviceAttribute::default()
    }
}

/// `domain:bus:device.function`, hexadecimal in lower case.
fn check_address(address: &str) -> Result<(), Error> {
    const SHAPE: &[u8] = b"0000:00:00.0";
    if address.is_empty() {
        return Err(Error::Empty);
    }
    let fits = |(byte, shape): (u8, &u8)| match shape {
        b'0' => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        other => byte == *other,
    };
    if address.len() == SHAPE.len() && address.bytes().zip(SHAPE).all(fits) {
        Ok(())
    } else {
        Err(Error::Format(address.to_owned()))
    }
}

/// The path without `..`, computed without the file system.
fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                clean.pop();
            }
            part => clean.push(part),
        }
    }
    clean
}
