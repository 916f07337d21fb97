//! `allot allocate`: solves allocation problems from files.

use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use allot_allocator::explain::Explanation;
use allot_allocator::problem::{NodeResult, Problem};
use allot_allocator::{Allocator, Claims, Cluster, Limits, Node, Outcome, Policy, SelectorCache};
use anyhow::Context as _;
use rand::Rng as _;
use serde::Serialize;

/// Flags of `allot allocate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A problem has nodes, claims, deviceClasses and resourceSlices as in the lists of a
cluster, all in v1 form; features are names of feature gates that are on:

  {\"nodes\": [{\"metadata\": {\"name\": \"a\"}}],
   \"deviceClasses\": [{\"metadata\": {\"name\": \"gpu\"}, \"spec\": {}}],
   \"claims\": [{\"metadata\": {\"name\": \"c\"}, \"spec\": {\"devices\": {\"requests\": [
     {\"name\": \"gpus\", \"exactly\": {\"deviceClassName\": \"gpu\", \"allocationMode\": \"ExactCount\", \"count\": 2}}]}}}],
   \"resourceSlices\": [{\"metadata\": {\"name\": \"s\"}, \"spec\": {\"driver\": \"gpu.example.com\",
     \"nodeName\": \"a\", \"pool\": {\"name\": \"a\", \"generation\": 1, \"resourceSliceCount\": 1},
     \"devices\": [{\"name\": \"gpu-0\"}]}}],
   \"features\": []}

  allot allocate --explain -o text problem.json")]
pub struct Args {
    /// Problems as JSON objects, one after the other; may be gzipped. Standard input when absent or `-`
    file: Option<PathBuf>,
    /// Show for each request which devices exist and why they were not allocated
    #[arg(long)]
    explain: bool,
    /// Add the time that each node took, in microseconds
    #[arg(long)]
    time: bool,
    /// Which of several possible devices to take
    #[arg(long, value_enum, default_value_t = PolicyName::FirstFit)]
    policy: PolicyName,
    /// Maximum number of search decisions per node
    #[arg(long, value_name = "STEPS", default_value_t = Limits::DEFAULT_STEPS)]
    budget: u64,
    /// Reproduce the known bugs of this version of Kubernetes, to compare results with it
    #[arg(long, value_enum, default_value_t = Compat::Kubernetes136)]
    compat: Compat,
    /// How to print the results
    #[arg(long, short, value_enum, default_value_t = Format::Json)]
    output: Format,
}

/// Names of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PolicyName {
    /// The first in the order of drivers, pools, slices and devices, as Kubernetes does
    FirstFit,
    /// The one that leaves the least behind that others could need
    BestFit,
}

/// Whose errors to repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Compat {
    /// Bugs of Kubernetes 1.36 with shared counters and "all"
    #[value(name = "1.36")]
    Kubernetes136,
    /// No bugs
    None,
}

/// Forms of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One JSON object per problem and line
    Json,
    /// One line per node
    Text,
}

/// The answers to one problem.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    name: String,
    results: Vec<NodeAnswer>,
    /// All nodes and the preparation of the claims, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_micros: Option<f64>,
}

#[derive(Serialize)]
struct NodeAnswer {
    #[serde(flatten)]
    result: NodeResult,
    /// The search ended without a result.
    #[serde(rename = "gaveUp", skip_serializing_if = "std::ops::Not::not")]
    gave_up: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Explanation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    micros: Option<f64>,
}

/// Runs the command until it is done or asked to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    let input = read(args.file.as_deref())?;
    let mut output = BufWriter::new(std::io::stdout().lock());
    let selectors = SelectorCache::new();
    let policy = match args.policy {
        PolicyName::FirstFit => Policy::FirstFit,
        PolicyName::BestFit => Policy::BestFit,
    };
    let mut allocator = Allocator::with_policy(policy);
    for (index, problem) in serde_json::Deserializer::from_slice(&input)
        .into_iter::<Problem>()
        .enumerate()
    {
        let mut problem =
            problem.with_context(|| format!("problem {} cannot be read", index + 1))?;
        // All fields have defaults, so any other JSON is accepted here.
        let asks =
            problem.node.is_some() || !problem.nodes.is_empty() || !problem.claims.is_empty();
        anyhow::ensure!(
            asks,
            "problem {} asks nothing: it has neither nodes nor claims",
            index + 1
        );
        problem.upstream_errors = args.compat == Compat::Kubernetes136;
        let answer = solve(&args, &mut allocator, &selectors, &problem);
        match args.output {
            Format::Json => {
                serde_json::to_writer(&mut output, &answer)?;
                writeln!(output)?;
            }
            Format::Text => print(&mut output, &answer)?,
        }
    }
    output.flush()?;
    Ok(())
}

