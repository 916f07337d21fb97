//! `allot store`: maintenance of a store that no server has open.

use std::io::{Write as _, stdout};

use crate::clusters::{ClusterSelection, flags};

/// Flags of `allot store`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Verify every record, repair what an interrupted process left behind
    Check(ClusterSelection),
    /// Print every object: collection, key, revision and JSON, separated by tabs
    Dump(ClusterSelection),
    /// Drop the history and make the file as small as possible
    Compact(ClusterSelection),
}

/// Runs the command until it is done or asked to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Check(which) => {
            let report = allot_store::check(&which.directory()?).map_err(|error| match error {
                damage @ allot_store::Error::Corrupt { .. } => anyhow::anyhow!(
                    "{damage}; it cannot be repaired and is as it was: restore a copy, or move it away to begin anew"
                ),
                other => stopped(other, &which),
            })?;
            writeln!(
                stdout(),
                "{}: intact{}",
                report.path.display(),
                if report.repaired { " (repaired)" } else { "" }
            )?;
            writeln!(
                stdout(),
                "revision {}, {} bytes, {} changes kept for watches",
                report.revision,
                report.bytes,
                report.window
            )?;
            for (collection, count) in report.collections {
                writeln!(stdout(), "{count:>8} {collection}")?;
            }
        }
        Command::Dump(which) => {
            let dumped = allot_store::dump(&which.directory()?, &mut stdout().lock());
            dumped.map_err(|error| stopped(error, &which))?;
        }
        Command::Compact(which) => {
            let done = allot_store::compact(&which.directory()?);
            let (before, after) = done.map_err(|error| stopped(error, &which))?;
            writeln!(stdout(), "{before} bytes before, {after} after")?;
        }
    }
    Ok(())
}

/// The error, with what to do about a server that uses the store.
fn stopped(error: allot_store::Error, which: &ClusterSelection) -> anyhow::Error {
    match (&error, which.directory()) {
        (allot_store::Error::Locked { .. }, Ok(directory)) => {
            let flags = flags(which.name.as_deref(), &directory);
            anyhow::anyhow!(
                "{error}; stop the server first, `allot down{flags}` if it is `allot up`"
            )
        }
        _ => error.into(),
    }
}
