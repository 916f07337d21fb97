//! An allocated claim, as a driver sees it while it prepares the claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceRequestAllocationResult,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::claim::{ClaimRef, base_request};
use crate::error::Failure;
use crate::journal::{Journal, NOT_PREPARING};

/// An allocated claim.
#[derive(Debug, Clone)]
pub struct Claim {
    pub(crate) reference: ClaimRef,
    pub(crate) allocation: AllocationResult,
    pub(crate) object: serde_json::Value,
    pub(crate) journal: Option<Journal>,
    /// Whether the driver looked where parameters are.
    pub(crate) read: ParametersRead,
}

/// Whether a driver has looked at the parameters of a claim; shared by the copies of the claim.
#[derive(Debug, Clone, Default)]
pub(crate) struct ParametersRead(Arc<AtomicBool>);

impl ParametersRead {
    fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Claim {
    /// Its name and UID.
    pub fn reference(&self) -> &ClaimRef {
        &self.reference
    }

    /// What the scheduler decided, for all drivers.
    pub fn allocation(&self) -> &AllocationResult {
        self.read.note();
        &self.allocation
    }

    /// The whole object as the API server returned it, in whichever version it serves.
    pub fn object(&self) -> &serde_json::Value {
        self.read.note();
        &self.object
    }

    /// Writes the driver's state of this claim into the checkpoint, before the driver does what it describes: create a
    /// partition, move an interface. It is on disk when the call returns. A later [`crate::Driver::prepare`] of the
    /// claim finds it in [`Claim::saved_state`], and [`crate::Driver::unprepare`] in [`crate::PreparedClaim::state`].
    ///
    /// # Errors
    /// The state is not representable in JSON or larger than [`crate::MAX_STATE_BYTES`], or the disk is full.
    pub async fn save_state(&self, state: &impl Serialize) -> Result<(), Failure> {
        let journal = self.journal.as_ref().ok_or(NOT_PREPARING)?;
        journal.save(&self.reference.uid, state).await
    }

    /// What [`Claim::save_state`] wrote last, in this call of `prepare` or in one that did not succeed.
    ///
    /// # Errors
    /// The state is of a version that could not be migrated, or has another shape.
    pub async fn saved_state<T: DeserializeOwned>(&self) -> Result<Option<T>, Failure> {
        let journal = self.journal.as_ref().ok_or(NOT_PREPARING)?;
        journal.saved(&self.reference.uid).await
    }

    /// The names of the pods that the claim is reserved for.
    pub fn pods(&self) -> impl Iterator<Item = &str> {
        let consumers = self.object["status"]["reservedFor"].as_array();
        let pods = consumers.into_iter().flatten().filter(|consumer| {
            let group = consumer["apiGroup"].as_str().unwrap_or_default();
            group.is_empty() && consumer["resource"] == "pods"
        });
        pods.filter_map(|pod| pod["name"].as_str())
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
    /// subrequests too.
    ///
    /// A claim with parameters for a driver that never asks for them is refused: they would have no effect.
    pub fn configs<'a>(
        &'a self,
        driver: &'a str,
        result: &'a DeviceRequestAllocationResult,
    ) -> impl Iterator<Item = &'a serde_json::Value> {
        self.read.note();
        self.parameters(driver, result)
    }

    /// Fails if the claim has parameters that the driver has not asked for.
    pub(crate) fn check_parameters(&self, driver: &str) -> Result<(), Failure> {
        let ignored = |result: &&_| self.parameters(driver, result).next().is_some();
        if self.read.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.results(driver).find(ignored) {
            Some(result) => Err(format!(
                "the parameters of request {} are not read by the driver {driver}: it takes none",
                result.request
            )
            .into()),
            None => Ok(()),
        }
    }

    fn parameters<'a>(
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
