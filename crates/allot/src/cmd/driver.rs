//! `allot driver`.

mod gpu;
mod net;
mod test;

/// Flags of `allot driver`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    driver: Driver,
}

#[derive(Debug, clap::Subcommand)]
enum Driver {
    /// The example GPU driver gpu.example.com: modelled GPUs, no hardware
    Gpu(gpu::Args),
    /// The network driver of Spiderpool's documents, netresources.spidernet.io, for Kubernetes 1.27 to 1.30
    Net(net::Args),
    /// The test driver of Kubernetes 1.26 to 1.30: its resources are environment variables
    Test(test::Args),
}

/// Runs the command until it is done or told to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.driver {
        Driver::Gpu(args) => gpu::run(args),
        Driver::Net(args) => net::run(args),
        Driver::Test(args) => test::run(args),
    }
}

/// Stops a component when standard input ends, as it does with the process that started this one.
fn exit_with_parent(shutdown: &tokio_util::sync::CancellationToken) {
    let shutdown = shutdown.clone();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        shutdown.cancel();
    });
}
