//! `allot drain-driver`: takes a driver out of service.

use std::io::{Write as _, stdout};
use std::path::PathBuf;
use std::time::Duration;

use allot_controllers::drain::{Drain, Progress, drain, undo};
use allot_controllers::kit::clock::Clock;
use anyhow::Context as _;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{bounds, component, count, some};

/// How long the API server may take to list slices and claims, whatever the time-out.
const LISTS: Duration = Duration::from_secs(30);

/// Flags of `allot drain-driver`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Taints the driver's devices (allot.dev/draining), waits until no claim holds one, and
removes the slices. A driver that runs publishes its slices again, without the taints:
stop it when the command has ended.

  allot drain-driver gpu.example.com --node node-0 --evict --timeout 60

When it gives up, or is interrupted, the taints stay, so that it can be continued
(drivers made with the Go helper take them away after 30 s).
--timeout 0 taints the devices and says who uses them. To let pods have the devices again:

  allot drain-driver gpu.example.com --node node-0 --undo")]
pub struct Args {
    /// Name of the driver, as in the slices
    driver: String,
    /// Only on this node
    #[arg(long)]
    node: Option<String>,
    /// Evict pods that use the driver's devices instead of waiting for them to end
    #[arg(long)]
    evict: bool,
    /// Give up waiting for users after that many seconds; by default it waits as long as it takes
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = bounds::within(bounds::SECONDS))]
    timeout: Option<u64>,
    /// Take the taints of an earlier run away instead
    #[arg(long, conflicts_with_all = ["evict", "timeout"])]
    undo: bool,
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
            node: args.node.clone(),
            evict: args.evict,
            clock: Clock::System,
        };
        match args.undo {
            true => take_back(client, &what, shutdown).await,
            false => take_out(client, what, &args, shutdown).await,
        }
    })
}

/// Whether somebody still reads the lines must not decide how far a driver is drained.
fn tell(line: String) {
    drop(writeln!(stdout(), "{line}"));
}

/// What was seen of the drain so far.
#[derive(Default)]
struct Seen {
    tainted: bool,
    removed: Option<usize>,
    users: Vec<String>,
}

async fn take_out(
    client: Client,
    what: Drain,
    args: &Args,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (waits, seen) = (Notify::new(), Mutex::new(Seen::default()));
    let stop = shutdown.child_token();
    let work = drain(client, what, stop.clone(), |progress| {
        let mut seen = seen.lock();
        match progress {
            // The error at the end says it.
            Progress::Tainted { slices: 0, .. } => seen.tainted = false,
            Progress::Tainted { slices, devices } => {
                seen.tainted = true;
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
                seen.users = claims;
                waits.notify_one();
            }
            Progress::Removed(slices) => seen.removed = Some(slices),
        }
    });
    let mut work = std::pin::pin!(work);
    let driver = &args.driver;
    let limit = args.timeout.map(Duration::from_secs);
    tokio::select! {
        // Who is done in time is done, also where there is no time.
        biased;
        done = &mut work => done?,
        late = give_up(&waits, limit) => {
            anyhow::ensure!(late, "the API server does not show slices and claims");
            stop.cancel();
            work.await?;
            let seen = seen.lock();
            let stay = match seen.tainted {
                true => format!("; they stay tainted, until {}", undoing(args)),
                false => String::new(),
            };
            let seconds = args.timeout.unwrap_or_default();
            anyhow::bail!(
                "devices of {driver} are still in use after {seconds} s by {}: {}{stay}",
                count(seen.users.len(), "claim"),
                some(&seen.users)
            );
        }
    }
    let seen = seen.lock();
    match seen.removed {
        Some(0) => anyhow::bail!(no_slices(driver, args.node.as_deref())),
        Some(slices) => tell(format!(
            "removed: {}; stop the driver now, it would publish again",
            count(slices, "slice")
        )),
        None if seen.tainted => tell(format!(
            "stopped; the devices stay tainted, until {}",
            undoing(args)
        )),
        None => tell("stopped; nothing is tainted".to_owned()),
    }
    Ok(())
}

/// Ends when the users had their time, which begins when they are known: a short time is no reason not to look. False when
/// that does not come about.
async fn give_up(waits: &Notify, limit: Option<Duration>) -> bool {
    let Some(limit) = limit else {
        return std::future::pending().await;
    };
    if tokio::time::timeout(limit.max(LISTS), waits.notified())
        .await
        .is_err()
    {
        return false;
    }
    tokio::time::sleep(limit).await;
    true
}

fn no_slices(driver: &str, node: Option<&str>) -> String {
    let place = node.map_or("here".to_owned(), |node| format!("on node {node}"));
    format!("driver {driver} has no slices {place}")
}

/// The command that takes the taints away.
fn undoing(args: &Args) -> String {
    let node = args.node.as_ref();
    let node = node.map_or(String::new(), |node| format!(" --node {node}"));
    format!("`allot drain-driver {}{node} --undo`", args.driver)
}

async fn take_back(
    client: Client,
    what: &Drain,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let work = tokio::time::timeout(LISTS, undo(client, what, shutdown));
    let undone = work
        .await
        .context("the API server does not show the slices")??;
    anyhow::ensure!(
        undone.found > 0,
        no_slices(&what.driver, what.node.as_deref())
    );
    let (devices, slices) = (
        count(undone.devices, "device"),
        count(undone.slices, "slice"),
    );
    tell(match undone.devices {
        0 => "nothing is tainted".to_owned(),
        _ => format!("no longer tainted: {devices} in {slices}"),
    });
    Ok(())
}
