//! `allot driver gpu`.

use super::{Directories, Shared, Start};
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
    #[command(flatten)]
    directories: Directories,
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
        let cdi_dir = args.directories.cdi_dir();
        let mut config =
            allot_driver_gpu::Config::new(args.node_name, args.directories.kubelet_dir);
        config.cdi_dir = cdi_dir;
        args.gpus.configure(&mut config);
        config.kubelet_timeout = args.start.kubelet_timeout();
        Ok(allot_driver_gpu::run(client, config, shutdown).await?)
    })
}
