//! `allot lint`: what a cluster of some release does to manifests, and which objects they name that do not exist.

use std::io::{Write as _, stdout};

use allot_model::features::Release;
use allot_model::lint::{Effect, lint};

use super::manifests::{self, Document, Files, check};
use super::snapshot::{Kinds, Served, Snapshot, Source, definitions};
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

Objects of other kinds are refused for what the API server refuses: fields that they do
not have, values, misspelt kinds. Custom resources need their definition, in the files
or with --cluster.

  allot lint claims/ --cluster-version 1.34
  allot lint app.yaml --cluster")]
pub struct Args {
    #[command(flatten)]
    files: Files,
    /// Release of the cluster, with its default feature gates; with --cluster or --from that of the cluster
    #[arg(long, value_name = "1.xx")]
    cluster_version: Option<Release>,
    /// Look up referenced objects in the cluster that the files do not contain
    #[arg(long)]
    cluster: bool,
    /// Namespace of objects that do not name one
    #[arg(long, short, value_name = "NAME", value_parser = super::namespace_name)]
    namespace: Option<String>,
    #[command(flatten)]
    source: Source,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    let now = jiff::Timestamp::now();
    let documents = args.files.read()?;
    let (snapshot, custom, served) = match args.cluster || args.source.is_given() {
        true => {
            let (source, namespace) = (&args.source, args.namespace.as_deref());
            let other_release = args.cluster_version;
            let custom = check::undefined(&documents);
            let (snapshot, custom, served) = component::read(async move {
                let (snapshot, client) = source.snapshot_and_client(Kinds::All, namespace).await?;
                let Some(client) = client else {
                    return anyhow::Ok((snapshot, Vec::new(), Vec::new()));
                };
                // The cluster serves the versions of its own release, which another one need not have.
                let served = match other_release {
                    Some(_) => Vec::new(),
                    None => Served::versions(&client, allot_model::GROUP).await?,
                };
                Ok((snapshot, definitions(&client, custom).await, served))
            })?;
            (Some(snapshot), custom, served)
        }
        false => (None, Vec::new(), Vec::new()),
    };
    let told = snapshot.as_ref().map(Snapshot::release);
    let release = args.cluster_version.or(told).unwrap_or(Release::DEFAULT);
    let objects = documents.iter().map(|document| &document.object);
    let server = check::Server::new(release, objects.chain(&custom));
    let namespace = args.namespace.clone();
    let namespace = namespace.or(snapshot.as_ref().map(|p| p.namespace.clone()));
    let across = CrossReferences::new(
        documents.iter().map(|d| &d.object),
        snapshot.as_ref(),
        namespace.as_deref().unwrap_or("default"),
    );
    let (mut losses, mut missing) = (0, 0);
    for document in &documents {
        for finding in lint(&document.object, release, &served, now) {
            let effect = match finding.effect {
                Effect::Refused => "refused",
                Effect::Dropped => "dropped",
                Effect::Warning => "warning",
            };
            losses += usize::from(finding.effect != Effect::Warning);
            print(document, &finding.field, effect, &finding.text)?;
        }
        if check::group(&document.object) != allot_model::GROUP {
            for (field, text) in server.problems(&document.object) {
                losses += 1;
                print(document, &field, "refused", &text)?;
            }
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
    let field = match field.is_empty() {
        true => String::new(),
        false => format!("{field}: "),
    };
    writeln!(stdout(), "{file}:{line}: {effect}: {title}: {field}{text}")
}
