//! `allot drain-driver`: takes a driver out of service.

use std::collections::BTreeSet;
use std::io::{Write as _, stdout};
use std::time::Duration;

use allot_controllers::controller::clock::Clock;
use allot_controllers::drain::{Drain, Hold, Progress, drain, undo};
use anyhow::Context as _;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::access::Access;
use super::snapshot::{Kinds, Served, Snapshot};
use super::{bounds, component, count, others, some};

mod rights;
mod rules;

use rules::Rules;

/// Time limit of the API server for listing slices and claims, independent of the flag.
const LISTS: Duration = Duration::from_secs(30);
/// If nodes do not report their drivers, one that publishes nothing for this long counts as stopped: drivers built with
/// the Go helper check their slices that often.
const QUIET: Duration = Duration::from_secs(40);

/// Flags of `allot drain-driver`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Taints the driver's devices (allot.dev/draining), waits until no claim holds one, and
removes the slices. A driver that runs publishes its slices again, without the taints:
where the server has DeviceTaintRules, a rule keeps them tainted until --undo; elsewhere
the command goes on until the driver is stopped, and taints what it publishes.

  allot drain-driver gpu.example.com --node node-0 --evict --timeout 60

When it gives up, or is interrupted, the taints stay, so that it can be continued
(without a rule, drivers made with the Go helper remove them after 30 s).
--timeout 0 taints the devices and prints the claims that use them. To let pods have
the devices again:

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
    /// Give up waiting for users, or for the driver to stop, after that many seconds; by default it waits as long as it takes
    #[arg(long, value_name = "SECONDS", value_parser = bounds::within(bounds::SECONDS))]
    timeout: Option<u64>,
    /// Remove the taints of an earlier run instead
    #[arg(long, conflicts_with_all = ["evict", "timeout", "no_hold"])]
    undo: bool,
    /// End when no claim holds a device, even if the driver runs and can publish its devices again without taints
    #[arg(long)]
    no_hold: bool,
    #[command(flatten)]
    access: Access,
}

/// Runs the command until it is done or asked to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    component::block_on(async move |shutdown| {
        let client = args.access.client("allot-drain-driver").await?;
        // Watches would wait for it silently.
        let answer = tokio::select! {
            answer = client.apiserver_version() => answer,
            () = shutdown.cancelled() => anyhow::bail!(component::INTERRUPTED),
        };
        answer.map_err(super::snapshot::api_error)?;
        let rules = rules(&client).await?;
        rights::check(&client, args.undo, rules.is_some()).await?;
        let mut what = Drain {
            driver: args.driver.clone(),
            node: args.node.clone(),
            evict: args.evict,
            clock: Clock::System,
            hold: None,
        };
        if args.undo {
            return remove_taints(client, &what, rules.as_ref(), shutdown).await;
        }
        let written = match &rules {
            Some(rules) => {
                let snapshot = Snapshot::take(&client, Kinds::Devices, None).await?;
                let is_drained = |slice: &serde_json::Value| {
                    let on = what.node.as_deref();
                    text(slice, "/spec/driver") == Some(&what.driver)
                        && (on.is_none() || text(slice, "/spec/nodeName") == on)
                };
                if !snapshot.objects.iter().any(is_drained) {
                    return Err(no_slices(&what.driver, what.node.as_deref(), &snapshot));
                }
                rules.write(&what, &snapshot.objects).await?
            }
            None => Vec::new(),
        };
        if written.is_empty() && !args.no_hold {
            what.hold = Some(Hold {
                sees_nodes: rights::sees_nodes(&client).await?,
                quiet: QUIET,
            });
        }
        drain_and_report(client, what, &args, &written, shutdown).await
    })
}

