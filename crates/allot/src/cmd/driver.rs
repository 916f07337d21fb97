//! `allot driver`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

mod gpu;
pub mod model;
mod net;
mod new;
mod test;
mod webhook;

/// Default directory of a kubelet.
const KUBELET_DIR: &str = "/var/lib/kubelet";

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
    /// A driver for modelled hardware: publishes the real driver's devices, prepares claims without doing anything
    Model(model::Args),
    /// The network drivers: net.allot.dev, and netresources.spidernet.io of Spiderpool's documents (1.27 to 1.30)
    Net(net::Args),
    /// Write the project of a new driver: sources, tests, image, chart
    New(new::Args),
    /// The test driver of Kubernetes 1.26 to 1.30: its resources are environment variables
    Test(test::Args),
    /// An admission webhook that refuses claims with wrong parameters for gpu.example.com and net.allot.dev
    Webhook(webhook::Args),
}

/// Runs the command until it is done or asked to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.driver {
        Driver::Gpu(args) => gpu::run(args),
        Driver::Model(args) => model::run(args),
        Driver::Net(args) => net::run(args),
        Driver::New(args) => new::run(args),
        Driver::Test(args) => test::run(args),
        Driver::Webhook(args) => webhook::run(args),
    }
}

/// Flags of every driver; before or after the name of its part, if it has parts.
#[derive(Debug, clap::Args)]
#[group(skip)]
struct Shared {
    /// Kubeconfig of the API server; default: $KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Stop when standard input ends, as it does with the process that started this one
    #[arg(long, global = true, hide = true)]
    exit_with_parent: bool,
}

impl Shared {
    /// Stops a component when standard input ends, if requested.
    fn watch_parent(&self, shutdown: &CancellationToken) {
        if !self.exit_with_parent {
            return;
        }
        let shutdown = shutdown.clone();
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            shutdown.cancel();
        });
    }
}

/// Flags of drivers that use the SDK.
#[derive(Debug, clap::Args)]
struct Start {
    /// How long to wait for the kubelet or node agent to create its directory plugins_registry
    #[arg(long, value_name = "SECONDS", default_value_t = allot_driver::KUBELET_TIMEOUT.as_secs(),
        value_parser = clap::value_parser!(u64).range(0..=3600))]
    kubelet_timeout: u64,
}

impl Start {
    fn kubelet_timeout(&self) -> Duration {
        Duration::from_secs(self.kubelet_timeout)
    }
}

/// Flags of the parts that run on a node.
#[derive(Debug, clap::Args)]
#[group(skip)]
struct Directories {
    /// Root directory of the kubelet or node agent
    #[arg(long, value_name = "DIR", default_value = KUBELET_DIR)]
    kubelet_dir: PathBuf,
    /// Directory for CDI files; defaults to /var/run/cdi, or to cdi in another --kubelet-dir
    #[arg(long, value_name = "DIR")]
    cdi_dir: Option<PathBuf>,
}

impl Directories {
    /// Where container runtimes look for CDI files: in their own directory beside a kubelet, and below the directory of a
    /// node agent.
    fn cdi_dir(&self) -> PathBuf {
        match &self.cdi_dir {
            Some(directory) => directory.clone(),
            None if self.kubelet_dir == Path::new(KUBELET_DIR) => "/var/run/cdi".into(),
            None => self.kubelet_dir.join("cdi"),
        }
    }
}
