//! `allot explain`: why a pod does not get its devices, node by node; without a name, why pods are pending.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::component::read_scheduler_config;
use super::manifests::{self, Document, check};
use super::snapshot::{Kinds, Snapshot, Source, definitions, read_events};
use super::{component, output};
use crate::command_line::is_manifest;

mod claim;
mod cluster_objects;
mod deletion;
mod pending;
mod quota;
mod replicas;
mod report;
mod served;

use cluster_objects::{AddedPods, ClusterObjects, LoadedScheduler};
use pending::Pending;
use report::Report;
pub use served::answers;

/// Flags of `allot explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Asks the scheduler's own code about a pod that waits, on a cluster or on a snapshot
of one; without a name about all that wait, those with the same reason together.
Nothing is written. Objects in files are added to what there is, or take the place of
what has their name: a pod that does not exist yet, a workload with its replicas, more
nodes and slices, a changed claim. What kubectl get -o yaml wrote is taken as well.

  allot explain                   all pods of the namespace that wait; -A: of all
  allot explain train-0 -n team
  allot explain claim/shared
  allot explain train-0 -n team --from monday.json.gz -f two-more-nodes.yaml
  allot explain -f deployment.yaml -o json

A pod on a node is explained to its start: a driver that is not registered there, what
the kubelet says of its claims, the binding conditions that its devices wait for.

A pod of a gang (PodGroup, with the gates GenericWorkload and GangScheduling) is judged
with its gang: whether that is placed, and which of its pods lacks what.

It requires permission to list the objects that decide where pods go. Where pods or claims of other
namespaces are not shown, \"does not fit\" is still true, and \"fits\" is a maybe.

The exit status is 0 when all that was asked about fits or runs, 1 when something does
not, 2 after an error, 3 when there is no such pod, claim or namespace.")]
pub struct Args {
    /// Name of the pod, or claim/NAME; default: all pending pods, or with -f the pods of the files
    #[arg(conflicts_with = "all_namespaces")]
    pod: Option<String>,
    /// The name, if the word before it is a kind, as for kubectl
    #[arg(hide = true, requires = "pod")]
    name: Option<String>,
    /// Namespace of the pod; default: that of the kubeconfig
    #[arg(long, short, value_parser = super::namespace_name)]
    namespace: Option<String>,
    /// All pending pods, in all namespaces
    #[arg(long, short = 'A', conflicts_with_all = ["namespace", "file"])]
    all_namespaces: bool,
    /// File or folder with manifests to add; - is standard input. May be repeated
    #[arg(long = "filename", short, value_name = "FILE")]
    file: Vec<PathBuf>,
    #[command(flatten)]
    source: Source,
    /// KubeSchedulerConfiguration file of the scheduler
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Feature gates of the cluster: Name=true|false; default: those of its release and its metrics
    #[arg(long, value_name = "LIST")]
    feature_gates: Vec<String>,
    /// How to print the answer
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// Forms of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Nodes with the same reason together
    Text,
    /// One JSON object per line: for each pod with every node, or for each reason with its pods
    Json,
    /// The same as YAML documents
    Yaml,
}

/// Before the name of a pod.
const PODS: &[&str] = &["pod/", "pods/", "po/"];
/// Before the name of a claim.
const CLAIMS: &[&str] = &["claim/", "claims/", "resourceclaim/", "resourceclaims/"];

/// There is no such pod or claim.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotFound(pub String);

/// The result; the worst one determines the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Everything fits or runs.
    Fits,
    /// A pod or claim does not fit.
    DoesNotFit,
    /// There was an error, which has been printed.
    Failed,
}

impl Outcome {
    fn of(fits: bool) -> Self {
        match fits {
            true => Self::Fits,
            false => Self::DoesNotFit,
        }
    }
}

/// Runs the command. Its help describes the exit status.
pub fn run(args: Args) -> ExitCode {
    match component::read(answer(args)) {
        Ok(Outcome::Fits) => ExitCode::SUCCESS,
        Ok(Outcome::DoesNotFit) => ExitCode::from(1),
        Ok(Outcome::Failed) => ExitCode::from(2),
        Err(error) => {
            crate::print_error(&error);
            match error.is::<NotFound>() {
                true => ExitCode::from(3),
                false => ExitCode::from(2),
            }
        }
    }
}

