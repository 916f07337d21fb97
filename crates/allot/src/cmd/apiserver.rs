//! `allot apiserver`.

/// Flags of `allot apiserver`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command until it is done or told to stop.
pub fn run(_args: Args) -> anyhow::Result<()> {
    anyhow::bail!("`allot apiserver` is not part of this build yet")
}
