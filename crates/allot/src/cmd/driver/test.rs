//! `allot driver test`, with the flags of the driver that came with Kubernetes 1.26 to 1.30.

use std::path::{Path, PathBuf};
use std::time::Duration;

use allot_driver::classic::LeaderElection;
use allot_driver_test::{DRIVER_NAME, controller, plugin};
use allot_election::host_name;
use anyhow::{Context, bail};
use tokio_util::sync::CancellationToken;

use super::{Directories, Shared};
use crate::cmd::{bounds, component};

/// Gates that the flag accepts; they are about logs, and all of them are as they should be here.
const LOGGING_GATES: [&str; 5] = [
    "AllAlpha",
    "AllBeta",
    "ContextualLogging",
    "LoggingAlphaOptions",
    "LoggingBetaOptions",
];

/// Flags of `allot driver test`; they may stand before or after the name of the part.
#[derive(Debug, clap::Args)]
#[command(after_help = "$KUBECONFIG has precedence over --kubeconfig.")]
pub struct Args {
    #[command(flatten)]
    shared: Shared,
    #[command(flatten)]
    both: Both,
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, clap::Args)]
#[group(skip)]
struct Both {
    /// Requests per second to the API server; no limit if 0
    #[arg(long, global = true, value_name = "N", default_value_t = 50.0, value_parser = bounds::within(0.0..=1e6_f64))]
    kube_api_qps: f64,
    /// Requests that may be sent at once beyond that
    #[arg(long, global = true, value_name = "N", default_value_t = 100, value_parser = bounds::within(0..=1_000_000_u32))]
    kube_api_burst: u32,
    /// Address for metrics and /healthz over HTTP, for example :8080; off when empty
    #[arg(long, global = true, value_name = "ADDR", default_value = "")]
    http_endpoint: String,
    /// Path of the metrics at that address
    #[arg(long, global = true, value_name = "PATH", default_value = component::METRICS)]
    metrics_path: String,
    /// Name of the driver
    #[arg(long, global = true, value_name = "NAME", default_value = DRIVER_NAME)]
    drivername: String,
    /// Features of the logs: Name=true|false
    #[arg(long, global = true, value_name = "LIST", value_delimiter = ',')]
    feature_gates: Vec<String>,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Run the part that allocates, once per cluster
    Controller(Controller),
    /// Run the part that prepares claims, once per node
    KubeletPlugin(Plugin),
}

#[derive(Debug, clap::Args)]
struct Controller {
    /// How many claims and pods are worked on at the same time
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = bounds::within(bounds::PARALLEL))]
    workers: usize,
    /// JSON file with the resources: DriverName, DontSetReservedFor, NodeLocal, Nodes, NodeLabels, MaxAllocations,
    /// Shareable; unlimited and everywhere when absent
    #[arg(long, value_name = "FILE")]
    resource_config: Option<PathBuf>,
    /// Work only while holding a Lease, so that several processes can stand by
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value = "false")]
    leader_election: bool,
    /// Namespace of the Lease; that of the pod when absent
    #[arg(long, value_name = "NAME")]
    leader_election_namespace: Option<String>,
    /// How long others wait after the last renewal
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    leader_election_lease_duration: Duration,
    /// When the leader gives up if it cannot renew
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    leader_election_renew_deadline: Duration,
    /// Time between attempts
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    leader_election_retry_period: Duration,
}

/// A duration as Go writes it, such as 1m30s.
fn duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration = text
        .parse()
        .map_err(|_| format!("{text:?} is no duration such as 15s or 1m30s"))?;
    Duration::try_from(span).map_err(|_| format!("{text:?} is negative"))
}

/// Where a pod finds the name of its namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// A name in which only letters, digits and dashes are left.
fn sanitize(name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    name.chars().map(allowed).collect()
}

#[derive(Debug, clap::Args)]
struct Plugin {
    #[command(flatten)]
    directories: Directories,
    /// Where the kubelet looks for registration sockets; plugins_registry in --kubelet-dir when absent
    #[arg(long, value_name = "DIR")]
    plugin_registration_path: Option<PathBuf>,
    /// Socket to listen on; plugins/<drivername>/dra.sock in --kubelet-dir when absent
    #[arg(long, value_name = "FILE")]
    endpoint: Option<PathBuf>,
    /// Path under which the kubelet sees that socket; the same when absent
    #[arg(long, value_name = "FILE")]
    dra_address: Option<PathBuf>,
    /// The node this process runs on, to refuse claims that are allocated elsewhere
    #[arg(long, env = "NODE_NAME", default_value = "")]
    node_name: String,
    /// How many instances the scheduler may allocate with structured parameters
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = bounds::within(bounds::DEVICES))]
    num_resource_instances: usize,
}

