//! `allot node`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use allot_apimachinery::Quantity;
use allot_node::{Config, Eviction, ImageMode, PodNetwork, Reclaims, RuntimeKind, Thresholds};
use anyhow::Context;

use super::bounds;

/// Flags of `allot node`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Kubeconfig of the API server; default: $KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Name of the node; with --nodes the prefix, numbers from 0 are appended
    #[arg(long, env = "NODE_NAME")]
    node_name: String,
    /// How many nodes to run in this process
    #[arg(long, default_value_t = 1, value_parser = bounds::within(bounds::NODES))]
    nodes: usize,
    /// Directory of the state; with --nodes above 1 directories `0`, `1`, … below it. Keep it short, sockets are in it
    #[arg(long, value_name = "DIR", default_value = "/var/lib/allot")]
    root_dir: PathBuf,
    /// What runs the containers: auto, process, simulated, or cri for containerd 1.7 and newer or CRI-O
    #[arg(long, default_value = "auto")]
    runtime: RuntimeKind,
    /// Where the container runtime listens, with --runtime cri
    #[arg(long, value_name = "unix:///PATH", default_value = allot_node::CRI_ENDPOINT)]
    cri_endpoint: String,
    /// With --runtime cri: size from which on the log of a container is rotated
    #[arg(long, value_name = "QUANTITY", default_value = "10Mi", value_parser = size)]
    container_log_max_size: u64,
    /// With --runtime cri: files of a container's log, with the current one
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..))]
    container_log_max_files: u32,
    /// Where the files of containers come from: auto (their image, or the host's files if its registry cannot be
    /// reached and the pod names a command), require (always their image) or host (always the host's files)
    #[arg(long, env = "ALLOT_IMAGES", default_value = "auto")]
    images: ImageMode,
    /// File with mirrors, plain-HTTP registries and certificates; docs/images.md has its form
    #[arg(long, value_name = "FILE")]
    registries: Option<PathBuf>,
    /// Directories with CDI files, last one first in priority; <root-dir>/cdi when absent, with --runtime cri /etc/cdi and
    /// /var/run/cdi, where runtimes look
    #[arg(long, value_name = "DIR")]
    cdi_dir: Vec<PathBuf>,
    /// Which network pods have that do not ask for the host's, but for --runtime cri: auto (of CNI if this is root and
    /// --cni-conf-dir has a configuration at the start, else the host's), host or cni
    #[arg(long, value_name = "NETWORK", default_value = "auto")]
    pod_network: PodNetwork,
    /// Directory of CNI configurations, of which the first counts
    #[arg(long, value_name = "DIR", default_value = allot_node::CNI_CONF_DIR)]
    cni_conf_dir: PathBuf,
    /// Directories of CNI plugins; the first that has a plugin counts
    #[arg(long, value_name = "DIR", value_delimiter = ',', default_values = allot_node::CNI_BIN_DIRS)]
    cni_bin_dir: Vec<PathBuf>,
    /// Manifests of static pods, which also run while the API server is away: a directory or a file
    #[arg(long, value_name = "PATH")]
    pod_manifest_path: Option<PathBuf>,
    /// Socket for NRI plugins, usually /var/run/nri/nri.sock: programs on the node that adjust containers, and are as powerful
    /// as root. Needs root; not with --runtime cri or simulated
    #[arg(long, value_name = "PATH")]
    nri_socket: Option<PathBuf>,
    /// Unsafe sysctls that pods may set, besides the safe ones: names, or prefixes that end with *, for example kernel.msg*. Only
    /// sysctls of the IPC and network namespaces are possible
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    allowed_unsafe_sysctls: Vec<String>,
    /// How many processes and threads all containers of a pod may have together; -1: as many as the machine has for containers.
    /// Without effect with --runtime cri
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true, value_parser = processes)]
    pod_max_pids: i64,
    /// Thresholds from which on the Node has the conditions MemoryPressure, DiskPressure and PIDPressure, and pods are evicted at
    /// once. "" for none, the default of simulated nodes; otherwise by default those of the kubelet
    #[arg(long, value_name = "THRESHOLDS")]
    eviction_hard: Option<Thresholds>,
    /// Thresholds from which on the Node has these conditions, and pods are evicted after the signal's grace period
    #[arg(
        long,
        value_name = "THRESHOLDS",
        default_value = "",
        hide_default_value = true
    )]
    eviction_soft: Thresholds,
    /// How long a soft threshold has to be met until pods are evicted, for example memory.available=1m30s
    #[arg(long, value_name = "SIGNAL=DURATION", value_delimiter = ',', value_parser = grace_period)]
    eviction_soft_grace_period: Vec<(String, Duration)>,
    /// What a pod gets to end at most, in seconds, when a soft threshold is met; no pod gets less than one
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    eviction_max_pod_grace_period: u32,
    /// How much more than a threshold is reclaimed once it is met, for example nodefs.available=1Gi
    #[arg(
        long,
        value_name = "SIGNAL=AMOUNT",
        default_value = "",
        hide_default_value = true
    )]
    eviction_minimum_reclaim: Reclaims,
    /// How long the conditions stay after pressure was last observed
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = bounds::duration)]
    eviction_pressure_transition_period: Duration,
    /// Address of the nodes, and of their pods that share the host's network; when absent that of --listen if it is one of a machine,
    /// else that of the default route's interface, as with a kubelet. With a loopback address services have no endpoints among such
    /// pods
    #[arg(long, value_name = "IP", value_parser = bounds::node_ip)]
    node_ip: Option<IpAddr>,
    /// Address of the HTTPS API for logs, exec and port-forward; a free port of --node-ip when absent
    #[arg(long, value_name = "ADDR", value_parser = bounds::address)]
    listen: Option<SocketAddr>,
    /// Clients of the HTTPS API need a certificate of this authority
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// Additional labels of the nodes, NAME=VALUE
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    label: Vec<(String, String)>,
    /// Capacity that differs from the host's, RESOURCE=QUANTITY
    #[arg(long, value_name = "RESOURCE=QUANTITY", value_parser = pair)]
    capacity: Vec<(String, String)>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn grace_period(text: &str) -> Result<(String, Duration), String> {
    let (signal, period) = text.split_once('=').ok_or("expected SIGNAL=DURATION")?;
    Ok((signal.to_owned(), bounds::duration(period)?))
}

