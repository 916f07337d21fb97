//! `allot completion`: shell completion scripts.

use std::io::Write;

use clap::CommandFactory;

/// Flags of `allot completion`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell to write the script for
    shell: clap_complete::Shell,
}

/// Writes the completion script to standard output.
pub fn run(args: Args) -> anyhow::Result<()> {
    // It panics when it cannot write, for instance because a pager was closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "allot", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}