/// The bytes of a file, or of standard input when it is absent or `-`; decompressed if need be.
///
/// # Errors
/// It cannot be read or decompressed; the message names it.
pub fn read(file: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match file {
        Some(path) if path != Path::new("-") => {
            bytes =
                std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        }
        _ => {
            std::io::stdin()
                .lock()
                .read_to_end(&mut bytes)
                .context("cannot read standard input")?;
        }
    }
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        flate2::read::MultiGzDecoder::new(bytes.as_slice())
            .read_to_end(&mut plain)
            .with_context(|| match file {
                Some(path) => format!("cannot decompress {}", path.display()),
                None => "cannot decompress standard input".to_owned(),
            })?;
        return Ok(plain);
    }
    Ok(bytes)
}

fn solve(
    args: &Args,
    allocator: &mut Allocator,
    selectors: &SelectorCache,
    problem: &Problem,
) -> Answer {
    let cluster = problem.cluster();
    let nodes = problem.nodes();
    let start = Instant::now();
    let claims = problem.claims(selectors);
    let mut total = start.elapsed();
    let mut results = Vec::with_capacity(nodes.len());
    for node in &nodes {
        let (answer, took) = solve_node(args, allocator, &cluster, node, &claims);
        total += took;
        results.push(answer);
    }
    Answer {
        name: problem.name.clone(),
        results,
        total_micros: args.time.then(|| micros(total)),
    }
}

fn solve_node(
    args: &Args,
    allocator: &mut Allocator,
    cluster: &Cluster,
    node: &Node,
    claims: &Claims,
) -> (NodeAnswer, Duration) {
    let limits = Limits {
        steps: args.budget,
        ..Limits::default()
    };
    let mut result = NodeResult {
        node: node.name().to_string(),
        ..NodeResult::default()
    };
    let start = Instant::now();
    let outcome = allocator.allocate(cluster, node, claims, &limits);
    let mut gave_up = false;
    match &outcome {
        Outcome::Allocated(found) => match found.results(claims, &mut share_id) {
            Ok(results) => result.allocations = Some(results),
            Err(error) => result.error = Some(error.to_string()),
        },
        Outcome::DoesNotFit | Outcome::Interrupted => {}
        Outcome::Failed(error) => result.error = Some(error.to_string()),
        Outcome::GaveUp { .. } => gave_up = true,
    }
    let took = start.elapsed();
    let explanation = args
        .explain
        .then(|| allocator.explain(cluster, node, claims, &limits).1);
    let micros = args.time.then(|| micros(took));
    (
        NodeAnswer {
            result,
            gave_up,
            explanation,
            micros,
        },
        took,
    )
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1000.0
}

/// A new UUID of version 4.
fn share_id() -> String {
    let bits: u128 = rand::rng().random();
    let bits = bits & !(0xf << 76) | 4 << 76;
    let bits = bits & !(0b11 << 62) | 0b10 << 62;
    let text = format!("{bits:032x}");
    format!(
        "{}-{}-{}-{}-{}",
        &text[..8],
        &text[8..12],
        &text[12..16],
        &text[16..20],
        &text[20..]
    )
}

fn print(output: &mut impl Write, answer: &Answer) -> std::io::Result<()> {
    for node in &answer.results {
        if !answer.name.is_empty() {
            write!(output, "{} ", answer.name)?;
        }
        write!(output, "{}: ", node.result.node)?;
        match (&node.explanation, &node.result) {
            (Some(explanation), _) => write!(output, "{}", explanation.line)?,
            (
                _,
                NodeResult {
                    error: Some(error), ..
                },
            ) => write!(output, "{error}")?,
            (
                _,
                NodeResult {
                    allocations: Some(allocations),
                    ..
                },
            ) => {
                write!(output, "fits:")?;
                for result in allocations
                    .iter()
                    .filter_map(|a| a.devices.as_ref()?.results.as_ref())
                    .flatten()
                {
                    write!(
                        output,
                        " {}={}/{}/{}",
                        result.request, result.driver, result.pool, result.device
                    )?;
                }
            }
            _ if node.gave_up => write!(output, "gave up, the answer is not known")?,
            _ => write!(output, "does not fit")?,
        }
        match node.micros {
            Some(micros) => writeln!(output, " ({micros:.1} µs)")?,
            None => writeln!(output)?,
        }
    }
    Ok(())
}
