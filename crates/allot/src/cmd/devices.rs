//! `allot devices`: the devices of a cluster, which are free, and which claims hold the others.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use allot_allocator::Features;
use allot_scheduler::core::allocator_features;
use kube::Client;
use serde::Serialize;

use super::snapshot::{Kinds, Snapshot, Source, is_away, watch};
use super::{component, output};

mod classes;
mod inventory;
mod largest;
mod totals;

use inventory::{Device, State, cluster, inventory};
use largest::Fragmentation;
use totals::{By, sums};

/// Delay before a lost watch is restarted.
const AGAIN: Duration = Duration::from_secs(1);

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

/// Refuses what the rights of the user do not suffice for: an empty result would look as if nothing existed.
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

/// Refuses a name that no device has.
fn check_known<'a>(
    what: &str,
    wanted: &Option<String>,
    devices: &'a [Device],
    of: impl Fn(&'a Device) -> Vec<&'a str>,
) -> anyhow::Result<()> {
    let names = devices.iter().flat_map(of);
    super::known(&format!("no device of {what}"), wanted.as_deref(), names)
}

/// The answer if there is no device, or none is selected.
fn nothing(args: &Args) -> String {
    let Args {
        namespace, state, ..
    } = args;
    match (namespace, state) {
        (Some(namespace), _) => format!("no claim in namespace {namespace} has such a device"),
        (None, Some(state)) => format!("no device is {state}"),
        (None, None) => "no devices found: no driver has published any".to_owned(),
    }
}

/// Prints devices; how wide the columns are.
fn print(devices: &[Device], args: &Args) -> anyhow::Result<Vec<usize>> {
    let (out, format) = (&mut io::stdout().lock(), args.output);
    match format {
        Format::Json | Format::Yaml => {
            json(&mut output::lines(format == Format::Yaml), devices)?;
            return Ok(Vec::new());
        }
        Format::Name => {
            for device in devices {
                writeln!(out, "{}", device.name())?;
            }
            return Ok(Vec::new());
        }
        Format::Text | Format::Wide if devices.is_empty() => {
            writeln!(io::stderr(), "{}", nothing(args))?;
        }
        _ => {}
    }
    let mut rows = vec![titles(format)];
    rows.extend(devices.iter().map(|device| row(device, format)));
    if format == Format::Csv {
        output::csv(out, &rows)?;
    } else if !devices.is_empty() {
        output::table(out, &rows)?;
        // For humans: a script counts itself.
        if io::stdout().is_terminal() {
            writeln!(out, "\n{}", totals(devices).join("\n"))?;
        }
    }
    Ok(output::widths(&rows))
}

fn json(out: &mut impl Write, items: &[impl Serialize]) -> io::Result<()> {
    for item in items {
        serde_json::to_writer(&mut *out, item)?;
        writeln!(out)?;
    }
    Ok(())
}

fn print_sums(
    args: &Args,
    snapshot: &Snapshot,
    features: Features,
    devices: &[Device],
    by: By,
) -> anyhow::Result<()> {
    let cluster = cluster(&snapshot.objects, features)?;
    let fragmentation = Fragmentation::new(cluster, devices, &snapshot.objects)?;
    let sums = sums(devices, by, |class| match by {
        By::Class => fragmentation.largest(class),
        _ => None,
    });
    let out = &mut io::stdout().lock();
    let rows = totals::table(&sums, by);
    match args.output {
        Format::Json | Format::Yaml => {
            json(&mut output::lines(args.output == Format::Yaml), &sums)?;
        }
        Format::Csv => output::csv(out, &rows)?,
        Format::Name => {
            for row in rows.iter().skip(1) {
                writeln!(out, "{}", row[0])?;
            }
        }
        Format::Text | Format::Wide if sums.is_empty() => {
            let text = match by {
                By::Class if !devices.is_empty() => "no device is in a device class".to_owned(),
                By::Namespace if !devices.is_empty() => "no claim has such a device".to_owned(),
                _ => nothing(args),
            };
            writeln!(io::stderr(), "{text}")?;
        }
        Format::Text | Format::Wide => output::table(out, &rows)?,
    }
    Ok(())
}

