//! What a scheduler does with a claim whose devices have binding conditions.

use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::jiff::{Timestamp, ToSpan as _};
use serde_json::{Value, json};

use super::objects::Part;
use super::{PATIENCE, TestClaim, TestError, TestNode, key};
use crate::ClaimRef;
use crate::binding::{Readiness, find_true, reported};

impl TestNode {
    /// The status of a claim that is allocated now. Each is some seconds after the one before: no two have the same time.
    pub(super) fn allocated(&self, claim: &TestClaim) -> Value {
        let number = i64::try_from(*self.objects.revisions().borrow()).unwrap_or_default();
        let now = Timestamp::now().as_second();
        let allocated = Timestamp::from_second(now).unwrap_or_default();
        let allocated = allocated.checked_add(number.seconds()).unwrap_or(allocated);
        claim.status(&self.driver, &self.environment.node_name, allocated)
    }

    /// Waits until the pod of a claim can be bound, or one of its devices has failed, by the conditions in the claim's status.
    ///
    /// # Errors
    /// Not in time, or the claim is gone.
    pub async fn readiness(&self, claim: &ClaimRef) -> Result<Readiness, TestError> {
        let mut revisions = self.objects.revisions();
        let mut waits_for = String::new();
        let wait = async {
            loop {
                revisions.borrow_and_update();
                match judge(&self.claim(claim)?) {
                    Ok(readiness) => return Ok(readiness),
                    Err(condition) => waits_for = condition,
                }
                if revisions.changed().await.is_err() {
                    // The sender is in `self`.
                    std::future::pending::<()>().await;
                }
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        waited.unwrap_or(Err(TestError::Timeout {
            what: "binding conditions",
            why: waits_for,
        }))
    }

    /// Deallocates a claim, as a scheduler does when one of its devices has failed.
    ///
    /// # Errors
    /// The claim does not exist.
    pub fn release(&self, claim: &ClaimRef) -> Result<(), TestError> {
        self.set_status(claim, json!({}))
    }

    /// Allocates devices to a claim that was released: other ones, or the same again.
    ///
    /// # Errors
    /// The claim does not exist, is allocated, or has other requests.
    pub fn allocate(&self, claim: &ClaimRef, devices: &TestClaim) -> Result<(), TestError> {
        self.set_status(claim, self.allocated(devices))
    }

    fn set_status(&self, claim: &ClaimRef, status: Value) -> Result<(), TestError> {
        let refused = |status: allot_apimachinery::Status| TestError::Api(status.message);
        let mut object = self.objects.get(&key(claim)).map_err(refused)?;
        // The API server keeps an allocation as it is: a scheduler clears it, and writes another one in a second update.
        object["status"] = status;
        let stored = self.objects.replace(&key(claim), object, Part::Status);
        stored.map_err(refused)?;
        Ok(())
    }
}

/// Whether the pod can be bound; the condition that it waits for otherwise.
fn judge(claim: &ResourceClaim) -> Result<Readiness, String> {
    let status = claim.status.as_ref();
    let allocation = status.and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    let results = devices.and_then(|devices| devices.results.as_deref());
    let results = results.ok_or("an allocation")?;
    let statuses = status.and_then(|status| status.devices.as_deref());
    let mut missing = None;
    for result in results {
        let reported = reported(statuses.unwrap_or_default(), result);
        let mut failures = result.binding_failure_conditions.iter().flatten();
        if let Some(failed) = failures.find_map(|of| find_true(reported, of)) {
            return Ok(Readiness::failed(&failed.reason, &failed.message));
        }
        let mut wanted = result.binding_conditions.iter().flatten();
        let open = wanted.find(|of| find_true(reported, of).is_none());
        missing = missing.or_else(|| Some(format!("{}: {}", result.device, open?)));
    }
    missing.map_or(Ok(Readiness::Ready), Err)
}
