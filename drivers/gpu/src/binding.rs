//! Binding conditions (KEP-5007): pods are bound when the driver has reported that their devices are ready. Modelled
//! GPUs are ready immediately; a real driver would check the device, or prepare it if that takes long.

use allot_driver::ClaimRef;
use futures::TryStreamExt;
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};

use crate::{DRIVER_NAME, Gpus};

/// The condition that a pod waits for.
pub(crate) const CONDITION: &str = "BindingConditions";
/// The condition that causes the scheduler to release the allocation.
pub(crate) const FAILURE: &str = "BindingFailureConditions";

/// The conditions of a device that is allocated with binding conditions; `None` for other devices.
pub(crate) fn conditions(result: &DeviceRequestAllocationResult) -> Option<Vec<Condition>> {
    let wanted = result.binding_conditions.as_ref()?;
    let ready = wanted.iter().map(|type_| Condition {
        type_: type_.clone(),
        status: "True".to_owned(),
        reason: "Ready".to_owned(),
        message: "Device is ready".to_owned(),
        last_transition_time: Time(Timestamp::now()),
        observed_generation: None,
    });
    Some(ready.collect())
}

/// Reports every device of this node as ready as soon as it is allocated. Never returns.
pub(crate) async fn keep(client: Client, node: &str, gpus: &Gpus) {
    let claims: Api<ResourceClaim> = Api::all(client);
    let seen = watcher(claims, watcher::Config::default());
    let mut seen = std::pin::pin!(seen.default_backoff().applied_objects());
    loop {
        match seen.try_next().await {
            Ok(Some(claim)) if lacks(&claim, node) => {
                let reference = ClaimRef {
                    namespace: claim.namespace().unwrap_or_default(),
                    name: claim.name_any(),
                    uid: claim.uid().unwrap_or_default(),
                };
                let results = own(&claim, node);
                let devices = results.filter_map(|result| gpus.status_of(result));
                gpus.status.set(reference, devices.collect());
            }
            Ok(Some(_)) => {}
            Ok(None) => std::future::pending().await,
            // The watch retries after a backoff.
            Err(error) => tracing::warn!(%error, "claims can not be watched"),
        }
    }
}

/// The allocation results of a claim for devices of this node.
fn own<'a>(
    claim: &'a ResourceClaim,
    node: &'a str,
) -> impl Iterator<Item = &'a DeviceRequestAllocationResult> {
    let allocation = claim.status.as_ref().and_then(|it| it.allocation.as_ref());
    let devices = allocation.and_then(|it| it.devices.as_ref());
    let results = devices
        .into_iter()
        .flat_map(|it| it.results.iter().flatten());
    results.filter(move |it| it.driver == DRIVER_NAME && it.pool == node)
}

/// Whether a pod waits for a condition that has not been reported yet.
fn lacks(claim: &ResourceClaim, node: &str) -> bool {
    let statuses = claim.status.as_ref().and_then(|it| it.devices.as_ref());
    own(claim, node).any(|result| {
        let own = statuses.into_iter().flatten().filter(|it| {
            it.driver == result.driver
                && it.pool == result.pool
                && it.device == result.device
                && it.share_id == result.share_id
        });
        let said: Vec<&Condition> = own.flat_map(|it| it.conditions.iter().flatten()).collect();
        let is_said = |wanted: &String| {
            said.iter()
                .any(|it| it.type_ == *wanted && it.status == "True")
        };
        let mut wanted = result.binding_conditions.iter().flatten();
        wanted.any(|wanted| !is_said(wanted))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks whether the driver of a node has a condition to report for a claim.
    fn check(pool: &str, devices: serde_json::Value, expected: bool) {
        let text = devices.to_string();
        let claim: ResourceClaim = serde_json::from_value(json!({
            "metadata": {"name": "c"},
            "spec": {},
            "status": {
                "allocation": {"devices": {"results": [{
                    "request": "r", "driver": DRIVER_NAME, "pool": pool, "device": "gpu-0",
                    "bindingConditions": [CONDITION], "bindingFailureConditions": [FAILURE],
                }]}},
                "devices": devices,
            },
        }))
        .expect("a claim");
        assert_eq!(lacks(&claim, "n"), expected, "{pool} {text}");
    }

    #[test]
    fn what_was_said_is_not_said_again() {
        let said = |device: &str, status: &str| {
            json!([{"driver": DRIVER_NAME, "pool": "n", "device": device, "conditions": [{
                "type": CONDITION, "status": status, "reason": "Ready", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]}])
        };
        check("n", json!([]), true);
        check("other", json!([]), false);
        check("n", said("gpu-0", "True"), false);
        check("n", said("gpu-0", "False"), true);
        check("n", said("gpu-1", "True"), true);
    }
}
