//! `allot driver model`: a driver of modelled hardware, for any node agent or kubelet.

use allot_hardware::Fleet;
use anyhow::ensure;
use tokio::task::JoinSet;

use super::{Directories, Shared, Start};
use crate::modelled::Modelled;
use crate::{bounds, component};

/// Flags of `allot driver model`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    shared: Shared,
    /// A name from `allot hardware list`, or a file; + for several on a node
    #[arg(long, value_name = "MODEL[+MODEL]")]
    hardware: String,
    /// The node this process runs on
    #[arg(long, env = "NODE_NAME")]
    node_name: String,
    /// Number of preceding nodes with the same hardware: common properties, such as a rack, depend on it
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = bounds::within(bounds::NODES))]
    index: usize,
    #[command(flatten)]
    directories: Directories,
    #[command(flatten)]
    start: Start,
}

/// Runs the command until it is done or asked to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    ensure!(
        !args.hardware.contains([',', '=']),
        "--hardware is that of one node: a name, or several with + between them"
    );
    let fleet = Fleet::parse(&[&args.hardware])?;
    component::block_on(async move |shutdown| {
        args.shared.watch_parent(&shutdown);
        let kubeconfig = args.shared.kubeconfig.as_deref();
        let client = component::client(kubeconfig, "allot-driver-model").await?;
        let cdi = args.directories.cdi_dir();
        let mut tasks = JoinSet::new();
        for model in fleet.models() {
            for driver in model.drivers() {
                let mut what = Modelled::new(model, driver, &args.node_name, args.index)?;
                what.kubelet_timeout = args.start.kubelet_timeout();
                let (client, shutdown) = (client.clone(), shutdown.clone());
                let (node, root, cdi) = (
                    args.node_name.clone(),
                    args.directories.kubelet_dir.clone(),
                    cdi.clone(),
                );
                tasks.spawn(async move { what.run(client, &node, &root, &cdi, shutdown).await });
            }
        }
        while let Some(joined) = tasks.join_next().await {
            joined??;
        }
        Ok(())
    })
}
