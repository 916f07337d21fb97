//! Device status in claims: whether each interface is in the pod, with its name and addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use allot_driver::{AccessError, ClaimRef, Controls};
use jiff::Timestamp;
use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, NetworkDeviceData};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::netlink::mac_text;
use super::parameters::Mode;
use super::plan::{Outcome, Plan, Planned, Plans};

/// Condition type that reports whether the interface is attached.
pub const READY: &str = "Ready";
/// Delay before a failed update is retried.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// Maximum attempts for one update.
const ATTEMPTS: u32 = 30;

/// Claims with pending status updates, without duplicates.
#[derive(Default)]
pub(super) struct News {
    claims: Mutex<BTreeSet<ClaimRef>>,
    heard: Notify,
}

impl News {
    pub(super) fn tell(&self, claim: ClaimRef) {
        self.claims.lock().insert(claim);
        self.heard.notify_one();
    }
}

/// Updates the status of claims with pending updates. Never returns.
pub(super) async fn keep(controls: Controls, plans: Plans, news: Arc<News>) {
    let mut waiting: BTreeMap<ClaimRef, u32> = BTreeMap::new();
    loop {
        let again = async {
            match waiting.is_empty() {
                true => std::future::pending().await,
                false => tokio::time::sleep(TRY_AGAIN).await,
            }
        };
        tokio::select! {
            () = news.heard.notified() => {}
            () = again => {}
        }
        let heard = std::mem::take(&mut *news.claims.lock());
        waiting.extend(heard.into_iter().map(|claim| (claim, 0)));
        let mut left = BTreeMap::new();
        for (claim, attempts) in std::mem::take(&mut waiting) {
            match tell(&controls, &plans, &claim).await {
                Ok(()) => {}
                Err(error) if is_over(&error) => {
                    tracing::debug!(%claim, %error, "nothing to say about it any more");
                }
                Err(error) => {
                    tracing::warn!(%claim, %error, "the status of the claim is not written");
                    if attempts < ATTEMPTS {
                        left.insert(claim, attempts + 1);
                    }
                }
            }
        }
        waiting = left;
    }
}

/// Whether the claim no longer exists, was replaced or is no longer allocated.
fn is_over(error: &AccessError) -> bool {
    matches!(error, AccessError::Kube(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422))
}

async fn tell(controls: &Controls, plans: &Plans, claim: &ClaimRef) -> Result<(), AccessError> {
    let plan = plans.read(&claim.uid).unwrap_or_else(|error| {
        tracing::warn!(%claim, %error, "the plan can not be read");
        None
    });
    let devices = plan.iter().flat_map(|plan| of_plan(plans, plan));
    let devices: Vec<AllocatedDeviceStatus> = devices.collect();
    controls.set_device_status(claim, devices).await
}

fn of_plan<'a>(
    plans: &'a Plans,
    plan: &'a Plan,
) -> impl Iterator<Item = AllocatedDeviceStatus> + 'a {
    let uid = &plan.claim.uid;
    plan.interfaces.iter().map(move |planned| {
        let outcome = plans.outcome(uid, &planned.key).unwrap_or_default();
        status(planned, uid, outcome)
    })
}

/// Builds the status of a device.
fn status(planned: &Planned, uid: &str, outcome: Option<Outcome>) -> AllocatedDeviceStatus {
    let (is_ready, reason, message) = match &outcome {
        None => (
            false,
            "Prepared",
            "the interface is made when the first container of the pod is".to_owned(),
        ),
        Some(Outcome {
            error: Some(error), ..
        }) => (false, "AttachFailed", error.clone()),
        Some(_) => (
            true,
            "Attached",
            "the interface is in the network of the pod".to_owned(),
        ),
    };
    let at = outcome.as_ref().map_or_else(Timestamp::now, |it| it.at);
    let mut network = NetworkDeviceData {
        ips: Some(planned.addresses.iter().map(ToString::to_string).collect()),
        interface_name: planned.config.interface_name.clone(),
        hardware_address: Some(match planned.config.mode {
            Mode::Macvlan => mac_text(&planned.mac(uid)),
            _ => planned.parent_mac.clone(),
        }),
    };
    if let Some(outcome) = outcome.filter(|it| it.error.is_none()) {
        network.interface_name = Some(outcome.interface_name);
        network.hardware_address = Some(outcome.hardware_address);
        network.ips = Some(outcome.ips);
    }
    AllocatedDeviceStatus {
        pool: planned.pool.clone(),
        device: planned.device.clone(),
        share_id: planned.share_id.clone(),
        conditions: Some(vec![Condition {
            type_: READY.to_owned(),
            status: if is_ready { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: Time(at),
            observed_generation: None,
        }]),
        network_data: Some(network),
        ..AllocatedDeviceStatus::default()
    }
}
