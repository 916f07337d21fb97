//! The GPU example driver, `gpu.example.com`: modelled GPUs that exist only as attributes and environment variables. It
//! is an example of a driver on the `allot-driver` SDK, and gives a local cluster devices to allocate.
//!
//! Invariants:
//! - devices of a node are a pure function of the node's name and their number: a restart publishes the same;
//! - attributes, capacities, parameters and environment are those of kubernetes-sigs/dra-example-driver.
//!
//! It must not depend on the node agent or the API server.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use allot_driver::{
    Claim, ContainerEdits, DeviceMetadata, Driver, Error, Failure, Plugin, Pool, Prepared,
    PreparedClaim, PreparedDevice, Resources,
};
use k8s_openapi::api::resource::v1::Device;
use tokio_util::sync::CancellationToken;

mod devices;
mod parameters;
#[cfg(test)]
mod tests;

pub use devices::devices;
pub use parameters::GpuConfig;

/// Name of the driver and of its DeviceClass.
pub const DRIVER_NAME: &str = "gpu.example.com";

/// Kind of the CDI devices.
pub const CDI_KIND: &str = "k8s.gpu.example.com/gpu";

/// How to run the driver.
#[derive(Debug, Clone)]
pub struct Config {
    /// The node whose GPUs these are.
    pub node_name: String,
    /// The kubelet's root directory, with `plugins_registry` in it.
    pub kubelet_dir: PathBuf,
    /// Directory of the CDI files, which the node's runtime must read.
    pub cdi_dir: PathBuf,
    /// How many GPUs the node has.
    pub gpus: usize,
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
            gpus: 8,
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
    let gpus = devices(&config.node_name, config.gpus);
    let pool = Pool::new(gpus.clone());
    let plugin = Plugin::builder(DRIVER_NAME, Gpus { gpus })
        .client(client)
        .node_name(&config.node_name)
        .kubelet_dir(&config.kubelet_dir)
        .cdi_dir(&config.cdi_dir)
        .cdi_kind(CDI_KIND)
        .device_metadata(true)
        .cdi_common(ContainerEdits {
            env: vec![
                format!("KUBERNETES_NODE_NAME={}", config.node_name),
                format!("DRA_RESOURCE_DRIVER_NAME={DRIVER_NAME}"),
            ],
            ..ContainerEdits::default()
        })
        .start()
        .await?;
    plugin.publish(Resources::pool(&config.node_name, pool))?;
    plugin.wait_until(shutdown.cancelled()).await
}

/// The driver: preparing a GPU that does not exist needs no work.
#[derive(Debug)]
struct Gpus {
    gpus: Vec<Device>,
}

impl Driver for Gpus {
    async fn prepare(&self, claim: &Claim) -> Result<Prepared, Failure> {
        let mut prepared = Vec::new();
        for result in claim.results(DRIVER_NAME) {
            let index: usize = result
                .device
                .strip_prefix("gpu-")
                .and_then(|index| index.parse().ok())
                .filter(|index| *index < self.gpus.len())
                .ok_or_else(|| format!("requested GPU is not allocatable: {}", result.device))?;
            let attributes = self.gpus[index].attributes.clone().unwrap_or_default();
            let metadata = DeviceMetadata {
                attributes,
                ..Default::default()
            };
            // The last configuration has the highest priority.
            let config = match claim.configs(DRIVER_NAME, result).last() {
                Some(parameters) => GpuConfig::parse(parameters)?,
                None => GpuConfig::default(),
            };
            let edits = ContainerEdits {
                env: config.environment(index, &result.device),
                ..Default::default()
            };
            let device = PreparedDevice::from_result(result).edits(edits);
            prepared.push(device.metadata(metadata));
        }
        Ok(prepared.into())
    }

    async fn unprepare(&self, _: &PreparedClaim) -> Result<(), Failure> {
        Ok(())
    }
}