async fn answer(mut args: Args) -> anyhow::Result<Outcome> {
    if let (Some(kind), Some(name)) = (&args.pod, args.name.take()) {
        let known = PODS.iter().chain(CLAIMS);
        anyhow::ensure!(
            known
                .copied()
                .any(|known| known.strip_suffix('/') == Some(kind.as_str())),
            "one pod or claim at a time: {kind}, or {name}; without a name all pending pods are explained"
        );
        args.pod = Some(format!("{kind}/{name}"));
    }
    let documents = manifests::read(&args.file)?;
    let json = args.output != Format::Text;
    let (snapshot, namespace, client) = read_cluster(&args).await?;
    let features = component::set_feature_gates(snapshot.features(), &args.feature_gates)?;
    let config = read_scheduler_config(args.config.as_deref(), features)?;
    let custom = match &client {
        Some(client) => definitions(client, check::undefined(&documents)).await,
        None => Vec::new(),
    };
    let objects = documents.iter().map(|document| &document.object);
    let server = check::Server::new(snapshot.release(), objects.chain(&custom));
    check::check(&documents, &server)?;
    if let (Some(age), false) = (snapshot.age(), json) {
        eprintln!("{age}");
    }
    if let Some(missing) = missing_namespace(&snapshot, &namespace).filter(|_| !args.all_namespaces)
    {
        // Nothing waits where nothing can be; pods in files may come with their namespace.
        if args.pod.is_none() && args.file.is_empty() {
            return Err(NotFound(missing).into());
        }
        eprintln!("warning: {missing}");
    }
    let cluster = ClusterObjects::new(snapshot, namespace.clone());
    let mut cluster = cluster.with_features(config.features.clone());
    let added = documents.into_iter().map(|Document { object, .. }| object);
    let added = cluster.add(added.collect())?;
    let mut loaded = cluster.load(config)?;
    let mut out: Box<dyn Write> = match args.output {
        Format::Text => Box::new(output::text()),
        format => output::lines(format == Format::Yaml),
    };
    let out = &mut out;
    let Some(name) = args.pod else {
        return match args.file.is_empty() {
            true => {
                let namespace = Some(&*namespace).filter(|_| !args.all_namespaces);
                // With --all-namespaces, the pods of every namespace are needed.
                if let Some(pods) = loaded.unseen("Pod", namespace.unwrap_or_default()) {
                    let place = match namespace {
                        Some(namespace) => format!("in namespace {namespace}"),
                        None => "in all namespaces".to_owned(),
                    };
                    anyhow::bail!("pods {place} are not shown: no right to list {pods}");
                }
                let pending = Pending::new(&mut loaded, namespace);
                pending.print(out, json)?;
                Ok(pending.outcome())
            }
            false => of_files(&mut loaded, &added, out, json),
        };
    };
    if let Some(name) = prefixed(&name, CLAIMS) {
        return claim::explain(&mut loaded, &namespace, name, out, json);
    }
    let bare = prefixed(&name, PODS).unwrap_or(&name);
    anyhow::ensure!(
        !is_manifest(Path::new(bare)) || !Path::new(bare).exists(),
        "{name} is a file: `allot explain -f {name}` explains the pods in it"
    );
    anyhow::ensure!(
        !bare.contains('/'),
        "{name} is no pod: name one of its pods, or give its manifest with -f"
    );
    let report = Report::new(&mut loaded, &namespace, bare)?;
    report.print(out, json)?;
    Ok(Outcome::of(report.lacks_nothing()))
}

/// The state of the cluster, with warnings about it; the namespace, and the client unless it was in a file.
async fn read_cluster(args: &Args) -> anyhow::Result<(Snapshot, String, Option<kube::Client>)> {
    let wanted = args.namespace.as_deref();
    let (mut snapshot, client) = args.source.snapshot_and_client(Kinds::All, wanted).await?;
    let namespace = args.namespace.clone().unwrap_or(snapshot.namespace.clone());
    let in_files_only = args.pod.is_none() && !args.file.is_empty();
    if let (Some(client), false) = (&client, in_files_only) {
        let within = Some(&*namespace).filter(|_| !args.all_namespaces);
        let pod = args.pod.as_deref().filter(|pod| !pod.contains('/'));
        snapshot
            .objects
            .extend(read_events(client, within, pod).await);
    }
    Ok((snapshot, namespace, client))
}

/// What to say of a namespace that does not exist, if those that do are known.
fn missing_namespace(snapshot: &Snapshot, namespace: &str) -> Option<String> {
    let all = snapshot.objects.iter();
    let all = all.filter(|object| object["kind"] == "Namespace");
    let names: Vec<&str> = all
        .filter_map(|object| object["metadata"]["name"].as_str())
        .collect();
    if names.is_empty() || !snapshot.has_all("Namespace") || names.contains(&namespace) {
        return None;
    }
    let hint = allot_apimachinery::suggest::hint(namespace, names);
    Some(format!("there is no namespace {namespace}{hint}"))
}

fn prefixed<'a>(name: &'a str, prefixes: &[&str]) -> Option<&'a str> {
    prefixes.iter().find_map(|prefix| name.strip_prefix(prefix))
}

/// Answers about the pods and workloads of files.
fn of_files(
    loaded: &mut LoadedScheduler,
    added: &AddedPods,
    out: &mut impl Write,
    json: bool,
) -> anyhow::Result<Outcome> {
    let AddedPods { pods, workloads } = added;
    anyhow::ensure!(
        !pods.is_empty() || !workloads.is_empty(),
        "no pod is named, and none is in the files"
    );
    let (mut outcome, mut result) = (Outcome::Fits, Ok(()));
    for (namespace, name) in pods {
        match Report::new(loaded, namespace, name) {
            Ok(report) => {
                report.print(out, json)?;
                outcome = outcome.max(Outcome::of(report.lacks_nothing()));
            }
            // The other pods are still explained.
            Err(error) => {
                if let Err(before) = std::mem::replace(&mut result, Err(error)) {
                    crate::print_error(&before);
                }
            }
        }
    }
    for workload in workloads {
        let fits = replicas::explain(loaded, workload, out, json)?;
        outcome = outcome.max(Outcome::of(fits));
    }
    result.map(|()| outcome)
}

#[cfg(test)]
mod tests;
