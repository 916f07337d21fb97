//! The GPU example driver, `gpu.example.com`: modelled GPUs that exist only as attributes and environment variables. It
//! is an example of a driver on the `allot-driver` SDK, and provides devices for a local cluster.
//!
//! Invariants:
//! - devices of a node are a pure function of the node's name and their number: a restart publishes the same;
//! - attributes, capacities, parameters and environment are those of kubernetes-sigs/dra-example-driver;
//! - GPUs are healthy unless a user says otherwise with `allot hardware fail`.
//!
//! It must not depend on the node agent or the API server.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use allot_driver::binding::BindingConditions;
use allot_driver::webhook::Webhook;
use allot_driver::{
    Claim, ContainerEdits, DeviceMetadata, Driver, Error, Failure, KUBELET_TIMEOUT, Plugin,
    Prepared, PreparedClaim, PreparedDevice, Resources, StatusQueue,
};
use k8s_openapi::api::resource::v1::{
    AllocatedDeviceStatus, Device, DeviceRequestAllocationResult,
};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use tokio_util::sync::CancellationToken;

mod binding;
mod devices;
mod parameters;
#[cfg(test)]
mod tests;

pub use devices::{Profile, devices};
pub use parameters::GpuConfig;

/// Name of the driver and of its DeviceClass.
pub const DRIVER_NAME: &str = "gpu.example.com";

/// Kind of the CDI devices.
pub const CDI_KIND: &str = "k8s.gpu.example.com/gpu";

/// The options of the driver.
#[derive(Debug, Clone)]
pub struct Config {
    /// The name of the node that has the GPUs.
    pub node_name: String,
    /// The kubelet's root directory, with `plugins_registry` in it.
    pub kubelet_dir: PathBuf,
    /// Directory of the CDI files, which the node's runtime must read.
    pub cdi_dir: PathBuf,
    /// The number of GPUs of the node, and how they can be allocated.
    pub profile: Profile,
    /// Whether to write the model, UUID and driver version of each allocated GPU to the device status of its claim.
    pub device_status: bool,
    /// How long to wait for the kubelet's directory at the start.
    pub kubelet_timeout: Duration,
}

impl Config {
    /// Eight GPUs, CDI files in `<kubelet_dir>/cdi`.
    pub fn new(node_name: impl Into<String>, kubelet_dir: impl Into<PathBuf>) -> Self {
        let kubelet_dir = kubelet_dir.into();
        let cdi_dir = kubelet_dir.join("cdi");
        Self {
            node_name: node_name.into(),
            kubelet_dir,
            cdi_dir,
            profile: Profile::whole(8),
            device_status: false,
            kubelet_timeout: KUBELET_TIMEOUT,
        }
    }
}

/// Runs the driver until `shutdown`.
///
/// # Errors
/// When it cannot start, or one of its servers fails.
pub async fn run(
    client: kube::Client,
    config: Config,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    config.profile.check().map_err(Error::Config)?;
    let devices = config.profile.devices(&config.node_name);
    let pool = config.profile.pool(&config.node_name);
    let gpus = Gpus {
        devices: devices
            .into_iter()
            .map(|it| (it.name.clone(), it))
            .collect(),
        device_status: config.device_status,
        status: StatusQueue::default(),
    };
    let builder = Plugin::builder(DRIVER_NAME, gpus.clone())
        .client(client.clone())
        .node_name(&config.node_name)
        .kubelet_dir(&config.kubelet_dir)
        .cdi_dir(&config.cdi_dir)
        .cdi_kind(CDI_KIND)
        .device_metadata(true)
        .injected_failures(true)
        .cdi_common(ContainerEdits {
            env: vec![
                format!("KUBERNETES_NODE_NAME={}", config.node_name),
                format!("DRA_RESOURCE_DRIVER_NAME={DRIVER_NAME}"),
            ],
            ..ContainerEdits::default()
        })
        .kubelet_timeout(config.kubelet_timeout);
    let plugin = tokio::select! {
        started = builder.start() => started?,
        () = shutdown.cancelled() => return Ok(()),
    };
    plugin.publish(Resources::pool(&config.node_name, pool))?;
    let controls = plugin.controls();
    let status = gpus.status.clone();
    let bind = async {
        match config.profile.binding_conditions {
            true => {
                let own = BindingConditions::new(client, DRIVER_NAME).pool(&config.node_name);
                own.run(gpus).await;
            }
            false => std::future::pending().await,
        }
    };
    let stopped = async {
        tokio::select! {
            () = status.run(&controls) => {}
            () = bind => {}
            () = shutdown.cancelled() => {}
        }
    };
    plugin.wait_until(stopped).await
}