/// The thresholds of a node.
fn eviction(args: &Args) -> anyhow::Result<Eviction> {
    let hard = match (&args.eviction_hard, args.runtime) {
        (Some(thresholds), _) => thresholds.clone(),
        // Simulated pods use nothing of the machine.
        (None, RuntimeKind::Simulated) => Thresholds::default(),
        (None, _) => allot_node::EVICTION_HARD.parse()?,
    };
    let eviction = Eviction::new(
        hard,
        args.eviction_soft.clone(),
        &args.eviction_soft_grace_period,
        &args.eviction_minimum_reclaim,
    );
    let mut eviction = eviction.context("--eviction-soft-grace-period")?;
    eviction.max_pod_grace = Duration::from_secs(args.eviction_max_pod_grace_period.into());
    eviction.transition = args.eviction_pressure_transition_period;
    Ok(eviction)
}

fn processes(text: &str) -> Result<i64, String> {
    let number = text.parse::<i64>().ok();
    number
        .filter(|it| *it == -1 || *it > 0)
        .ok_or_else(|| "expected -1 or a positive number".to_owned())
}

fn size(text: &str) -> Result<u64, String> {
    let size: Quantity = text
        .parse()
        .map_err(|_| "expected a quantity such as 10Mi")?;
    let size = size.as_i64().and_then(|size| u64::try_from(size).ok());
    size.filter(|size| *size > 0)
        .ok_or_else(|| "expected a positive number of bytes".to_owned())
}