/// The DeviceTaintRules API, if the server serves it.
///
/// # Errors
/// The server does not answer, or is too old for taints of devices.
async fn rules(client: &Client) -> anyhow::Result<Option<Rules>> {
    let mut served = Served::default();
    let group = "resource.k8s.io";
    let slices = vec!["v1", "v1beta2", "v1beta1", "v1alpha3"];
    let slices = served.of(client, group, "resourceslices", slices).await?;
    anyhow::ensure!(
        slices.first() == Some(&"v1"),
        "the API server {}: a driver can be drained on Kubernetes 1.34 and newer",
        match slices.is_empty() {
            true => "does not serve resourceslices".to_owned(),
            false => format!("has resourceslices in {} only", slices.join(", ")),
        }
    );
    let versions = vec!["v1", "v1beta2", "v1alpha3"];
    let versions = served
        .of(client, group, "devicetaintrules", versions)
        .await?;
    // If the server does not report them, all three may be served or none.
    let version = versions.first().filter(|_| versions.len() < 3);
    Ok(version.map(|version| Rules::new(client, version)))
}

/// Prints a line. A closed output must not decide how far a driver is drained.
fn print_line(line: String) {
    drop(writeln!(stdout(), "{line}"));
}

/// State of the drain so far.
#[derive(Default)]
struct DrainState {
    tainted: bool,
    removed: Option<usize>,
    users: Vec<String>,
    /// No pod uses the devices, and the driver runs: on these nodes.
    running: Option<Vec<String>>,
}

impl DrainState {
    /// Prints a step and records it. `waits` is notified when what has to end first is known.
    fn observe(&mut self, progress: Progress, waits: &Notify) {
        match progress {
            // The final error reports it.
            Progress::Tainted { slices: 0, .. } => self.tainted = false,
            Progress::Tainted { slices, devices } => {
                self.tainted = true;
                let (devices, slices) = (count(devices, "device"), count(slices, "slice"));
                print_line(format!("tainted: {devices} in {slices}"));
            }
            Progress::Untainted { slices, why } => {
                let number = count(slices.len(), "slice");
                print_line(format!(
                    "not tainted: {number}: {}: {why}",
                    slices.join(", ")
                ));
            }
            Progress::InUse(claims) => {
                let number = count(claims.len(), "claim");
                print_line(format!("in use by {number}: {}", claims.join(", ")));
                (self.users, self.running) = (claims, None);
                waits.notify_one();
            }
            Progress::Running(nodes) => {
                let on = on_nodes(&nodes);
                print_line(format!(
                    "no claim uses it: stop the driver now{on}; what it publishes until then is tainted"
                ));
                (self.users, self.running) = (Vec::new(), Some(nodes));
                waits.notify_one();
            }
            Progress::Removed(slices) => self.removed = Some(slices),
        }
    }

    /// The error if the drain did not end in time.
    fn timeout(&self, args: &Args) -> anyhow::Error {
        let (driver, undo) = (&args.driver, undo_command(args));
        let seconds = args.timeout.unwrap_or_default();
        if let Some(nodes) = &self.running {
            let on = on_nodes(nodes);
            return anyhow::anyhow!(
                "driver {driver} still runs{on} after {seconds} s; its devices stay tainted, until {undo}"
            );
        }
        let stay = match self.tainted {
            true => format!("; they stay tainted, until {undo}"),
            false => String::new(),
        };
        anyhow::anyhow!(
            "devices of {driver} are still in use after {seconds} s by {}: {}{stay}",
            count(self.users.len(), "claim"),
            some(&self.users)
        )
    }

    /// What to do after a drain that has ended.
    fn result(&self, has_rules: bool, args: &Args) -> String {
        let Some(slices) = self.removed else {
            return match self.tainted {
                true => format!(
                    "stopped; the devices stay tainted, until {}",
                    undo_command(args)
                ),
                false => "stopped; nothing is tainted".to_owned(),
            };
        };
        let slices = count(slices, "slice");
        match (has_rules, args.no_hold) {
            (true, _) => format!(
                "removed: {slices}; stop the driver now: its devices stay tainted, until {}",
                undo_command(args)
            ),
            (false, false) => format!("removed: {slices}; the driver is stopped"),
            (false, true) => {
                format!("removed: {slices}; stop the driver now, it would publish again")
            }
        }
    }
}

