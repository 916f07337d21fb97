//! `allot driver gpu`.

use std::path::PathBuf;

use super::{KUBELET_DIR, Shared, Start};
use crate::cmd::component;
use crate::gpus;

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
    #[command(flatten)]
    gpus: gpus::Flags,
}

/// Runs the command until it is done or asked to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    component::block_on(async move |shutdown| {
        args.shared.watch_parent(&shutdown);
        let client =
            component::client(args.shared.kubeconfig.as_deref(), "allot-driver-gpu").await?;
        let mut config = allot_driver_gpu::Config::new(args.node_name, args.kubelet_dir);
        args.gpus.configure(&mut config);
        config.kubelet_timeout = args.start.kubelet_timeout();
        if let Some(directory) = args.cdi_dir {
            config.cdi_dir = directory;
        }
        Ok(allot_driver_gpu::run(client, config, shutdown).await?)
    })
}
