//! `allot down`: stops a cluster of `allot up` and everything that it runs.

use std::io::{Write as _, stderr, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

use allot_node::remains;
use anyhow::bail;
use rustix::process::Signal;

use super::bounds;
use super::up::context;
use crate::clusters::record::{self, ProcessHandle, Record};
use crate::clusters::{self, ClusterSelection, registry};

/// How long the server may take to end on its own.
const SERVER: Duration = Duration::from_secs(30);
/// The time after a second signal, or after it was killed.
const LATE: Duration = Duration::from_secs(10);

/// Flags of `allot down`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The data directory stays, and `allot up` continues from it. \
                  The command may be repeated."
)]
pub struct Args {
    #[command(flatten)]
    which: ClusterSelection,
    /// Every cluster of this user
    #[arg(long, conflicts_with = "which")]
    all: bool,
    /// Seconds that containers may take to end by themselves
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = bounds::within(bounds::SECONDS))]
    grace_period: u64,
}

/// Ends clusters.
pub fn run(args: Args) -> anyhow::Result<()> {
    let grace = Duration::from_secs(args.grace_period);
    let records = registry::all();
    let known = |directory: &Path| -> Vec<Record> {
        let known = records.iter().filter(|record| record.data_dir == directory);
        known.cloned().chain(Record::of(directory)).collect()
    };
    if !args.all {
        let directory = args.which.directory()?;
        if !end(&directory, &known(&directory), grace)? {
            writeln!(stdout(), "nothing runs in {}", directory.display())?;
            name_others(&directory, &records);
        }
        return Ok(());
    }
    let mut directories: Vec<PathBuf> = records.iter().map(|it| it.data_dir.clone()).collect();
    if let Ok(default) = clusters::default_directory() {
        let beside = default.parent().and_then(|it| std::fs::read_dir(it).ok());
        let beside = beside.into_iter().flatten().flatten();
        directories.extend(beside.filter_map(|entry| {
            let name = entry.file_name();
            let name = name.to_str()?.strip_prefix("allot-")?;
            clusters::name(name).ok().map(|_| entry.path())
        }));
        directories.push(default);
    }
    directories.sort();
    directories.dedup();
    let (mut any, mut failed) = (false, Vec::new());
    for directory in directories {
        match end(&directory, &known(&directory), grace) {
            Ok(ended) => any |= ended,
            Err(error) => failed.push(crate::describe(&error)),
        }
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("; "));
    }
    if !any {
        writeln!(stdout(), "nothing runs")?;
    }
    Ok(())
}

/// Names other running clusters, if the selected one does not run.
pub fn name_others(directory: &Path, records: &[Record]) {
    let others = records.iter().filter(|record| record.data_dir != directory);
    for record in others.filter(|record| record.alive().is_some()) {
        let flags = clusters::flags(record.name.as_deref(), &record.data_dir);
        let _ = writeln!(
            stderr(),
            "another cluster runs: `allot status{flags}`, `allot down{flags}`"
        );
    }
}

/// Stops everything that runs of the cluster in a directory; returns false if there was nothing.
fn end(directory: &Path, known: &[Record], grace: Duration) -> anyhow::Result<bool> {
    let mut any = false;
    let mut out = stdout();
    let alive: Vec<ProcessHandle> = known.iter().filter_map(Record::alive).collect();
    // Both files name the same process.
    for (index, process) in alive.iter().enumerate() {
        if alive[..index]
            .iter()
            .all(|other| other.pid() != process.pid())
        {
            end_server(process)?;
            any = true;
            let _ = writeln!(out, "ended the server, process {}", process.pid());
        }
    }
    if let Some(pid) = record::holder(directory) {
        bail!(
            "process {pid} has {}: `allot up` that is still starting, or another command; end it first",
            directory.display()
        );
    }
    let containers = remains::find(directory);
    if !containers.is_empty() {
        let names: Vec<String> = containers.iter().map(remains::Remaining::name).collect();
        let failed = remains::end(containers, grace);
        anyhow::ensure!(failed.is_empty(), "cannot end {}", failed.join("; "));
        any = true;
        let count = super::count(names.len(), "container");
        let _ = writeln!(out, "ended {count}: {}", super::some(&names));
    }
    let (left, failed) = remains::leave_networks(directory);
    if left > 0 {
        any = true;
        let _ = writeln!(out, "removed the network of {}", super::count(left, "pod"));
    }
    for failed in failed {
        // The next `allot up` tries again.
        let _ = writeln!(stderr(), "{failed}");
    }
    let (unmounted, failed) = remains::unmount(directory);
    anyhow::ensure!(failed.is_empty(), "cannot unmount {}", failed.join("; "));
    for path in unmounted {
        any = true;
        let _ = writeln!(out, "unmounted {}", path.display());
    }
    match allot_node::remove_bridge(directory) {
        Ok(None) => {}
        Ok(Some(bridge)) => {
            any = true;
            let _ = writeln!(out, "removed the bridge {bridge}");
        }
        Err(error) => bail!("cannot remove the bridge of the pods: {error}"),
    }
    for record in known {
        if let Some(merged) = &record.merged_into
            && context::remove(merged, &record.data_dir)?
        {
            any = true;
            let _ = writeln!(out, "removed the context from {}", merged.display());
        }
        if record.temporary && is_scratch(&record.data_dir) {
            // Files that a killed process could not remove.
            any |= allot_images::remove_tree(&record.data_dir).is_ok();
        }
        record.forget();
    }
    Ok(any)
}

/// Stops the server: first gracefully, then with a second signal, finally by force.
fn end_server(process: &ProcessHandle) -> anyhow::Result<()> {
    process.signal(Signal::TERM)?;
    if process.ended_within(SERVER) {
        return Ok(());
    }
    process.signal(Signal::TERM)?;
    if process.ended_within(LATE) {
        return Ok(());
    }
    process.signal(Signal::KILL)?;
    anyhow::ensure!(
        process.ended_within(LATE),
        "process {} was killed and does not end",
        process.pid()
    );
    Ok(())
}

/// A temporary directory that a cluster in memory created. A record alone is not sufficient to remove a directory.
fn is_scratch(directory: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let name = directory.file_name().and_then(|name| name.to_str());
    let own = std::fs::symlink_metadata(directory)
        .is_ok_and(|it| it.is_dir() && it.uid() == rustix::process::geteuid().as_raw());
    own && name.is_some_and(|name| name.starts_with("allot-"))
        && directory.parent() == Some(&std::env::temp_dir())
}
