//! Binding conditions (KEP-5007): devices that are made ready after they are allocated and before the pod is bound, such as one
//! that is attached to the node through a fabric, or programmed for minutes.
//!
//! A device with `bindingConditions` in its ResourceSlice keeps the pod from being bound until every one of them is true in
//! `status.devices` of the claim. No kubelet knows of the pod by then, so that [`crate::Driver::prepare`] comes too late for it: the
//! conditions are reported by a controller that watches claims. [`BindingConditions::run`] is that controller; the driver says in
//! [`Binder`] how a device is made ready.
//!
//! ```no_run
//! use allot_driver::binding::{Binder, BindingConditions, Readiness, WaitingDevice};
//! use allot_driver::{Failure, kube};
//!
//! struct Fabric;
//! # impl Fabric { async fn attach(&self, _: &str, _: &str) -> Result<bool, Failure> { Ok(true) } }
//!
//! impl Binder for Fabric {
//!     async fn make_ready(&self, device: &WaitingDevice) -> Result<Readiness, Failure> {
//!         let node = device.node().ok_or("the device is not for one node")?;
//!         match self.attach(&device.result().device, node).await? {
//!             true => Ok(Readiness::Ready),
//!             false => Ok(Readiness::failed("PortBroken", "the port of the node has no link")),
//!         }
//!     }
//! }
//!
//! # async fn example() -> Result<(), Failure> {
//! let client = kube::Client::try_default().await?;
//! BindingConditions::new(client, "fabric.example.com").run(Fabric).await;
//! # Ok(())
//! # }
//! ```
//!
//! Invariants:
//! - only conditions that the allocation names are written, only of devices of this driver, by server-side apply with a field manager
//!   of their own: the device status that [`crate::Plugin::set_device_status`] writes stays;
//! - what was reported before stays in every later report, also after a restart: it is read from the claim, and a report is refused
//!   when the claim has changed since;
//! - a report about an allocation that no longer exists is not written to its successor;
//! - nothing is written when nothing changes.
//!
//! It needs the rights to `get`, `list` and `watch` ResourceClaims and to `patch` `resourceclaims/status`; from Kubernetes 1.36 on
//! also the verb `arbitrary-node:patch` (`associated-node:patch` for one that runs on the node of the device) for the resource
//! `resourceclaims/driver` of the driver's name.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1::{
    AllocatedDeviceStatus, AllocationResult, DeviceRequestAllocationResult, ResourceClaim,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::{Client, ResourceExt as _};

use crate::allocated::Claim;
use crate::api::ResourceApi;
use crate::claim::ClaimRef;
use crate::error::Failure;

mod report;
mod run;
#[cfg(test)]
mod tests;

pub use report::ReportError;

/// How many devices are made ready at the same time by default.
const PARALLEL: usize = 32;

/// How a driver makes devices ready.
pub trait Binder: Send + Sync + 'static {
    /// Makes an allocated device ready for its pod, and returns when it is, or when it is known that it will not be.
    ///
    /// It may be called again for the same allocation, after an error or when the process was restarted: what has been done by then
    /// must not be in the way. The future is dropped when the device is no longer allocated, for example because the scheduler's
    /// timeout for binding conditions has passed.
    ///
    /// # Errors
    /// It is called again, after a second at first and a minute at last; until then the text is in the message of the binding
    /// conditions, where users see it.
    fn make_ready(
        &self,
        device: &WaitingDevice,
    ) -> impl Future<Output = Result<Readiness, Failure>> + Send;
}

/// Whether a device can be used by the pod that it was allocated for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// The pod can be bound.
    Ready,
    /// It cannot be made ready: the scheduler releases the allocation, and looks for other devices or nodes. It can choose this
    /// device again, unless the driver taints it or no longer publishes it.
    Failed {
        /// One word in CamelCase for programs.
        reason: String,
        /// For users.
        message: String,
    },
}

