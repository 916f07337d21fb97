//! Names of claims, and devices that were prepared for them.

use std::collections::BTreeMap;

use allot_cdi::ContainerEdits;
use k8s_openapi::api::resource::v1::DeviceRequestAllocationResult;
use serde::{Deserialize, Serialize};

use crate::metadata::DeviceMetadata;

/// Identifies a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimRef {
    /// The namespace of the claim, and of the pods that use it.
    pub namespace: String,
    /// The name of the claim in its namespace.
    pub name: String,
    /// UID: a claim of the same name created later is another claim.
    pub uid: String,
}

impl std::fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The request of a result: `gpu` for the subrequest `gpu/large`.
pub fn base_request(request: &str) -> &str {
    request.split_once('/').map_or(request, |(base, _)| base)
}

/// A device that is ready for use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PreparedDevice {
    pub(crate) requests: Vec<String>,
    pub(crate) pool: String,
    pub(crate) device: String,
    pub(crate) share_id: Option<String>,
    pub(crate) cdi_ids: Vec<String>,
    pub(crate) edits: Option<ContainerEdits>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metadata: Option<DeviceMetadata>,
}

impl PreparedDevice {
    /// The device of an allocation result.
    pub fn from_result(result: &DeviceRequestAllocationResult) -> Self {
        Self {
            requests: vec![result.request.clone()],
            pool: result.pool.clone(),
            device: result.device.clone(),
            share_id: result.share_id.clone(),
            ..Self::default()
        }
    }

    /// The name of the pool that the device is in, as in the allocation result.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// The name of the device in its pool.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The share of a device that several claims use at the same time (KEP-5075).
    pub fn share_id(&self) -> Option<&str> {
        self.share_id.as_deref()
    }

    /// The requests that the device was allocated for; `request/alternative` for one of a prioritized list.
    pub fn requests(&self) -> &[String] {
        &self.requests
    }

    /// What containers that use the device need. The SDK writes the CDI file; needs [`crate::Builder::cdi_kind`].
    #[must_use]
    pub fn edits(mut self, edits: ContainerEdits) -> Self {
        self.edits = Some(edits);
        self
    }

    /// An annotation of the device in the CDI file, with [`PreparedDevice::edits`]: for container runtimes and node agents
    /// that know it.
    #[must_use]
    pub fn cdi_annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    /// Metadata of the device for containers; needs [`crate::Builder::device_metadata`]. Without it the file only
    /// identifies the device, until [`crate::Plugin::update_metadata`] adds more.
    #[must_use]
    pub fn metadata(mut self, metadata: DeviceMetadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// A CDI device that is defined elsewhere, `vendor/class=name`.
    #[must_use]
    pub fn cdi_id(mut self, id: impl Into<String>) -> Self {
        self.cdi_ids.push(id.into());
        self
    }
}
