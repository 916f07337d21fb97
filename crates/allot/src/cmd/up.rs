//! `allot up`: a whole cluster on this machine.

use std::io::{Write as _, stdout};
use std::time::Instant;

use crate::cluster::{self, Cluster};

/// Flags of `allot up`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  allot up &\n  kubectl --kubeconfig ~/.local/share/allot/kubeconfig get resourceslices"
)]
pub struct Args {
    #[command(flatten)]
    cluster: cluster::Args,
    /// Serve the dashboard as well, for this machine, and print its link when the cluster is ready
    #[arg(long)]
    dashboard: bool,
}

/// Runs the cluster until it is told to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    let started = Instant::now();
    super::component::block_on(async move |shutdown| {
        let mut cluster = tokio::select! {
            started = Cluster::start(args.cluster) => started?,
            () = shutdown.cancelled() => return Ok(()),
        };
        tokio::select! {
            ready = cluster.ready() => {
                ready?;
                // The cluster goes on also if nobody reads this any more.
                let _ = writeln!(stdout(), "ready: {} in {} ms, export KUBECONFIG={}",
                    cluster.url,
                    started.elapsed().as_millis(),
                    cluster.kubeconfig.display());
                if args.dashboard {
                    let (client, stop) = (cluster.client.clone(), shutdown.clone());
                    let link = super::dashboard::beside(client, "allot up".to_owned(), stop).await?;
                    let _ = writeln!(stdout(), "dashboard: {link}");
                }
            }
            () = shutdown.cancelled() => {}
        }
        cluster.run(shutdown).await
    })
}
