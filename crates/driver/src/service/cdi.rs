//! CDI files of prepared claims.

use std::path::PathBuf;

use allot_cdi::{ContainerEdits, Device as CdiDevice, Spec};

use crate::checkpoint::Entry;
use crate::claim::{ClaimRef, PreparedDevice};

/// Directory and kind of CDI devices.
#[derive(Debug, Clone)]
pub(crate) struct Cdi {
    /// `vendor/class`.
    pub(crate) kind: String,
    pub(crate) directory: PathBuf,
    /// Edits that every container with a device of this driver gets, as a device named `common`.
    pub(crate) common: ContainerEdits,
}

const COMMON: &str = "common";

impl Cdi {
    pub(super) fn file(&self, id: &str) -> PathBuf {
        self.directory
            .join(format!("{}_{id}.json", self.kind.replace('/', "-")))
    }

    /// Writes the common devices of the driver.
    pub(crate) fn write_common(&self) -> Result<(), allot_cdi::Error> {
        if self.common.is_empty() {
            return Ok(());
        }
        let device = CdiDevice {
            name: COMMON.into(),
            edits: self.common.clone(),
            ..CdiDevice::default()
        };
        Spec::new(&self.kind, vec![device]).write(&self.file(COMMON))
    }

    fn device_name(claim: &ClaimRef, device: &PreparedDevice) -> String {
        match &device.share_id {
            Some(share) => format!("{}-{}-{share}", claim.uid, device.device),
            None => format!("{}-{}", claim.uid, device.device),
        }
    }

    /// The file of the common devices of the driver.
    pub(crate) fn common_file(&self) -> PathBuf {
        self.file(COMMON)
    }

    /// Whether the common devices are missing: the directory may have been emptied since.
    pub(super) fn lacks_common(&self) -> bool {
        !self.common.is_empty() && !self.file(COMMON).exists()
    }

    /// Whether the file of a claim is missing.
    pub(super) fn lacks(&self, entry: &Entry) -> bool {
        let edited = entry.devices.iter().any(|device| device.edits.is_some());
        edited && !self.file(&entry.claim.uid).exists()
    }

    /// Writes the file of a claim.
    pub(super) fn write(&self, entry: &Entry) -> Result<(), allot_cdi::Error> {
        let mut devices: Vec<CdiDevice> = Vec::new();
        for prepared in &entry.devices {
            let Some(edits) = &prepared.edits else {
                continue;
            };
            let name = Self::device_name(&entry.claim, prepared);
            // A device that satisfies several requests is one CDI device.
            if !devices.iter().any(|device| device.name == name) {
                devices.push(CdiDevice {
                    name,
                    annotations: prepared.annotations.clone(),
                    edits: edits.clone(),
                });
            }
        }
        if devices.is_empty() {
            return Ok(());
        }
        Spec::new(&self.kind, devices).write(&self.file(&entry.claim.uid))
    }

    /// The device's own ID is first: a kubelet uses the first name in the pod's status.
    pub(super) fn ids(&self, claim: &ClaimRef, device: &PreparedDevice) -> Vec<String> {
        let mut ids = Vec::new();
        if device.edits.is_some() {
            let name = Self::device_name(claim, device);
            ids.push(format!("{}={name}", self.kind));
            if !self.common.is_empty() {
                ids.push(format!("{}={COMMON}", self.kind));
            }
        }
        ids.extend(device.cdi_ids.iter().cloned());
        ids
    }
}
