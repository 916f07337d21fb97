//! `allot devices`: what devices there are, which are free, and who has the others.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write};

use allot_scheduler::core::allocator_features;

use super::component;
use super::snapshot::{Kinds, Source};

mod inventory;

use inventory::{Device, State, inventory};

/// Flags of `allot devices`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Only the newest generation of a pool counts, as for the scheduler. A partition whose
counters others have used up is blocked; a device that a claim has and no slice names
any more is gone; without the right to list all claims, what may be free is unknown.

  allot devices --node node-0
  allot devices --driver gpu.example.com --state free
  allot devices -o json | jq 'select(.state == \"in-use\") | .claims'")]
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
    /// Only in this state
    #[arg(long, value_enum)]
    state: Option<State>,
    #[command(flatten)]
    source: Source,
    /// How to print the list
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Forms of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A line per device, and a sum for each driver
    Table,
    /// With attributes and capacities
    Wide,
    /// One JSON object per device and line
    Json,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    component::block_on(async move |_| {
        let picture = args.source.picture(Kinds::Devices, None).await?;
        anyhow::ensure!(
            picture.has_all("ResourceSlice"),
            "devices are in resourceslices.resource.k8s.io, and there is no right to list them"
        );
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|w| w == found);
        let features = allocator_features(&picture.features());
        let mut devices = inventory(&picture.objects, features, picture.has_all("ResourceClaim"))?;
        devices.retain(|d| {
            is(&args.driver, &d.driver)
                && is(&args.node, &d.node)
                && is(&args.pool, &d.pool)
                && args.state.is_none_or(|s| s == d.state)
        });
        let out = &mut std::io::stdout().lock();
        match args.output {
            Format::Json => {
                for device in &devices {
                    serde_json::to_writer(&mut *out, device)?;
                    writeln!(out)?;
                }
            }
            format => {
                if let Some(age) = picture.age() {
                    eprintln!("{age}");
                }
                print(out, &devices, format == Format::Wide)?;
            }
        }
        Ok(())
    })
}

fn print(out: &mut impl Write, devices: &[Device], wide: bool) -> io::Result<()> {
    if devices.is_empty() {
        return writeln!(io::stderr(), "no devices found");
    }
    let mut titles = vec!["NODE", "DRIVER", "POOL", "DEVICE", "STATE", "WHY"];
    if wide {
        titles.extend(["CAPACITY", "ATTRIBUTES"]);
    }
    let titles = titles.into_iter().map(str::to_owned).collect();
    let mut rows: Vec<Vec<String>> = vec![titles];
    for device in devices {
        let mut row = vec![
            device.node.clone(),
            device.driver.clone(),
            device.pool.clone(),
            device.device.clone(),
            device.state.to_string(),
            device.why(),
        ];
        if wide {
            row.extend([list(&device.capacity), list(&device.attributes)]);
        }
        rows.push(row);
    }
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|r| r[column].len()).max().unwrap_or(0))
        .collect();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line += &format!("{cell:width$}   ");
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    // For people: a script counts by itself.
    if io::stdout().is_terminal() {
        writeln!(out, "\n{}", sums(devices).join("\n"))?;
    }
    Ok(())
}

/// `name=value` of all entries.
fn list(entries: &BTreeMap<String, String>) -> String {
    let entries = entries
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    entries.collect::<Vec<_>>().join(",")
}

/// How many devices of each driver are in which state.
fn sums(devices: &[Device]) -> Vec<String> {
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

#[cfg(test)]
mod tests;
