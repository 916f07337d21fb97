//! `--watch`: prints the devices that change.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use allot_allocator::Features;
use kube::Client;

use super::inventory::Device;
use super::print::{json, row};
use super::{Args, Format, select};
use crate::cmd::output;
use crate::cmd::snapshot::{Kinds, Snapshot, is_away, watch};

/// Delay before a lost watch is restarted.
const AGAIN: Duration = Duration::from_secs(1);

/// The printed state, while devices are watched.
pub(super) struct Screen<'a> {
    pub(super) args: &'a Args,
    pub(super) features: Features,
    /// Of the columns.
    pub(super) widths: Vec<usize>,
    pub(super) known: BTreeMap<String, Device>,
}

impl Screen<'_> {
    /// Prints changes as they arrive.
    pub(super) async fn follow(
        &mut self,
        client: &Client,
        snapshot: &mut Snapshot,
    ) -> anyhow::Result<()> {
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