/// Adds the driver's parameters to a webhook.
#[must_use]
pub fn webhook(webhook: Webhook) -> Webhook {
    webhook.driver(DRIVER_NAME, GpuConfig::parse)
}

/// The environment variables of a container for its share of a GPU.
fn consumed(result: &DeviceRequestAllocationResult) -> Vec<String> {
    let name = parameters::variable(&result.device);
    let consumed = result.consumed_capacity.iter().flatten();
    consumed
        .filter(|(capacity, _)| ["memory", "compute"].contains(&capacity.as_str()))
        .map(|(capacity, amount)| format!("{name}_{}={}", capacity.to_uppercase(), amount.0))
        .collect()
}

/// The driver: preparing a GPU that does not exist needs no work.
#[derive(Debug, Clone)]
struct Gpus {
    devices: BTreeMap<String, Device>,
    /// Whether the identity of each device is part of its status.
    device_status: bool,
    /// Device statuses to write to claims.
    status: StatusQueue,
}

impl Gpus {
    /// The device status in a claim: the identity of the device, which remains available after the device is unpublished.
    fn status_of(&self, result: &DeviceRequestAllocationResult) -> Option<AllocatedDeviceStatus> {
        let attributes = self
            .devices
            .get(&result.device)?
            .attributes
            .iter()
            .flatten();
        let told = attributes
            .filter(|(name, _)| ["uuid", "model", "driverVersion"].contains(&name.as_str()));
        let data: BTreeMap<_, _> = told.collect();
        Some(AllocatedDeviceStatus {
            pool: result.pool.clone(),
            device: result.device.clone(),
            share_id: result.share_id.clone(),
            data: serde_json::to_value(data).ok().map(RawExtension),
            ..AllocatedDeviceStatus::default()
        })
    }
}

impl Driver for Gpus {
    async fn prepare(&self, claim: &Claim) -> Result<Prepared, Failure> {
        let mut prepared = Vec::new();
        let mut statuses = Vec::new();
        let mut results = claim.results(DRIVER_NAME);
        let administers = results.any(|result| result.admin_access == Some(true));
        for result in claim.results(DRIVER_NAME) {
            let device = self.devices.get(&result.device);
            let device = device
                .ok_or_else(|| format!("requested GPU is not allocatable: {}", result.device))?;
            let attributes = device.attributes.clone().unwrap_or_default();
            statuses.extend(self.status_of(result));
            let metadata = DeviceMetadata {
                attributes,
                ..Default::default()
            };
            // The last configuration has the highest priority.
            let config = match claim.configs(DRIVER_NAME, result).last() {
                Some(parameters) => GpuConfig::parse(parameters)?,
                None => GpuConfig::default(),
            };
            let mut env = config.environment(&result.device);
            env.extend(consumed(result));
            env.push(format!(
                "{}_RESOURCE_CLAIM={}",
                parameters::variable(&result.device),
                claim.reference().uid
            ));
            env.push(format!("DRA_ADMIN_ACCESS={administers}"));
            let edits = ContainerEdits {
                env,
                ..Default::default()
            };
            let device = PreparedDevice::from_result(result).edits(edits);
            prepared.push(device.metadata(metadata));
        }
        if self.device_status {
            // The status is informational: preparing a claim does not wait for a slow API server.
            self.status.set(claim.reference().clone(), statuses);
        }
        Ok(prepared.into())
    }

    async fn unprepare(&self, _: &PreparedClaim) -> Result<(), Failure> {
        Ok(())
    }
}
