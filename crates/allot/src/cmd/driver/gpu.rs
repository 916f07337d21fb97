//! `allot driver gpu`.

use std::path::PathBuf;

use super::{KUBELET_DIR, Shared, Start};
use crate::cmd::{bounds, component};

/// Flags of `allot driver gpu`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    shared: Shared,
    /// The node this process runs on
    #[arg(long, env = "NODE_NAME")]
    node_name: String,
    /// Root directory of the kubelet or node agent
    #[arg(long, value_name = "DIR", default_value = KUBELET_DIR)]
    kubelet_dir: PathBuf,
    /// Directory for CDI files; <kubelet-dir>/cdi when absent
    #[arg(long, value_name = "DIR")]
    cdi_dir: Option<PathBuf>,
    #[command(flatten)]
    start: Start,
    /// How many GPUs the node has
    #[arg(long, default_value_t = 8, value_parser = bounds::within(bounds::DEVICES))]
    num_devices: usize,
    /// Number of partitions of each GPU, which share its counters; 0: whole GPUs only
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = bounds::within(0..=80_usize))]
    gpu_partitions: usize,
    /// Let several claims share a GPU, each with the memory and compute that it requests
    #[arg(long)]
    gpu_allow_multiple_allocations: bool,
    /// Bind pods when the driver has reported their devices ready; requires permission to watch claims
    #[arg(long)]
    binding_conditions: bool,
    /// Report model, UUID and driver version of GPUs in the status of their claims
    #[arg(long)]
    gpu_device_status: bool,
}

/// Runs the command until it is done or asked to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    component::block_on(async move |shutdown| {
        args.shared.watch_parent(&shutdown);
        let client =
            component::client(args.shared.kubeconfig.as_deref(), "allot-driver-gpu").await?;
        let mut config = allot_driver_gpu::Config::new(args.node_name, args.kubelet_dir);
        config.profile = allot_driver_gpu::Profile {
            gpus: args.num_devices,
            partitions: args.gpu_partitions,
            shared: args.gpu_allow_multiple_allocations,
            binding_conditions: args.binding_conditions,
        };
        config.kubelet_timeout = args.start.kubelet_timeout();
        config.device_status = args.gpu_device_status;
        if let Some(directory) = args.cdi_dir {
            config.cdi_dir = directory;
        }
        Ok(allot_driver_gpu::run(client, config, shutdown).await?)
    })
}
