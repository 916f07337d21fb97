//! `allot bench`: measures a cluster through its API.

mod api;
mod fleet;
mod measure;
mod node;
mod paths;
mod scheduling;
mod workloads;

/// Flags of `allot bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Measure how fast an API server creates, changes, lists and delivers objects
    Api(api::Args),
    /// Start clusters of simulated nodes and measure how long that takes and what they cost
    Fleet(fleet::Args),
    /// Measure how long a node takes until pods run
    Node(node::Args),
    /// Measure what one operation of each hot path costs
    Paths(paths::Args),
    /// Create the objects of a workload and measure how fast its pods get scheduled
    Scheduling(scheduling::Args),
}

/// Runs the command until it is done or asked to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.what {
        What::Api(args) => api::run(args),
        What::Fleet(args) => fleet::run(args),
        What::Node(args) => node::run(args),
        What::Paths(args) => paths::run(args),
        What::Scheduling(args) => scheduling::run(args),
    }
}
