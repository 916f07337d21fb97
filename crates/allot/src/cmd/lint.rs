//! `allot lint`: what a cluster of some release does to manifests, and which objects they name that do not exist.

use std::io::{Write as _, stdout};
use std::path::PathBuf;

use allot_model::features::Release;
use allot_model::lint::{Effect, lint};

use super::manifests::{self, Document};
use super::snapshot::{Kinds, Source};
use super::{component, count};

mod cross_references;

use cross_references::{CrossReferences, Missing};

/// Flags of `allot lint`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints one line per finding: the place, what happens and why. The exit status is
1 when a field is dropped, an object refused, or something named that is missing.

Names of claims, templates, device classes and requests are looked up in the files.
What is in none of them may be in the cluster: that is a warning, and with --cluster
or --from it is looked up there.

  allot lint -f claims/ --cluster-version 1.34
  allot lint -f app.yaml --cluster")]
pub struct Args {
    /// File or folder with manifests; - is standard input. May be repeated
    #[arg(short, long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    file: Vec<PathBuf>,
    /// Release of the cluster, with its default feature gates; with --cluster or --from that of the cluster
    #[arg(long, value_name = "1.xx")]
    cluster_version: Option<Release>,
    /// Look up referenced objects in the cluster that the files do not contain
    #[arg(long)]
    cluster: bool,
    /// Namespace of objects that do not name one
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    source: Source,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    let now = jiff::Timestamp::now();
    let documents = manifests::read(&args.file)?;
    let snapshot = match args.cluster || args.source.is_given() {
        true => {
            let (source, namespace) = (&args.source, args.namespace.as_deref());
            Some(component::block_on(async move |_| {
                source.snapshot(Kinds::All, namespace).await
            })?)
        }
        false => None,
    };
    let told = snapshot
        .as_ref()
        .and_then(|p| p.about.release.as_deref()?.parse().ok());
    let release = args.cluster_version.or(told).unwrap_or(Release::DEFAULT);
    let namespace = args.namespace.clone();
    let namespace = namespace.or(snapshot.as_ref().map(|p| p.namespace.clone()));
    let across = CrossReferences::new(
        documents.iter().map(|d| &d.object),
        snapshot.as_ref(),
        namespace.as_deref().unwrap_or("default"),
    );
    let (mut losses, mut missing) = (0, 0);
    for document in &documents {
        for finding in lint(&document.object, release, now) {
            let effect = match finding.effect {
                Effect::Refused => "refused",
                Effect::Dropped => "dropped",
                Effect::Warning => "warning",
            };
            losses += usize::from(finding.effect != Effect::Warning);
            print(document, &finding.field, effect, &finding.text)?;
        }
        for Missing { field, text, sure } in across.missing(&document.object) {
            missing += usize::from(sure);
            let effect = if sure { "missing" } else { "warning" };
            print(document, &field, effect, &text)?;
        }
    }
    let lost = match losses {
        0 => None,
        1 => Some(format!("one thing will be lost in Kubernetes {release}")),
        count => Some(format!(
            "{count} things will be lost in Kubernetes {release}"
        )),
    };
    let missing = match missing {
        0 => None,
        number => Some(format!(
            "{} named that {} not exist",
            count(number, "thing"),
            if number == 1 { "does" } else { "do" }
        )),
    };
    match (lost, missing) {
        (None, None) => Ok(()),
        (Some(lost), None) => anyhow::bail!(lost),
        (None, Some(missing)) => anyhow::bail!(missing),
        (Some(lost), Some(missing)) => anyhow::bail!("{lost}; {missing}"),
    }
}

fn print(document: &Document, field: &str, effect: &str, text: &str) -> std::io::Result<()> {
    let line = document.line(&manifests::split_path(field));
    let title = manifests::title(&document.object);
    let file = document.file.display();
    writeln!(
        stdout(),
        "{file}:{line}: {effect}: {title}: {field}: {text}"
    )
}
