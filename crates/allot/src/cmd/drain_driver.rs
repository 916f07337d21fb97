//! `allot drain-driver`: takes a driver out of service.

use std::io::{Write as _, stdout};
use std::path::PathBuf;

use allot_controllers::drain::{Drain, Progress, drain};
use allot_controllers::kit::clock::Clock;
use anyhow::Context as _;

use super::{component, count};

/// Flags of `allot drain-driver`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A driver that runs publishes its slices again, without the taints: stop it when
the command has ended.

  allot drain-driver gpu.example.com --node node-0 --evict --timeout 60")]
pub struct Args {
    /// Name of the driver, as in the slices
    driver: String,
    /// Only on this node
    #[arg(long)]
    node: Option<String>,
    /// Evict pods that use the driver's devices instead of waiting for them to end
    #[arg(long)]
    evict: bool,
    /// Give up after that many seconds; by default it waits as long as it takes
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Kubeconfig of the API server; default: $KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

/// Runs the command until it is done or told to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    component::block_on(async move |shutdown| {
        let client = component::client(args.kubeconfig.as_deref(), "allot-drain-driver").await?;
        // Watches would wait for it without a word.
        client
            .apiserver_version()
            .await
            .context("the API server does not answer")?;
        let what = Drain {
            driver: args.driver.clone(),
            node: args.node,
            evict: args.evict,
            clock: Clock::System,
        };
        let stop = shutdown.child_token();
        let (mut tainted, mut removed) = (false, None);
        // Whether somebody still reads the lines must not decide how far a driver is drained.
        let tell = |line: String| drop(writeln!(stdout(), "{line}"));
        let work = drain(client, what, stop.clone(), |progress| match progress {
            // The error at the end says it.
            Progress::Tainted { slices: 0, .. } => tainted = false,
            Progress::Tainted { slices, devices } => {
                tainted = true;
                let (devices, slices) = (count(devices, "device"), count(slices, "slice"));
                tell(format!("tainted: {devices} in {slices}"));
            }
            Progress::Untainted { slices, why } => {
                let number = count(slices.len(), "slice");
                tell(format!(
                    "not tainted: {number}: {}: {why}",
                    slices.join(", ")
                ));
            }
            Progress::InUse(claims) => {
                let number = count(claims.len(), "claim");
                tell(format!("in use by {number}: {}", claims.join(", ")));
            }
            Progress::Removed(slices) => removed = Some(slices),
        });
        match args.timeout {
            Some(seconds) => {
                let limit = std::time::Duration::from_secs(seconds);
                let done = tokio::time::timeout(limit, work).await;
                done.map_err(|_| {
                    let stay = if tainted { "; they stay tainted" } else { "" };
                    anyhow::anyhow!(
                        "devices of {} are still in use after {seconds} s{stay}",
                        args.driver
                    )
                })??;
            }
            None => work.await?,
        }
        match removed {
            Some(0) => anyhow::bail!("driver {} has no slices here", args.driver),
            Some(slices) => tell(format!(
                "removed: {}; stop the driver now, it would publish again",
                count(slices, "slice")
            )),
            None if tainted => tell("stopped; the devices stay tainted".to_owned()),
            None => tell("stopped; nothing is tainted".to_owned()),
        }
        Ok(())
    })
}
