//! `allot simulate`: what a cluster would do with a workload.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use allot_allocator::Policy;
use allot_scheduler::Config;
use allot_simulate::trace::{self, openb};
use allot_simulate::{Options, Order, Report, Simulation, Workload, compare, fleet};
use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::access::Access;
use super::component::{read_scheduler_config, set_feature_gates};
use super::manifests::{self, check};
use super::snapshot::{Kinds, Snapshot};

mod bench;
mod generate;
mod hardware;

/// Flags of `allot simulate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The scheduler's own code decides, in virtual time: days take seconds, and nothing is
written to a cluster. Pods run for the time in the annotation
simulate.allot.dev/duration or in the trace, or until the end; simulate.allot.dev/arrival
is the time of their creation. The same input gives the same output, byte for byte.

  allot simulate --from cluster -f job.yaml
  allot simulate --hardware h100-mig=4,mi300x=2 -f job.yaml
  allot simulate --from monday.json.gz -f job.yaml --add-node gpu-7=2 --remove-node old-*
  allot simulate --from monday.json.gz --trace week.csv -o json > plan.json
  allot simulate --from monday.json.gz --trace week.csv --policy pack --compare plan.json
  allot simulate --trace pods.csv --trace-nodes nodes.csv --fill --policy least-fragmentation
  allot simulate --bench

docs/simulate.md describes the format of traces and of the report.")]
pub struct Args {
    /// The cluster to start from: `cluster`, or a file that `allot snapshot` wrote; without it the cluster is empty
    #[arg(long, value_name = "FILE|cluster")]
    from: Option<PathBuf>,
    #[command(flatten)]
    access: Access,
    /// File or folder with manifests of the workload; - is standard input. May be repeated
    #[arg(long = "filename", short, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Namespace of objects that name none; default: that of the kubeconfig
    #[arg(long, short, value_parser = super::namespace_name)]
    namespace: Option<String>,
    /// Pods with their times, as CSV or JSON, or the list of pods of an openb trace
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The list of nodes of an openb trace
    #[arg(long, value_name = "FILE")]
    trace_nodes: Option<PathBuf>,
    /// How the GPUs of an openb trace are shared
    #[arg(long, value_enum, default_value_t = Sharing::Capacity)]
    trace_sharing: Sharing,
    /// Add nodes with modelled hardware, see `allot hardware list`. May be repeated
    #[arg(long, value_name = "MODEL=NUMBER")]
    hardware: Vec<String>,
    /// Add nodes like an existing one, with its devices. May be repeated
    #[arg(long, value_name = "LIKE=NUMBER")]
    add_node: Vec<String>,
    /// Remove nodes, with a * at the end all with that prefix; pods of controllers are created again. May be repeated
    #[arg(long, value_name = "NAME")]
    remove_node: Vec<String>,
    /// Which devices and nodes are preferred; default: the scheduler's configuration
    #[arg(long, value_enum)]
    policy: Option<PolicyName>,
    /// KubeSchedulerConfiguration file of the scheduler
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Feature gates of the cluster: Name=true|false; default: those of its release and its metrics
    #[arg(long, value_name = "LIST")]
    feature_gates: Vec<String>,
    /// Draw pods at random from all arrivals until one fits nowhere; none ends
    #[arg(long)]
    fill: bool,
    /// End with the first pod that fits nowhere
    #[arg(long)]
    until_refusal: bool,
    /// End after so much time of the simulation
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    until: Option<Duration>,
    /// Decides everything that is drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often to measure; default: as often as gives some two hundred values
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    sample: Option<Duration>,
    /// How long pods take to stop
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    stopping: Duration,
    /// Show the differences from another simulation, whose report with -o json is in the file
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Report every pod, however many there are
    #[arg(long)]
    pods: bool,
    /// How to print the report
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Measure the simulation itself: 100 000 pods on 5 000 nodes with 40 000 devices, unless changed by --bench-*
    #[arg(long)]
    bench: bool,
    #[command(flatten)]
    size: bench::Size,
    /// Measure how the start of a scheduler and an attempt depend on the number of objects: 1, 10 and 100 thousand
    #[arg(long)]
    bench_growth: bool,
    /// Write a trace in the format of openb into a folder instead, drawn by the seed
    #[arg(long, value_name = "FOLDER")]
    generate: Option<PathBuf>,
}

