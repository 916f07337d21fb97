//! Claims as drivers see them.

use allot_cdi::ContainerEdits;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceRequestAllocationResult,
};
use serde::{Deserialize, Serialize};

use crate::metadata::DeviceMetadata;

/// Which claim; all that is known when it is given back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID: a claim of the same name created later is another claim.
    pub uid: String,
}

impl std::fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An allocated claim.
#[derive(Debug, Clone)]
pub struct Claim {
    pub(crate) reference: ClaimRef,
    pub(crate) allocation: AllocationResult,
    pub(crate) object: serde_json::Value,
}

impl Claim {
    /// Its name and UID.
    pub fn reference(&self) -> &ClaimRef {
        &self.reference
    }

    /// What the scheduler decided, for all drivers.
    pub fn allocation(&self) -> &AllocationResult {
        &self.allocation
    }

    /// The whole object as the API server gave it, in whichever version it serves.
    pub fn object(&self) -> &serde_json::Value {
        &self.object
    }

    /// The allocated devices of one driver.
    pub fn results<'a>(
        &'a self,
        driver: &'a str,
    ) -> impl Iterator<Item = &'a DeviceRequestAllocationResult> {
        let devices = self.allocation.devices.as_ref();
        let results = devices
            .and_then(|devices| devices.results.as_deref())
            .unwrap_or_default();
        results.iter().filter(move |result| result.driver == driver)
    }

    /// The opaque parameters of one driver that apply to a device, in rising priority: those of the class come before
    /// those of the claim. A configuration without requests applies to all; one that names a request applies to its
    /// sub-requests too.
    pub fn configs<'a>(
        &'a self,
        driver: &'a str,
        result: &'a DeviceRequestAllocationResult,
    ) -> impl Iterator<Item = &'a serde_json::Value> {
        let devices = self.allocation.devices.as_ref();
        let configs = devices
            .and_then(|devices| devices.config.as_deref())
            .unwrap_or_default();
        let applies = move |config: &&DeviceAllocationConfiguration| {
            let requests = config.requests.as_deref().unwrap_or_default();
            let base = base_request(&result.request);
            requests.is_empty()
                || requests
                    .iter()
                    .any(|request| *request == result.request || request == base)
        };
        configs.iter().filter(applies).filter_map(move |config| {
            let opaque = config.opaque.as_ref()?;
            (opaque.driver == driver).then_some(&opaque.parameters.0)
        })
    }
}

/// The request a result belongs to: `gpu` for the sub-request `gpu/large`.
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

    /// What containers that use the device need. The SDK writes the CDI file; needs [`crate::Builder::cdi_kind`].
    #[must_use]
    pub fn edits(mut self, edits: ContainerEdits) -> Self {
        self.edits = Some(edits);
        self
    }

    /// What a container can read about the device; needs [`crate::Builder::device_metadata`]. Without it the container
    /// learns which device it is, until [`crate::Plugin::update_metadata`] tells more.
    #[must_use]
    pub fn metadata(mut self, metadata: DeviceMetadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// A CDI device that somebody else defines, `vendor/class=name`.
    #[must_use]
    pub fn cdi_id(mut self, id: impl Into<String>) -> Self {
        self.cdi_ids.push(id.into());
        self
    }
}
