//! The content of a spec file.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Error, bounded, name};

mod edits;
mod files;
#[cfg(test)]
mod tests;

pub use edits::{ContainerEdits, DeviceNode, HOOK_NAMES, Hook, IntelRdt, Mount, NetDevice};

/// Versions of the CDI specification that are understood.
pub const VERSIONS: &[&str] = &[
    "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0",
];

/// A spec file: devices of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// Version of the specification.
    pub cdi_version: String,
    /// `vendor/class`.
    pub kind: String,
    /// For users and tools; has no effect.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The devices that the spec defines; at least one.
    #[serde(default, deserialize_with = "bounded::list")]
    pub devices: Vec<Device>,
    /// Applied once when any of the devices is used.
    #[serde(
        default,
        rename = "containerEdits",
        skip_serializing_if = "ContainerEdits::is_empty"
    )]
    pub edits: ContainerEdits,
}

/// A device of a spec, with the edits of the containers that use it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Device {
    /// Name, unique in its kind.
    pub name: String,
    /// For users and tools; has no effect.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// What using the device changes.
    #[serde(default, rename = "containerEdits")]
    pub edits: ContainerEdits,
}

impl Spec {
    /// A spec of the given kind, with the lowest version that fits.
    pub fn new(kind: &str, devices: Vec<Device>) -> Self {
        let mut spec = Self {
            kind: kind.to_owned(),
            devices,
            ..Self::default()
        };
        spec.cdi_version = spec.minimum_version().to_owned();
        spec
    }

    /// The lowest version of the specification with all features of this spec.
    pub fn minimum_version(&self) -> &'static str {
        let annotated =
            !self.annotations.is_empty() || self.devices.iter().any(|d| !d.annotations.is_empty());
        let dotted = self
            .kind
            .split_once('/')
            .is_some_and(|(_, class)| class.contains('.'));
        let digit = self
            .devices
            .iter()
            .any(|d| d.name.starts_with(|c: char| c.is_ascii_digit()));
        let own = if annotated || dotted {
            3
        } else if digit {
            2
        } else {
            0
        };
        let edits = self
            .devices
            .iter()
            .map(|device| device.edits.version())
            .max()
            .unwrap_or(0);
        VERSIONS[own.max(edits).max(self.edits.version())]
    }

    /// Checks all rules: names, versions, edits.
    ///
    /// # Errors
    /// The first broken rule with its field.
    pub fn validate(&self) -> Result<(), Error> {
        let bad = |field: &str, reason: String| Error::Spec {
            field: field.to_owned(),
            reason,
        };
        let Some(version) = VERSIONS
            .iter()
            .position(|version| *version == self.cdi_version)
        else {
            return Err(bad(
                "cdiVersion",
                format!("unknown version {:?}", self.cdi_version),
            ));
        };
        let minimum = self.minimum_version();
        if VERSIONS[version..].first() < Some(&minimum) {
            return Err(bad(
                "cdiVersion",
                format!("the fields in use need at least {minimum}"),
            ));
        }
        let Some((vendor, class)) = self.kind.split_once('/') else {
            return Err(bad(
                "kind",
                format!("{:?} is not of the form vendor/class", self.kind),
            ));
        };
        name::check_vendor(vendor).map_err(|error| bad("kind", error.to_string()))?;
        name::check_class(class).map_err(|error| bad("kind", error.to_string()))?;
        if self.devices.is_empty() {
            return Err(bad("devices", "must not be empty".into()));
        }
        self.edits.validate("containerEdits")?;
        let mut names = BTreeSet::new();
        for (i, device) in self.devices.iter().enumerate() {
            name::check_device(&device.name)
                .map_err(|error| bad(&format!("devices[{i}].name"), error.to_string()))?;
            if !names.insert(&device.name) {
                return Err(bad(
                    &format!("devices[{i}].name"),
                    format!("{:?} is defined twice", device.name),
                ));
            }
            device
                .edits
                .validate(&format!("devices[{i}].containerEdits"))?;
        }
        Ok(())
    }
}
