//! The result of preparing a claim, and what the driver receives of it later.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::claim::{ClaimRef, PreparedDevice};
use crate::error::Failure;

#[cfg(test)]
mod tests;

/// The largest state of one claim, in bytes of JSON. The whole checkpoint is written with every change, so the size per
/// claim is limited; store large data in files of the driver, named in the state.
pub const MAX_STATE_BYTES: usize = 64 * 1024;

/// Whether the machine was booted since the checkpoint was written, for [`crate::Driver::restore`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boot {
    /// The same boot: partitions, mounts and network interfaces still exist.
    Same,
    /// Another boot: state in the kernel or on temporary file systems is lost.
    Changed,
    /// The checkpoint has no boot ID: it is new, or an earlier release wrote it.
    Unknown,
}

/// The result of [`crate::Driver::prepare`]: the devices, and the driver's own state of the claim.
///
/// A driver without state collects its devices into it: `devices.collect()`, or `Ok(devices.into())` for a vector.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prepared {
    pub(crate) devices: Vec<PreparedDevice>,
    pub(crate) state: Option<Value>,
}

impl Prepared {
    /// Keeps `state` in the checkpoint, for [`PreparedClaim::state`]. It replaces what [`crate::Claim::save_state`] saved.
    ///
    /// # Errors
    /// The state is not representable in JSON, or larger than [`MAX_STATE_BYTES`].
    pub fn with_state(mut self, state: &impl Serialize) -> Result<Self, Failure> {
        self.state = Some(encode(state)?);
        Ok(self)
    }
}

impl From<Vec<PreparedDevice>> for Prepared {
    fn from(devices: Vec<PreparedDevice>) -> Self {
        Self {
            devices,
            state: None,
        }
    }
}

impl FromIterator<PreparedDevice> for Prepared {
    fn from_iter<I: IntoIterator<Item = PreparedDevice>>(devices: I) -> Self {
        Vec::from_iter(devices).into()
    }
}

/// A claim as the checkpoint has it: what [`crate::Driver::prepare`] returned, or saved before it was interrupted.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedClaim {
    pub(crate) reference: ClaimRef,
    pub(crate) devices: Vec<PreparedDevice>,
    pub(crate) state: Option<State>,
    pub(crate) version: u32,
    pub(crate) complete: bool,
}

impl PreparedClaim {
    /// Namespace, name and UID of the claim.
    pub fn reference(&self) -> &ClaimRef {
        &self.reference
    }

    /// The devices that `prepare` returned; none when it never succeeded, or when the checkpoint was lost.
    pub fn devices(&self) -> &[PreparedDevice] {
        &self.devices
    }

    /// Whether `prepare` succeeded, and `unprepare` was not called since. Otherwise parts of the work may have been done.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The driver's state of the claim; `None` when there is none.
    ///
    /// # Errors
    /// The state is of another [`crate::Driver::STATE_VERSION`] and could not be migrated, or it has another shape.
    pub fn state<T: DeserializeOwned>(&self) -> Result<Option<T>, Failure> {
        decode(self.state.as_ref(), self.version)
    }
}

impl std::fmt::Display for PreparedClaim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.reference.fmt(f)
    }
}

/// The state of a claim in the checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    /// [`crate::Driver::STATE_VERSION`] of the driver that wrote it.
    pub(crate) version: u32,
    pub(crate) value: Value,
}

pub(crate) fn encode(state: &impl Serialize) -> Result<Value, Failure> {
    let value = serde_json::to_value(state).map_err(|error| format!("encode state: {error}"))?;
    let size = value.to_string().len();
    if size > MAX_STATE_BYTES {
        return Err(format!("state of {size} bytes: at most {MAX_STATE_BYTES} are kept").into());
    }
    Ok(value)
}

pub(crate) fn decode<T: DeserializeOwned>(
    state: Option<&State>,
    version: u32,
) -> Result<Option<T>, Failure> {
    let Some(state) = state else { return Ok(None) };
    if state.version != version {
        return Err(format!(
            "state has version {}, this driver reads version {version}",
            state.version
        )
        .into());
    }
    let value = T::deserialize(&state.value).map_err(|error| format!("decode state: {error}"))?;
    Ok(Some(value))
}