impl Readiness {
    /// The device cannot be made ready.
    pub fn failed(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Failed {
            reason: reason.into(),
            message: message.into(),
        }
    }
}

/// An allocated device whose pod waits for binding conditions.
#[derive(Debug, Clone)]
pub struct WaitingDevice {
    claim: Arc<Claim>,
    result: DeviceRequestAllocationResult,
}

impl WaitingDevice {
    /// The claim that it was allocated for, with the parameters for the device ([`Claim::configs`]) and the pods. State can not be
    /// saved with it.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Pool, name, share and request of the device, and the conditions that are waited for.
    pub fn result(&self) -> &DeviceRequestAllocationResult {
        &self.result
    }

    /// The node that the pod will be bound to: the one that the allocation is restricted to, as it always is for devices of a node, and
    /// for others when they have `bindsToNode`. `None` if several nodes are possible.
    pub fn node(&self) -> Option<&str> {
        self.claim
            .allocation
            .node_selector
            .as_ref()
            .and_then(only_node)
    }

    /// When it was allocated. The scheduler's timeout for binding conditions (`bindingTimeout`, ten minutes by default) counts from
    /// here.
    pub fn allocated_at(&self) -> Option<Timestamp> {
        allocated_at(&self.claim.allocation)
    }
}

fn allocated_at(allocation: &AllocationResult) -> Option<Timestamp> {
    Some(allocation.allocation_timestamp.as_ref()?.0)
}

/// The node that a selector names, if it is the only one that it selects.
fn only_node(selector: &NodeSelector) -> Option<&str> {
    let [term] = &selector.node_selector_terms[..] else {
        return None;
    };
    let mut fields = term.match_fields.iter().flatten();
    let named = fields.find(|field| field.key == "metadata.name" && field.operator == "In")?;
    match named.values.as_deref()? {
        [node] => Some(node),
        _ => None,
    }
}

/// Reports binding conditions of one driver's devices.
///
/// Several controllers can be responsible for different conditions of a device: then each has [`BindingConditions::conditions`] and a
/// [`BindingConditions::field_manager`] of its own. Two processes with the same options do not disturb each other's reports, but both
/// call their [`Binder`]; a Deployment has one replica and the strategy `Recreate`.
#[derive(Clone)]
pub struct BindingConditions {
    api: Arc<ResourceApi>,
    driver: String,
    manager: String,
    pool: Option<String>,
    conditions: Option<BTreeSet<String>>,
    parallel: usize,
}

impl std::fmt::Debug for BindingConditions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BindingConditions")
            .field("driver", &self.driver)
            .field("manager", &self.manager)
            .finish_non_exhaustive()
    }
}

impl BindingConditions {
    /// For all binding conditions of all devices of this driver. The field manager is `DRIVER/binding-conditions`.
    pub fn new(client: Client, driver_name: impl Into<String>) -> Self {
        let driver = driver_name.into();
        Self {
            api: Arc::new(ResourceApi::new(client)),
            manager: format!("{driver}/binding-conditions"),
            driver,
            pool: None,
            conditions: None,
            parallel: PARALLEL,
        }
    }

    /// Only for devices of this pool, for a controller that runs on each node.
    #[must_use]
    pub fn pool(mut self, pool: impl Into<String>) -> Self {
        self.pool = Some(pool.into());
        self
    }

    /// Only for conditions of these types, binding conditions as well as binding failure conditions.
    #[must_use]
    pub fn conditions<T: Into<String>>(mut self, types: impl IntoIterator<Item = T>) -> Self {
        self.conditions = Some(types.into_iter().map(Into::into).collect());
        self
    }

    /// The owner of the conditions in `metadata.managedFields`.
    #[must_use]
    pub fn field_manager(mut self, name: impl Into<String>) -> Self {
        self.manager = name.into();
        self
    }

    /// How many devices are made ready at the same time by [`BindingConditions::run`]; 32 by default. Those that were allocated first
    /// come first.
    #[must_use]
    pub fn parallel(mut self, devices: usize) -> Self {
        self.parallel = devices.max(1);
        self
    }

