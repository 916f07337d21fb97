//! Devices and sums in each output format.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write};

use allot_allocator::Features;
use serde::Serialize;

use super::inventory::{Device, State, cluster};
use super::largest::Fragmentation;
use super::totals::{self, By, sums};
use super::{Args, Format};
use crate::cmd::output;
use crate::cmd::snapshot::Snapshot;

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
pub(super) fn print(devices: &[Device], args: &Args) -> anyhow::Result<Vec<usize>> {
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

pub(super) fn json(out: &mut impl Write, items: &[impl Serialize]) -> io::Result<()> {
    for item in items {
        serde_json::to_writer(&mut *out, item)?;
        writeln!(out)?;
    }
    Ok(())
}

pub(super) fn print_sums(
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

pub(super) fn row(device: &Device, format: Format) -> Vec<String> {
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
pub(super) fn totals(devices: &[Device]) -> Vec<String> {
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