/// Forms of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For humans
    Text,
    /// One JSON object
    Json,
}

/// How the GPUs of an openb trace are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sharing {
    /// By consumable capacity, any part of them
    Capacity,
    /// By partitions of eighths, quarters and halves
    Partitions,
}

/// Placement policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PolicyName {
    /// As Kubernetes: the first devices in order, on the nodes that its plugins prefer
    FirstFit,
    /// Prefer devices and nodes that are in use already
    Pack,
    /// Prefer unused devices and nodes
    Spread,
    /// What leaves the most for requests of other sizes
    LeastFragmentation,
}

impl From<PolicyName> for Policy {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::FirstFit => Self::FirstFit,
            PolicyName::Pack => Self::BestFit,
            PolicyName::Spread => Self::Spread,
            PolicyName::LeastFragmentation => Self::LeastFragmentation,
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    allot_simulate::time::duration(text).map_err(|error| error.to_string())
}

/// Default number of samples.
const SAMPLES: u32 = 200;

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    if let Some(folder) = &args.generate {
        return generate::write(folder, args.seed, &args.size);
    }
    if args.bench {
        return bench::run(&args.size, args.policy.map(Policy::from));
    }
    if args.bench_growth {
        return bench::growth();
    }
    anyhow::ensure!(
        args.from.is_some() || args.trace.is_some() || !args.file.is_empty(),
        "nothing to simulate: give a workload with -f or --trace, and a cluster with --from or --hardware"
    );
    let documents = manifests::read(&args.file)?;
    let before = args.compare.as_deref().map(read_report).transpose()?;
    let snapshot = snapshot(&args)?;
    let objects = documents.iter().map(|document| &document.object);
    // Devices and claims are validated with the gates of the cluster when they are added.
    let server = check::Server::new(snapshot.release(), objects).without_devices();
    check::check(&documents, &server)?;
    let documents = documents.into_iter().map(|document| document.object);
    let documents: Vec<Value> = documents.collect();
    let report = simulate(&args, snapshot, documents)?;
    print(&args, &report, before.as_ref())
}

/// The cluster to start from.
fn snapshot(args: &Args) -> anyhow::Result<Snapshot> {
    match args.from.as_deref() {
        None => Ok(Snapshot {
            namespace: "default".to_owned(),
            ..Snapshot::default()
        }),
        Some(from) if from == Path::new("cluster") => {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(async {
                let client = args.access.client("allot").await?;
                Snapshot::take(&client, Kinds::All, args.namespace.as_deref()).await
            })
        }
        Some(file) => Snapshot::load(file),
    }
}