    /// The devices of a claim that wait for a report, for controllers with a watch of their own: a binding condition is not true, and
    /// no binding failure condition is.
    pub fn waiting(&self, claim: &ResourceClaim) -> Vec<WaitingDevice> {
        let status = claim.status.as_ref();
        let allocation = status.and_then(|status| status.allocation.as_ref());
        let Some(allocation) = allocation.filter(|_| claim.metadata.deletion_timestamp.is_none())
        else {
            return Vec::new();
        };
        let statuses = status.and_then(|status| status.devices.as_deref());
        let waits = |result: &&DeviceRequestAllocationResult| {
            self.pool.as_ref().is_none_or(|pool| *pool == result.pool)
                && self.waits(result, reported(statuses.unwrap_or_default(), result))
        };
        let waiting: Vec<_> = self.results(allocation).filter(waits).cloned().collect();
        if waiting.is_empty() {
            return Vec::new();
        }
        let claim = Arc::new(Claim {
            reference: ClaimRef {
                namespace: claim.namespace().unwrap_or_default(),
                name: claim.name_any(),
                uid: claim.uid().unwrap_or_default(),
            },
            allocation: allocation.clone(),
            object: serde_json::to_value(claim).unwrap_or_default(),
            journal: None,
            read: Default::default(),
        });
        let device = |result| WaitingDevice {
            claim: Arc::clone(&claim),
            result,
        };
        waiting.into_iter().map(device).collect()
    }

    /// The devices of this driver.
    fn results<'a>(
        &'a self,
        allocation: &'a AllocationResult,
    ) -> impl Iterator<Item = &'a DeviceRequestAllocationResult> {
        let devices = allocation.devices.as_ref();
        let results = devices.and_then(|devices| devices.results.as_deref());
        let results = results.unwrap_or_default().iter();
        results.filter(move |result| result.driver == self.driver)
    }

    /// The binding conditions of a device that this is responsible for.
    fn wanted<'a>(
        &'a self,
        result: &'a DeviceRequestAllocationResult,
    ) -> impl Iterator<Item = &'a String> {
        self.own(result.binding_conditions.as_deref())
    }

    /// The same of its binding failure conditions.
    fn failures<'a>(
        &'a self,
        result: &'a DeviceRequestAllocationResult,
    ) -> impl Iterator<Item = &'a String> {
        self.own(result.binding_failure_conditions.as_deref())
    }

    fn own<'a>(&'a self, types: Option<&'a [String]>) -> impl Iterator<Item = &'a String> {
        let types = types.unwrap_or_default().iter();
        types.filter(move |of| self.conditions.as_ref().is_none_or(|own| own.contains(*of)))
    }

    fn waits(&self, result: &DeviceRequestAllocationResult, reported: &[Condition]) -> bool {
        let is_true = |of: &String| find_true(reported, of).is_some();
        // Any failure condition ends the wait of the pod, of which controller it may be.
        let failures = result.binding_failure_conditions.as_deref();
        self.wanted(result).any(|of| !is_true(of))
            && !failures.unwrap_or_default().iter().any(is_true)
    }
}

/// What `status.devices` says about an allocated device.
pub(crate) fn reported<'a>(
    statuses: &'a [AllocatedDeviceStatus],
    result: &DeviceRequestAllocationResult,
) -> &'a [Condition] {
    let status = statuses.iter().find(|it| {
        it.driver == result.driver
            && it.pool == result.pool
            && it.device == result.device
            && it.share_id == result.share_id
    });
    status
        .and_then(|it| it.conditions.as_deref())
        .unwrap_or_default()
}

/// The condition of this type, if it is true.
pub(crate) fn find_true<'a>(reported: &'a [Condition], of: &str) -> Option<&'a Condition> {
    let mut reported = reported.iter();
    reported.find(|it| it.type_ == of && it.status == "True")
}