/// Runs the command until it is done or told to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    let Args { shared, both, part } = args;
    check_gates(&both.feature_gates)?;
    component::block_on(async move |shutdown: CancellationToken| {
        shared.watch_parent(&shutdown);
        match part {
            Part::Controller(args) => {
                let mut config = args.config(&both.drivername)?;
                let from_env = std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty());
                let kubeconfig = from_env.map(PathBuf::from).or(shared.kubeconfig);
                let client = component::client(kubeconfig.as_deref(), "allot-driver-test").await?;
                let client = component::throttle(client, both.kube_api_qps, both.kube_api_burst);
                if let Some(listener) = listen(&both.http_endpoint).await? {
                    let (sender, metrics) = tokio::sync::oneshot::channel();
                    config.metrics = Some(sender);
                    tokio::spawn(async move {
                        if let Ok(metrics) = metrics.await {
                            let path = both.metrics_path;
                            component::serve_metrics(listener, path, move || metrics()).await;
                        }
                    });
                }
                Ok(controller::run(client, config, shutdown).await?)
            }
            Part::KubeletPlugin(args) => {
                let config = args.config(&both.drivername);
                if let Some(listener) = listen(&both.http_endpoint).await? {
                    let (path, operations) = (both.metrics_path, config.operations.clone());
                    let metrics = move || operations.encode();
                    tokio::spawn(component::serve_metrics(listener, path, metrics));
                }
                Ok(plugin::run(config, shutdown).await?)
            }
        }
    })
}

/// Listens on an address as Go writes it: without a host it is every one.
async fn listen(address: &str) -> anyhow::Result<Option<tokio::net::TcpListener>> {
    if address.is_empty() {
        return Ok(None);
    }
    let full = match address.strip_prefix(':') {
        Some(port) => format!("0.0.0.0:{port}"),
        None => address.to_owned(),
    };
    let listener = tokio::net::TcpListener::bind(full).await;
    listener
        .map(Some)
        .with_context(|| format!("--http-endpoint: cannot listen on {address}"))
}

fn check_gates(gates: &[String]) -> anyhow::Result<()> {
    for gate in gates {
        let (name, value) = gate
            .split_once('=')
            .with_context(|| format!("--feature-gates: missing bool value for {gate}"))?;
        if !LOGGING_GATES.contains(&name) {
            bail!("--feature-gates: unrecognized feature gate: {name}");
        }
        if !matches!(value, "true" | "false") {
            bail!("--feature-gates: invalid value of {name}: {value}, err: expected true or false");
        }
    }
    Ok(())
}

impl Controller {
    fn config(self, driver_name: &str) -> anyhow::Result<controller::Config> {
        let mut resources = match &self.resource_config {
            Some(file) => read(file).with_context(|| file.display().to_string())?,
            None => controller::Resources::default(),
        };
        // A name on the command line wins over that in the file.
        if resources.driver_name.is_empty() || driver_name != DRIVER_NAME {
            resources.driver_name = driver_name.to_owned();
        }
        let election = self.leader_election.then(|| {
            let namespace = self.leader_election_namespace.unwrap_or_else(|| {
                let pod = std::fs::read_to_string(NAMESPACE_FILE);
                pod.unwrap_or_else(|_| "default".into())
            });
            let lease = sanitize(&resources.driver_name);
            LeaderElection {
                lease_duration: self.leader_election_lease_duration,
                renew_deadline: self.leader_election_renew_deadline,
                retry_period: self.leader_election_retry_period,
                ..LeaderElection::new(&namespace, &lease, &sanitize(host_name()))
            }
        });
        Ok(controller::Config {
            resources,
            workers: self.workers,
            election,
            metrics: None,
        })
    }
}

fn read(file: &Path) -> anyhow::Result<controller::Resources> {
    Ok(serde_json::from_slice(&std::fs::read(file)?)?)
}

impl Plugin {
    fn config(self, driver_name: &str) -> plugin::Config {
        let kubelet_dir = &self.directories.kubelet_dir;
        let mut config = plugin::Config::new(driver_name, &self.node_name, kubelet_dir);
        config.cdi_dir = self.directories.cdi_dir();
        config.registrar_dir = self
            .plugin_registration_path
            .unwrap_or(config.registrar_dir);
        config.endpoint = self.endpoint.unwrap_or(config.endpoint);
        config.dra_address = self.dra_address;
        config.instances = self.num_resource_instances;
        config
    }
}
