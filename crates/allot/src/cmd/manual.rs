//! `allot manual`: manual pages, for packages.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::CommandFactory as _;

/// Flags of `allot manual`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of the pages, one for each command
    directory: PathBuf,
}

/// Writes the pages.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let directory = &args.directory;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(crate::Cli::command(), directory))
        .with_context(|| format!("cannot write manual pages to {}", directory.display()))
}
