//! Reports about devices, in the status of their claims.

use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, DeviceRequestAllocationResult};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize as _;

use super::{BindingConditions, Readiness, WaitingDevice, allocated_at, reported};
use crate::AccessError;
use crate::allocated::Claim;
use crate::api::is_missing;

/// How often a report is tried when others write the claim at the same time.
const ATTEMPTS: usize = 8;
/// Longest message of a condition that the API accepts, in bytes.
const MOST_MESSAGE: usize = 32 * 1024;

/// Why a report was not written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The device is not allocated any longer, or was allocated again: there is nothing to report.
    #[error("the allocation that the report is about no longer exists")]
    Gone,
    /// The API server did not answer, or refuses.
    #[error(transparent)]
    Access(#[from] AccessError),
}

/// What is said about a device.
#[derive(Clone, Copy)]
pub(super) enum Say<'a> {
    Is(&'a Readiness),
    /// Not ready yet, for this reason.
    Trouble(&'a str),
}

impl BindingConditions {
    /// Reports that a device is ready: its binding conditions become true, and its binding failure conditions go away.
    ///
    /// # Errors
    /// [`ReportError::Gone`] for a device that is no longer allocated as it was; the API server cannot be reached, or refuses.
    pub async fn ready(&self, device: &WaitingDevice) -> Result<(), ReportError> {
        self.report(device, Say::Is(&Readiness::Ready)).await
    }

    /// Reports that a device can not be made ready: its binding failure conditions become true and its binding conditions false. If
    /// this is responsible for no binding failure condition of the device, its pod waits until the scheduler's timeout. `reason` is one
    /// word in CamelCase.
    ///
    /// # Errors
    /// As of [`BindingConditions::ready`].
    pub async fn failed(
        &self,
        device: &WaitingDevice,
        reason: &str,
        message: &str,
    ) -> Result<(), ReportError> {
        let readiness = Readiness::failed(reason, message);
        self.report(device, Say::Is(&readiness)).await
    }

    pub(super) async fn report(
        &self,
        device: &WaitingDevice,
        say: Say<'_>,
    ) -> Result<(), ReportError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let current = match self.api.claim(device.claim.reference()).await {
                // Another one of its name, or not allocated.
                Err(AccessError::Claim(_)) => return Err(ReportError::Gone),
                Err(AccessError::Kube(error)) if is_missing(&error) => {
                    return Err(ReportError::Gone);
                }
                current => current?,
            };
            let is_anew = allocated_at(&current.allocation) != device.allocated_at();
            let mut results = self.results(&current.allocation);
            if is_anew || !results.any(|result| is_same(result, &device.result)) {
                return Err(ReportError::Gone);
            }
            let Some(devices) = self.statuses(&current, &device.result, say)? else {
                return Ok(());
            };
            let claim = device.claim.reference();
            let version = current.object["metadata"]["resourceVersion"].as_str();
            let written = self
                .api
                .apply_device_status(claim, &self.manager, version, devices);
            match written.await {
                Err(AccessError::Kube(kube::Error::Api(status)))
                    if status.code == 409 && attempt < ATTEMPTS => {}
                written => return Ok(written?),
            }
        }
    }

    /// The conditions of all devices that this is responsible for, with what is to be said about one of them; `None` if that is what
    /// they are. Server-side apply removes what is left out.
    fn statuses(
        &self,
        claim: &Claim,
        about: &DeviceRequestAllocationResult,
        say: Say<'_>,
    ) -> Result<Option<Vec<AllocatedDeviceStatus>>, AccessError> {
        let statuses = &claim.object["status"]["devices"];
        let statuses = Option::<Vec<AllocatedDeviceStatus>>::deserialize(statuses)?;
        let statuses = statuses.unwrap_or_default();
        let mut changed = false;
        let mut all: Vec<AllocatedDeviceStatus> = Vec::new();
        for (index, result) in self.results(&claim.allocation).enumerate() {
            let mut own: Vec<Condition> = reported(&statuses, result).to_vec();
            own.retain(|it| {
                self.wanted(result)
                    .chain(self.failures(result))
                    .any(|of| *of == it.type_)
            });
            if is_same(result, about) {
                let before = own.clone();
                self.say(&mut own, result, say);
                changed |= own != before;
            }
            // One device can be there for several requests, by admin access.
            let is_said = self
                .results(&claim.allocation)
                .take(index)
                .any(|it| is_same(it, result));
            if own.is_empty() || is_said {
                continue;
            }
            all.push(AllocatedDeviceStatus {
                driver: result.driver.clone(),
                pool: result.pool.clone(),
                device: result.device.clone(),
                share_id: result.share_id.clone(),
                conditions: Some(own),
                ..AllocatedDeviceStatus::default()
            });
        }
        Ok(changed.then_some(all))
    }

    /// Brings the conditions of a device into line with what is to be said.
    fn say(&self, own: &mut Vec<Condition>, result: &DeviceRequestAllocationResult, say: Say<'_>) {
        let (status, reason, message) = match say {
            Say::Is(Readiness::Ready) => ("True", "Ready", "the device is ready"),
            Say::Is(Readiness::Failed { reason, message }) => ("False", &**reason, &**message),
            Say::Trouble(message) => ("False", "NotReady", message),
        };
        for of in self.wanted(result) {
            set(own, of, status, reason, message);
        }
        match say {
            Say::Is(Readiness::Failed { .. }) => {
                for of in self.failures(result) {
                    set(own, of, "True", reason, message);
                }
            }
            _ => own.retain(|it| !self.failures(result).any(|of| *of == it.type_)),
        }
    }
}

/// Whether two allocation results of a claim are the same device of one driver, or the same share of it.
fn is_same(one: &DeviceRequestAllocationResult, other: &DeviceRequestAllocationResult) -> bool {
    one.pool == other.pool && one.device == other.device && one.share_id == other.share_id
}

/// Sets a condition; the time of its last transition stays while its status does.
fn set(conditions: &mut Vec<Condition>, of: &str, status: &str, reason: &str, message: &str) {
    let message = &message[..message.floor_char_boundary(MOST_MESSAGE)];
    let before = conditions.iter().find(|it| it.type_ == of);
    let since = before.filter(|it| it.status == status);
    let since = since.map_or_else(|| Time(now()), |it| it.last_transition_time.clone());
    let condition = Condition {
        type_: of.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since,
        observed_generation: None,
    };
    match conditions.iter_mut().find(|it| it.type_ == of) {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

/// Times of objects have whole seconds.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}
