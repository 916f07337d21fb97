//! `allot bench paths`: the cost of one operation of each hot path.
//!
//! `cargo xtask instructions` counts the instructions of these operations and compares them with
//! tests/paths/instructions.txt. A path is therefore deterministic: one thread, no socket, no disk, fixed input.

mod api;
mod parts;
mod server;

use std::io::{Write as _, stdout};
use std::time::Instant;

use anyhow::Context as _;

use crate::cmd::bounds;

/// Flags of `allot bench paths`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Times depend on the machine and on the build. Instructions are comparable between machines:

  cargo xtask instructions")]
pub struct Args {
    /// Only these paths
    #[arg(long = "path", value_name = "NAME")]
    paths: Vec<String>,
    /// Print the names of the paths and how many operations a measurement has
    #[arg(long)]
    list: bool,
    /// Run as many operations of one path and print nothing, for a program that counts instructions
    #[arg(long, value_name = "NUMBER", hide = true, value_parser = bounds::within(0..=2 * MOST_OPERATIONS))]
    operations: Option<usize>,
}

/// No path has more operations in a measurement.
const MOST_OPERATIONS: usize = 1000;

/// Runs the given number of operations.
type Operation = Box<dyn FnMut(usize) -> anyhow::Result<()>>;

/// A hot path.
struct Path {
    name: &'static str,
    /// Operations of a measurement.
    count: usize,
    /// Makes everything that so many operations need.
    prepare: fn(usize) -> anyhow::Result<Operation>,
}

impl Path {
    const fn new(
        name: &'static str,
        count: usize,
        prepare: fn(usize) -> anyhow::Result<Operation>,
    ) -> Self {
        assert!(count <= MOST_OPERATIONS, "too many operations");
        Path {
            name,
            count,
            prepare,
        }
    }

    /// The preparation is the same however many operations follow, so that the difference of two runs is that of their
    /// operations alone.
    fn prepared(&self) -> anyhow::Result<Operation> {
        (self.prepare)(2 * self.count).with_context(|| format!("{}: prepare", self.name))
    }

    fn run(&self, operation: &mut Operation, times: usize) -> anyhow::Result<()> {
        operation(times).with_context(|| format!("{}: run", self.name))
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    let all = || server::PATHS.iter().chain(parts::PATHS);
    for name in &args.paths {
        anyhow::ensure!(
            all().any(|path| path.name == name),
            "--path {name}: there is no such path; --list prints the names"
        );
    }
    let chosen = all()
        .filter(|path| args.paths.is_empty() || args.paths.iter().any(|name| path.name == name));
    let mut out = stdout();
    for path in chosen {
        if args.list {
            writeln!(out, "{} {}", path.name, path.count)?;
            continue;
        }
        let mut operation = path.prepared()?;
        if let Some(times) = args.operations {
            anyhow::ensure!(
                times <= 2 * path.count,
                "--operations {times}: {} is prepared for {}",
                path.name,
                2 * path.count
            );
            path.run(&mut operation, times)?;
            continue;
        }
        path.run(&mut operation, path.count)?;
        let begin = Instant::now();
        path.run(&mut operation, path.count)?;
        let each = begin.elapsed().as_secs_f64() / path.count as f64;
        writeln!(out, "{:<28} {:>10.1} us", path.name, each * 1e6)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_runs_once_more_than_it_was_prepared_for_a_measurement() {
        for path in server::PATHS.iter().chain(parts::PATHS) {
            let mut operation = (path.prepare)(2).unwrap();
            operation(1).unwrap_or_else(|error| panic!("{}: {error:#}", path.name));
            operation(1).unwrap_or_else(|error| panic!("{}: {error:#}", path.name));
        }
    }
}