fn titles(format: Format) -> Vec<String> {
    let mut titles = vec!["NODE", "DRIVER", "POOL", "DEVICE", "STATE", "WHY"];
    if format != Format::Text {
        titles.extend(["CLASSES", "CAPACITY", "ATTRIBUTES"]);
    }
    titles.into_iter().map(str::to_owned).collect()
}

fn row(device: &Device, format: Format) -> Vec<String> {
    let mut row = vec![
        device.node.clone(),
        device.driver.clone(),
        device.pool.clone(),
        device.device.clone(),
        device.state.to_string(),
        device.why(),
    ];
    if format != Format::Text {
        let classes = device.classes.join(",");
        row.extend([classes, list(&device.capacity), list(&device.attributes)]);
    }
    row
}

/// `name=value` of all entries.
fn list(entries: &BTreeMap<String, String>) -> String {
    let entries = entries
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    entries.collect::<Vec<_>>().join(",")
}

/// How many devices of each driver are in which state.
fn totals(devices: &[Device]) -> Vec<String> {
    let mut drivers: BTreeMap<&str, BTreeMap<State, usize>> = BTreeMap::new();
    for device in devices {
        let states = drivers.entry(&device.driver).or_default();
        *states.entry(device.state).or_default() += 1;
    }
    let line = |(driver, states): (&str, BTreeMap<State, usize>)| {
        let total: usize = states.values().sum();
        let parts = states
            .iter()
            .map(|(state, count)| format!("{count} {state}"));
        let plural = if total == 1 { "" } else { "s" };
        format!(
            "{driver}: {total} device{plural}, {}",
            parts.collect::<Vec<_>>().join(", ")
        )
    };
    drivers.into_iter().map(line).collect()
}

/// The printed state, while devices are watched.
struct Screen<'a> {
    args: &'a Args,
    features: Features,
    widths: Vec<usize>,
    known: BTreeMap<String, Device>,
}

impl Screen<'_> {
    /// Prints changes as they arrive.
    async fn follow(&mut self, client: &Client, snapshot: &mut Snapshot) -> anyhow::Result<()> {
        loop {
            // Heartbeats of nodes change nothing.
            snapshot.watching.retain(|w| w.kind() != "Node");
            match watch(client, snapshot, |snapshot| self.print_changes(snapshot)).await {
                Err(error) if !is_away(&error) => return Err(error),
                // A watch ends regularly; missed changes are in the next list.
                _ => *snapshot = self.list_again(client).await?,
            }
            self.print_changes(snapshot)?;
        }
    }

    /// A new list, as soon as the server answers: it may be started again just now.
    async fn list_again(&self, client: &Client) -> anyhow::Result<Snapshot> {
        let wanted = self.args.namespace.as_deref();
        let mut is_told = false;
        loop {
            tokio::time::sleep(AGAIN).await;
            match Snapshot::take(client, Kinds::Devices, wanted).await {
                Err(error) if is_away(&error) => {
                    if !is_told {
                        eprintln!("warning: {}; it is tried again", crate::describe(&error));
                    }
                    is_told = true;
                }
                done => return done,
            }
        }
    }

    fn print_changes(&mut self, snapshot: &Snapshot) -> anyhow::Result<()> {
        let devices = select(self.args, snapshot, self.features)?;
        let now: BTreeMap<String, Device> = devices.into_iter().map(|d| (d.name(), d)).collect();
        let mut changed: Vec<Device> = Vec::new();
        for (name, device) in &now {
            if self.known.get(name) != Some(device) {
                changed.push(device.clone());
            }
        }
        for (name, device) in &self.known {
            if !now.contains_key(name) {
                changed.push(device.removed());
            }
        }
        self.known = now;
        let out = &mut io::stdout().lock();
        let format = self.args.output;
        match format {
            Format::Json | Format::Yaml => {
                json(&mut output::lines(format == Format::Yaml), &changed)?;
            }
            Format::Name => {
                for device in &changed {
                    writeln!(out, "{}", device.name())?;
                }
            }
            Format::Csv => {
                let rows: Vec<_> = changed.iter().map(|device| row(device, format)).collect();
                output::csv(out, &rows)?;
            }
            Format::Text | Format::Wide => {
                for device in &changed {
                    output::line(out, &row(device, format), &self.widths)?;
                }
            }
        }
        out.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
