//! `allot completion`: shell completion scripts.

use clap::CommandFactory;

/// Flags of `allot completion`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell to write the script for
    shell: clap_complete::Shell,
}

/// Writes the completion script to standard output.
pub fn run(args: Args) -> anyhow::Result<()> {
    clap_complete::generate(
        args.shell,
        &mut crate::Cli::command(),
        "allot",
        &mut std::io::stdout(),
    );
    Ok(())
}
