//! `allot store`: maintenance of a store that no server has open.

use std::io::{Write as _, stdout};
use std::path::PathBuf;

/// Flags of `allot store`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Verify every record, repair what an interrupted process left behind
    Check(Place),
    /// Print every object: collection, key, revision and JSON, separated by tabs
    Dump(Place),
    /// Drop the history and make the file as small as possible
    Compact(Place),
}

#[derive(Debug, clap::Args)]
struct Place {
    /// Data directory of the server
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
}

/// Runs the command until it is done or asked to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Check(place) => {
            let report = allot_store::check(&place.data_dir).map_err(|error| match error {
                damage @ allot_store::Error::Corrupt { .. } => anyhow::anyhow!(
                    "{damage}; it cannot be repaired and is as it was: restore a copy, or move it away to begin anew"
                ),
                other => other.into(),
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
        Command::Dump(place) => allot_store::dump(&place.data_dir, &mut stdout().lock())?,
        Command::Compact(place) => {
            let (before, after) = allot_store::compact(&place.data_dir)?;
            writeln!(stdout(), "{before} bytes before, {after} after")?;
        }
    }
    Ok(())
}