fn simulate(args: &Args, snapshot: Snapshot, documents: Vec<Value>) -> anyhow::Result<Report> {
    let features = set_feature_gates(snapshot.features(), &args.feature_gates)?;
    let mut config: Config = read_scheduler_config(args.config.as_deref(), features)?;
    let features = config.features.clone();
    if let Some(policy) = args.policy {
        for profile in &mut config.profiles {
            profile.dynamic_resources.placement = policy.into();
        }
    }
    // Not the time of the day: the same input has to give the same output.
    let start = snapshot.about.time.unwrap_or(Timestamp::UNIX_EPOCH);
    let namespace = args.namespace.clone().unwrap_or(snapshot.namespace);
    let mut cluster = snapshot.objects;
    for object in &mut cluster {
        let current = allot_simulate::prepare::current(object.take(), start)?;
        *object = current;
    }
    let sharing = match args.trace_sharing {
        Sharing::Capacity => openb::Sharing::Capacity,
        Sharing::Partitions => openb::Sharing::Partitions,
    };
    if let Some(file) = &args.trace_nodes {
        let context = || file.display().to_string();
        let table = trace::table(&text(file)?).with_context(context)?;
        cluster.extend(openb::nodes(&table, sharing).with_context(context)?);
    }
    hardware::add(&mut cluster, &args.hardware).context("--hardware")?;
    for pattern in &args.remove_node {
        fleet::remove(&mut cluster, pattern).context("--remove-node")?;
    }
    for text in &args.add_node {
        let (like, count) = fleet::name_and_count(text).context("--add-node")?;
        fleet::add_like(&mut cluster, &like, count).context("--add-node")?;
    }
    let nodes: Vec<Value> = cluster
        .iter()
        .filter(|object| object["kind"] == "Node")
        .cloned()
        .collect();
    let mut workload = Workload::default();
    workload.add(documents, &namespace, &nodes, &features, start)?;
    if let Some(file) = &args.trace {
        add_trace(&mut workload, file, sharing, (&namespace, &features, start))?;
    }
    let is_node = |object: &Value| object["kind"] == "Node";
    anyhow::ensure!(
        workload.arrivals.is_empty() || !nodes.is_empty() || workload.objects.iter().any(is_node),
        "there is no node for the pods: give a cluster with --from, or nodes with --hardware, -f or --trace-nodes"
    );
    let options = Options {
        start,
        seed: args.seed,
        order: if args.fill {
            Order::Fill
        } else {
            Order::AsGiven
        },
        until_refusal: args.until_refusal,
        until: args.until,
        stopping: args.stopping,
        sample: args.sample.unwrap_or_else(|| pause(args, &workload)),
        ..Options::default()
    };
    let mut simulation = Simulation::new(config, options, cluster)?;
    simulation.add_workload(workload)?;
    simulation.run()?;
    let mut report = simulation.report();
    let policy = args.policy.map(|policy| format!("{policy:?}"));
    if let Some(policy) = policy {
        report.about.insert("policy".to_owned(), policy);
    }
    report
        .about
        .insert("seed".to_owned(), args.seed.to_string());
    Ok(report)
}

/// Time between samples.
fn pause(args: &Args, workload: &Workload) -> Duration {
    let ends = workload.arrivals.iter().map(|arrival| {
        let runs = arrival.duration.unwrap_or_default();
        arrival.at.saturating_add(runs)
    });
    let all = match args.fill {
        // One arrives each second, and their end is not known.
        true => Duration::from_secs(workload.arrivals.len() as u64),
        false => ends.max().unwrap_or_default(),
    };
    let all = args.until.map_or(all, |until| all.min(until));
    Duration::from_secs((all / SAMPLES).as_secs().max(1))
}

fn add_trace(
    workload: &mut Workload,
    file: &Path,
    sharing: openb::Sharing,
    (namespace, features, start): (&str, &allot_model::features::Features, Timestamp),
) -> anyhow::Result<()> {
    let context = || file.display().to_string();
    let table = trace::table(&text(file)?).with_context(context)?;
    let added = match openb::is_pods(&table) {
        true => openb::add_pods(workload, &table, sharing, namespace, features, start),
        false => trace::add_table(workload, table, namespace, features, start),
    };
    added.with_context(context)
}

/// The content of a file, which may be compressed.
fn text(file: &Path) -> anyhow::Result<String> {
    let bytes = super::allocate::read(Some(file))?;
    String::from_utf8(bytes).with_context(|| format!("{} is no text", file.display()))
}

fn read_report(file: &Path) -> anyhow::Result<Report> {
    let report = serde_json::from_str(&text(file)?);
    report.with_context(|| format!("{} is no report of allot simulate -o json", file.display()))
}

fn print(args: &Args, report: &Report, before: Option<&Report>) -> anyhow::Result<()> {
    let comparison = before.map(|before| compare::compare(before, report));
    let mut out = std::io::stdout().lock();
    match args.output {
        Format::Text => {
            out.write_all(report.to_text(args.pods).as_bytes())?;
            if let Some(comparison) = comparison {
                writeln!(out)?;
                out.write_all(comparison.to_text().as_bytes())?;
            }
        }
        Format::Json => {
            let mut value = serde_json::to_value(report)?;
            if let Some(comparison) = comparison {
                value["comparison"] = json!(comparison);
            }
            serde_json::to_writer_pretty(&mut out, &value)?;
            writeln!(out)?;
        }
    }
    Ok(())
}