/// The default directory is root's.
fn hint(error: allot_node::Error, root: &std::path::Path) -> anyhow::Error {
    let denied = match &error {
        allot_node::Error::Io { path, source } => {
            source.kind() == std::io::ErrorKind::PermissionDenied && path.starts_with(root)
        }
        _ => false,
    };
    let error = anyhow::Error::new(error);
    match denied {
        true => error.context(format!(
            "{} is not writable for this user: choose another directory with --root-dir",
            root.display()
        )),
        false => error,
    }
}

/// Runs the command until it is done or asked to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    if let Some(file) = &args.client_ca_file {
        let read = std::fs::read(file);
        read.with_context(|| format!("--client-ca-file: cannot read {}", file.display()))?;
    }
    let registries = args
        .registries
        .as_deref()
        .map(allot_images::Registries::read)
        .transpose()?
        .unwrap_or_default();
    let sysctls = allot_node::Sysctls::with_unsafe(&args.allowed_unsafe_sysctls)
        .map_err(|error| anyhow::anyhow!("--allowed-unsafe-sysctls: {error}"))?;
    let eviction = eviction(&args)?;
    let listen = crate::machine::addresses(args.node_ip, args.listen);
    let configs = (0..args.nodes).map(|index| {
        let (name, root) = match args.nodes {
            1 => (args.node_name.clone(), args.root_dir.clone()),
            _ => (
                format!("{}{index}", args.node_name),
                args.root_dir.join(index.to_string()),
            ),
        };
        let mut config = Config::new(name, root);
        config.runtime = args.runtime;
        config.cri_endpoint = args.cri_endpoint.clone();
        config.logs.size = args.container_log_max_size;
        config.logs.files = args.container_log_max_files as usize;
        config.images.mode = args.images;
        config.images.registries = registries.clone();
        config.cdi_dirs = args.cdi_dir.clone();
        config.network.mode = args.pod_network;
        config.network.conf_dir = args.cni_conf_dir.clone();
        config.network.bin_dirs = args.cni_bin_dir.clone();
        config.nri_socket = args.nri_socket.clone();
        config.pod_manifest_path = args.pod_manifest_path.clone();
        config.sysctls = sysctls.clone();
        config.eviction = eviction.clone();
        config.pod_pids_limit = Some(args.pod_max_pids).filter(|it| *it > 0);
        config.address = listen.0;
        config.listen = Some(listen.1);
        config.tls.client_ca_file = args.client_ca_file.clone();
        config.labels = args.label.iter().cloned().collect();
        config.capacity = args.capacity.iter().cloned().collect();
        if args.runtime == RuntimeKind::Simulated && args.nodes > 1 {
            // Thousands of them: no sockets and no watches per node.
            config.listen = None;
            config.plugins = false;
        }
        config
    });
    let configs: Vec<Config> = configs.collect();
    anyhow::ensure!(
        args.pod_manifest_path.is_none() || configs.iter().all(|config| config.plugins),
        "--pod-manifest-path: several simulated nodes run no static pods"
    );
    if args.nri_socket.is_some() {
        allot_node::check_nri(args.runtime, args.nodes)?;
    }
    super::component::block_on(async move |shutdown| {
        let client = super::component::client(args.kubeconfig.as_deref(), "allot-node").await?;
        let run = allot_node::run_fleet(client, configs, shutdown).await;
        run.map_err(|error| hint(error, &args.root_dir))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_periods_are_of_signals() {
        let expected = ("memory.available".to_owned(), Duration::from_secs(90));
        assert_eq!(grace_period("memory.available=1m30s"), Ok(expected));
        for text in [
            "memory.available",
            "memory.available=",
            "memory.available=-1s",
        ] {
            assert!(grace_period(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_of_processes_are_those_of_a_kubelet() {
        assert_eq!(processes("-1"), Ok(-1));
        assert_eq!(processes("4096"), Ok(4096));
        for text in ["0", "-2", "", "many", "9223372036854775808"] {
            assert!(processes(text).is_err(), "{text}");
        }
    }
}
