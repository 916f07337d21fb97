//! `allot explain`: why a pod does not get its devices, node by node.

use std::path::PathBuf;

use anyhow::Context as _;

use super::scheduler::read_config;
use super::snapshot::{Kinds, Source};
use super::{component, manifests};

mod report;
mod served;
mod world;

use report::Report;
pub use served::answers;
use world::World;

/// Flags of `allot explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Asks the scheduler's own code about a pod that waits, on a cluster or on a snapshot
of one. Nothing is written. Objects in files are added to what there is, or take the
place of what has their name: a pod that does not exist yet, more nodes and slices,
a changed claim.

  allot explain train-0 -n team
  allot explain train-0 -n team --from monday.json.gz -f two-more-nodes.yaml
  allot explain -f pod.yaml -o json

A pod of a gang (PodGroup, with the gates GenericWorkload and GangScheduling) is judged
with its gang: whether that is placed, and which of its pods lacks what.

It takes the right to list what decides where pods go. Where pods or claims of other
namespaces are not shown, \"does not fit\" is still true, and \"fits\" is a maybe.")]
pub struct Args {
    /// Name of the pod; all pods of the files when absent
    #[arg(required_unless_present = "file")]
    pod: Option<String>,
    /// Namespace of the pod; default: that of the kubeconfig
    #[arg(long, short)]
    namespace: Option<String>,
    /// File or folder with manifests to add; - is standard input. May be repeated
    #[arg(long = "filename", short, value_name = "FILE")]
    file: Vec<PathBuf>,
    #[command(flatten)]
    source: Source,
    /// KubeSchedulerConfiguration file of the scheduler
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Features of the cluster to switch: Name=true|false; default: what its release and its metrics say
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
    /// One JSON object per pod and line, with every node
    Json,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    let documents = manifests::read(&args.file)?;
    component::block_on(async move |_| {
        let namespace = args.namespace.as_deref();
        let picture = args.source.picture(Kinds::All, namespace).await?;
        let mut features = picture.features();
        for gates in &args.feature_gates {
            features.set(gates).context("--feature-gates")?;
        }
        let config = read_config(args.config.as_deref(), features)?;
        let namespace = args.namespace.unwrap_or(picture.namespace.clone());
        if let (Some(age), Format::Text) = (picture.age(), args.output) {
            eprintln!("{age}");
        }
        let mut world = World::new(picture, namespace.clone());
        let added = documents.into_iter().map(|document| document.object);
        let new_pods = world.add(added.collect())?;
        let pods = match args.pod {
            Some(name) => {
                let prefixes = ["pod/", "pods/", "po/"];
                let bare = prefixes.iter().find_map(|p| name.strip_prefix(p));
                let bare = bare.unwrap_or(&name);
                anyhow::ensure!(
                    !bare.contains('/'),
                    "{name} is no pod: name one of its pods, or give its manifest with -f"
                );
                vec![(namespace, bare.to_owned())]
            }
            None => new_pods,
        };
        anyhow::ensure!(
            !pods.is_empty(),
            "no pod is named, and none is in the files"
        );
        let mut loaded = world.load(config)?;
        let mut result = Ok(());
        for (namespace, name) in &pods {
            match Report::new(&mut loaded, namespace, name) {
                Ok(report) => {
                    report.print(&mut std::io::stdout().lock(), args.output == Format::Json)?;
                }
                // The others have their answers all the same.
                Err(error) => {
                    if let Err(before) = std::mem::replace(&mut result, Err(error)) {
                        eprintln!("error: {before}");
                    }
                }
            }
        }
        result
    })
}
