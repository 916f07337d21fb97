//! `allot lint`: what a cluster of some release does to manifests.

use std::io::{Write as _, stdout};
use std::path::PathBuf;

use allot_model::features::Release;
use allot_model::lint::{Effect, lint};

use super::manifests;

/// Flags of `allot lint`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints one line per finding: the place, what happens and why. The exit status is
1 when a field is dropped or an object refused.

  allot lint -f claims/ --cluster-version 1.34")]
pub struct Args {
    /// File or folder with manifests; - is standard input. May be repeated
    #[arg(short, long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    file: Vec<PathBuf>,
    /// Release of the cluster, with its default feature gates
    #[arg(long, value_name = "1.xx", default_value_t = Release::NEWEST)]
    cluster_version: Release,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    let now = jiff::Timestamp::now();
    let mut losses = 0;
    for document in manifests::read(&args.file)? {
        for finding in lint(&document.object, args.cluster_version, now) {
            let effect = match finding.effect {
                Effect::Refused => "refused",
                Effect::Dropped => "dropped",
                Effect::Warning => "warning",
            };
            losses += usize::from(finding.effect != Effect::Warning);
            let line = document.line(&manifests::split_path(&finding.field));
            let title = manifests::title(&document.object);
            writeln!(
                stdout(),
                "{}:{line}: {effect}: {title}: {}: {}",
                document.file.display(),
                finding.field,
                finding.text
            )?;
        }
    }
    match losses {
        0 => Ok(()),
        1 => anyhow::bail!(
            "one thing will be lost in Kubernetes {}",
            args.cluster_version
        ),
        count => anyhow::bail!(
            "{count} things will be lost in Kubernetes {}",
            args.cluster_version
        ),
    }
}
