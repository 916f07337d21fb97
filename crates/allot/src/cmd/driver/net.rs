//! `allot driver net`.

use std::path::PathBuf;

use allot_driver::classic::LeaderElection;
use allot_driver_net::interfaces::Interface;
use allot_driver_net::v1;
use allot_driver_net::{DRIVER_NAME, controller, plugin};
use tokio_util::sync::CancellationToken;

use super::{Directories, Shared, Start};
use crate::cmd::{bounds, component};

/// Flags of `allot driver net`; they may precede or follow the subcommand.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
For resource.k8s.io/v1, net.allot.dev, on every node:

  allot driver net node --node-name $(hostname)
  allot driver net node --node-name node-0 --kubelet-dir DIR/nodes/node-0 --interface 'eth*'

For Kubernetes 1.27 to 1.30, netresources.spidernet.io, the controller once per cluster, the plugin on every node:

  allot driver net controller --leader-elect
  allot driver net kubelet-plugin --node-name $(hostname)
  allot driver net kubelet-plugin --node-name node-0 --kubelet-dir DIR/nodes/node-0 \\
    --interface eth0=172.18.0.2/16 --interface eth1=10.0.0.2/24,rdma")]
pub struct Args {
    #[command(flatten)]
    shared: Shared,
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Run the driver for resource.k8s.io/v1, once per node
    Node(Node),
    /// Attach an interface of a claim to the network namespace of a container: the hook that container runtimes run
    #[command(hide = true)]
    Attach(Attach),
    /// Run the controller that answers the scheduler, once per cluster (1.27 to 1.30)
    Controller(Controller),
    /// Run the kubelet plugin that prepares claims, once per node (1.27 to 1.30)
    KubeletPlugin(Plugin),
}

#[derive(Debug, clap::Args)]
struct Node {
    /// Name of the node this process runs on
    #[arg(long, env = "NODE_NAME")]
    node_name: String,
    #[command(flatten)]
    directories: Directories,
    #[command(flatten)]
    start: Start,
    /// Publish interfaces whose name matches this pattern, in which * stands for any characters. May be repeated; defaults to
    /// hardware, bonds and VLANs
    #[arg(long, value_name = "PATTERN")]
    interface: Vec<String>,
    /// Maximum number of interfaces created from each device; with more than one, several claims share a device
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    shares: u32,
    /// Program that container runtimes run to attach pods; defaults to a copy of this one in the driver's directory
    #[arg(long, value_name = "FILE")]
    hook: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Attach {
    /// File with the plan of the claim
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,
    /// Key of the device in the plan
    #[arg(long, value_name = "NAME")]
    device: String,
}

#[derive(Debug, clap::Args)]
struct Controller {
    /// How many claims and pods are processed concurrently
    #[arg(long, value_name = "N", default_value_t = controller::Config::default().workers, value_parser = bounds::within(bounds::PARALLEL))]
    workers: usize,
    /// Work only while holding a Lease, so that other replicas can stand by
    #[arg(long)]
    leader_elect: bool,
    /// Namespace of the Lease
    #[arg(long, value_name = "NAME", default_value = allot_driver_net::SYSTEM_NAMESPACE)]
    leader_elect_resource_namespace: String,
}

#[derive(Debug, clap::Args)]
struct Plugin {
    /// Name of the node this process runs on
    #[arg(long, env = "NODE_NAME")]
    node_name: String,
    #[command(flatten)]
    directories: Directories,
    /// Report this interface instead of those of the machine: NAME=ADDRESS/PREFIX,rdma,down. May be repeated
    #[arg(long, value_name = "INTERFACE")]
    interface: Vec<Interface>,
    /// Library for containers whose claim requests RDMA acceleration
    #[arg(long, value_name = "FILE")]
    host_device_path: Option<PathBuf>,
}

/// Runs the command until it is done or asked to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    if let Part::Attach(args) = &args.part {
        let attached = v1::attach::attach(&args.plan, &args.device, std::io::stdin());
        return attached.map_err(anyhow::Error::msg);
    }
    component::block_on(async move |shutdown: CancellationToken| {
        args.shared.watch_parent(&shutdown);
        let client =
            component::client(args.shared.kubeconfig.as_deref(), "allot-driver-net").await?;
        match args.part {
            Part::Controller(args) => {
                let identity = allot_controllers::leader::identity();
                let namespace = &args.leader_elect_resource_namespace;
                let config = controller::Config {
                    workers: args.workers,
                    election: args
                        .leader_elect
                        .then(|| LeaderElection::new(namespace, DRIVER_NAME, &identity)),
                };
                Ok(controller::run(client, config, shutdown).await?)
            }
            Part::Node(args) => Ok(v1::run(client, args.config(), shutdown).await?),
            // Handled above.
            Part::Attach(_) => Ok(()),
            Part::KubeletPlugin(args) => Ok(plugin::run(client, args.config(), shutdown).await?),
        }
    })
}

impl Node {
    fn config(self) -> v1::Config {
        let cdi_dir = self.directories.cdi_dir();
        let mut config = v1::Config::new(self.node_name, self.directories.kubelet_dir);
        config.cdi_dir = cdi_dir;
        config.selection.patterns = self.interface;
        config.selection.shares = self.shares;
        config.hook = self.hook;
        config.kubelet_timeout = self.start.kubelet_timeout();
        config
    }
}

impl Plugin {
    fn config(self) -> plugin::Config {
        let cdi_dir = self.directories.cdi_dir();
        let mut config = plugin::Config::new(self.node_name, self.directories.kubelet_dir);
        config.cdi_dir = cdi_dir;
        config.interfaces = self.interface;
        config.host_device_path = self.host_device_path;
        config
    }
}