/// Drains the driver and prints the steps. `rules` are those that were written before.
async fn drain_and_report(
    client: Client,
    what: Drain,
    args: &Args,
    rules: &[String],
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    if !rules.is_empty() {
        let number = count(rules.len(), "rule");
        print_line(format!("tainted by {number}: {}", rules.join(", ")));
    }
    let (waits, state) = (Notify::new(), Mutex::new(DrainState::default()));
    let stop = shutdown.child_token();
    let reader = client.clone();
    let work = drain(client, what, stop.clone(), |progress| {
        state.lock().observe(progress, &waits);
    });
    let mut work = std::pin::pin!(work);
    let limit = args.timeout.map(Duration::from_secs);
    tokio::select! {
        // Finishing in time takes precedence over the time limit.
        biased;
        done = &mut work => done?,
        late = give_up(&waits, limit) => {
            anyhow::ensure!(late, "the API server does not show slices and claims");
            stop.cancel();
            work.await?;
            return Err(state.lock().timeout(args));
        }
    }
    let removed = state.lock().removed;
    if removed == Some(0) {
        return Err(none_found(&reader, &args.driver, args.node.as_deref()).await);
    }
    print_line(state.lock().result(!rules.is_empty(), args));
    Ok(())
}

/// Completes when the consumers' time limit is over, which starts when they are known: a short limit must not skip the
/// check. Returns false if that does not happen.
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

/// ` on node-0, node-1`, if known.
fn on_nodes(nodes: &[String]) -> String {
    match nodes.is_empty() {
        true => String::new(),
        false => format!(" on {}", some(nodes)),
    }
}

fn text<'a>(slice: &'a serde_json::Value, pointer: &str) -> Option<&'a str> {
    slice.pointer(pointer)?.as_str()
}

/// See [`no_slices`]; without the others if they are not shown.
async fn none_found(client: &Client, driver: &str, node: Option<&str>) -> anyhow::Error {
    let snapshot = Snapshot::take(client, Kinds::Devices, None);
    let snapshot = tokio::time::timeout(LISTS, snapshot).await.ok();
    let snapshot = snapshot.and_then(Result::ok).unwrap_or_default();
    no_slices(driver, node, &snapshot)
}

/// The drivers that there are, or the nodes on which this one has slices.
fn no_slices(driver: &str, node: Option<&str>, snapshot: &Snapshot) -> anyhow::Error {
    let slices = snapshot.objects.iter();
    let slices = slices.filter(|object| object["kind"] == "ResourceSlice");
    let drivers: BTreeSet<&str> = (slices.clone())
        .filter_map(|slice| text(slice, "/spec/driver"))
        .collect();
    match node.filter(|_| drivers.contains(driver)) {
        Some(node) => {
            let own = slices.filter(|slice| text(slice, "/spec/driver") == Some(driver));
            let nodes: BTreeSet<&str> = own
                .filter_map(|slice| text(slice, "/spec/nodeName"))
                .collect();
            let others = others(node, nodes);
            anyhow::anyhow!("driver {driver} has no slices on node {node}{others}")
        }
        None => {
            let others = others(driver, drivers);
            anyhow::anyhow!("driver {driver} has no slices here{others}")
        }
    }
}

/// The command that removes the taints.
fn undo_command(args: &Args) -> String {
    let node = args.node.as_ref();
    let node = node.map_or(String::new(), |node| format!(" --node {node}"));
    format!("`allot drain-driver {}{node} --undo`", args.driver)
}

async fn remove_taints(
    client: Client,
    what: &Drain,
    rules: Option<&Rules>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let removed = match rules {
        Some(rules) => rules.remove(what).await?,
        None => 0,
    };
    if removed > 0 {
        print_line(format!("removed: {}", count(removed, "rule")));
    }
    let work = tokio::time::timeout(LISTS, undo(client.clone(), what, shutdown));
    let undone = work
        .await
        .context("the API server does not show the slices")??;
    if undone.found == 0 && removed == 0 {
        return Err(none_found(&client, &what.driver, what.node.as_deref()).await);
    }
    let (devices, slices) = (
        count(undone.devices, "device"),
        count(undone.slices, "slice"),
    );
    print_line(match undone.devices {
        0 if removed > 0 => return Ok(()),
        0 => "nothing is tainted".to_owned(),
        _ => format!("no longer tainted: {devices} in {slices}"),
    });
    Ok(())
}
