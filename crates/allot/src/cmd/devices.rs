//! `allot devices`: the devices of a cluster, which are free, and which claims hold the others.

use allot_allocator::Features;
use allot_scheduler::core::allocator_features;

use super::component;
use super::snapshot::{Kinds, Snapshot, Source};

mod classes;
mod inventory;
mod largest;
mod print;
mod totals;
mod watch;

use inventory::{Device, State, inventory};
use print::{print, print_sums};
use totals::By;
use watch::Screen;

/// Flags of `allot devices`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Only the newest generation of a pool counts, as for the scheduler. A partition whose
counters others have used up is blocked; a device that a claim has and no slice names
any more is gone; without the right to list all claims, what may be free is unknown.

  allot devices --node node-0
  allot devices --driver gpu.example.com --state free
  allot devices --by class         how many are free, and the largest request that fits
  allot devices --by namespace     who uses how many
  allot devices -o json | jq 'select(.state == \"in-use\") | .claims'

With --watch, devices that change are printed as they do, until it is interrupted.")]
pub struct Args {
    /// Only of this driver
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
    /// Only of this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Only of this pool
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Only of this device class
    #[arg(long, value_name = "NAME")]
    class: Option<String>,
    /// Only devices of claims in this namespace
    #[arg(long, short, value_name = "NAME", value_parser = super::namespace_name)]
    namespace: Option<String>,
    /// Devices of claims in all namespaces, which is the default
    #[arg(
        id = "all_namespaces",
        long = "all-namespaces",
        short = 'A',
        conflicts_with = "namespace",
        hide = true
    )]
    _all: bool,
    /// Only in this state
    #[arg(long, value_enum)]
    state: Option<State>,
    /// Sum up, instead of a line for each device
    #[arg(long, value_enum, conflicts_with = "watch")]
    by: Option<By>,
    /// Print what changes as well
    #[arg(long, short, conflicts_with = "from")]
    watch: bool,
    #[command(flatten)]
    source: Source,
    /// How to print the list
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// Forms of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A line per device, and a sum for each driver
    #[value(alias = "table")]
    Text,
    /// With classes, capacities and attributes
    Wide,
    /// One JSON object per device and line
    Json,
    /// One YAML document per device
    Yaml,
    /// Comma-separated, with all columns of wide
    Csv,
    /// driver/pool/device
    Name,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    component::block_on(async move |shutdown| {
        let wanted = args.namespace.as_deref();
        let read = args.source.snapshot_and_client(Kinds::Devices, wanted);
        let (mut snapshot, client) = tokio::select! {
            read = read => read?,
            () = shutdown.cancelled() => anyhow::bail!(component::INTERRUPTED),
        };
        let features = allocator_features(&snapshot.features());
        let devices = select(&args, &snapshot, features)?;
        if let (Some(age), Format::Text | Format::Wide) = (snapshot.age(), args.output) {
            eprintln!("{age}");
        }
        if let Some(by) = args.by {
            return print_sums(&args, &snapshot, features, &devices, by);
        }
        let widths = print(&devices, &args)?;
        let Some(client) = client.filter(|_| args.watch) else {
            return Ok(());
        };
        let mut screen = Screen {
            args: &args,
            features,
            widths,
            known: devices.into_iter().map(|d| (d.name(), d)).collect(),
        };
        tokio::select! {
            ended = screen.follow(&client, &mut snapshot) => ended,
            () = shutdown.cancelled() => Ok(()),
        }
    })
}

/// Returns an error if permissions of the user are missing: an empty result would look as if there were no devices.
fn check_rights(args: &Args, snapshot: &Snapshot) -> anyhow::Result<()> {
    super::may_list(snapshot, "ResourceSlice", "devices")?;
    if args.class.is_some() || args.by == Some(By::Class) {
        super::may_list(snapshot, "DeviceClass", "classes")?;
    }
    let namespace = args.namespace.as_deref();
    if let Some(claims) = snapshot.unseen("ResourceClaim", namespace)
        && (namespace.is_some() || args.by == Some(By::Namespace))
    {
        anyhow::bail!(
            "which claims have devices is in {claims}, and there is no right to list them"
        );
    }
    Ok(())
}

/// The selected devices.
fn select(args: &Args, snapshot: &Snapshot, features: Features) -> anyhow::Result<Vec<Device>> {
    check_rights(args, snapshot)?;
    let all_claims = snapshot.has_all("ResourceClaim");
    let mut devices = inventory(&snapshot.objects, features, all_claims)?;
    // A name that does not exist is more likely a typing error; while watching it may still appear.
    if !args.watch {
        check_known("driver", &args.driver, &devices, |d| vec![&d.driver])?;
        check_known("node", &args.node, &devices, |d| vec![&d.node])?;
        check_known("pool", &args.pool, &devices, |d| vec![&d.pool])?;
        check_known("class", &args.class, &devices, |d| {
            d.classes.iter().map(String::as_str).collect()
        })?;
    }
    let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|w| w == found);
    devices.retain(|d| {
        let of_namespace = |wanted: &String| {
            let mut holders = d.claims.iter().filter_map(|h| h.claim.split_once('/'));
            holders.any(|(namespace, _)| namespace == wanted)
        };
        is(&args.driver, &d.driver)
            && is(&args.node, &d.node)
            && is(&args.pool, &d.pool)
            && args.class.as_ref().is_none_or(|c| d.classes.contains(c))
            && args.namespace.as_ref().is_none_or(of_namespace)
            && args.state.is_none_or(|s| s == d.state)
    });
    Ok(devices)
}

/// Returns an error for a name that no device has.
fn check_known<'a>(
    what: &str,
    wanted: &Option<String>,
    devices: &'a [Device],
    of: impl Fn(&'a Device) -> Vec<&'a str>,
) -> anyhow::Result<()> {
    let names = devices.iter().flat_map(of);
    super::known(&format!("no device of {what}"), wanted.as_deref(), names)
}

#[cfg(test)]
mod tests;
