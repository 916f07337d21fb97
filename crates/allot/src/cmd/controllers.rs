//! `allot controllers`: the control loops against any Kubernetes API server.

use std::path::PathBuf;
use std::time::Duration;

use allot_controllers::controller::metrics::Metrics;
use allot_controllers::{Config, leader};
use allot_model::features::Features;
use anyhow::Context;
use tokio_util::sync::CancellationToken;

use super::{bounds, component};

/// Flags of `allot controllers`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Kubeconfig of the API server; default: $KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Controllers to run: `*` for the defaults, `all`, names, `-name` to leave one out. On an API server of allot the
    /// defaults are all; elsewhere the ones for DRA
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true
    )]
    controllers: Vec<String>,
    /// Feature gates to set: Name=true|false
    #[arg(long, value_name = "LIST")]
    feature_gates: Vec<String>,
    /// Work only while holding a Lease, so that several processes can stand by
    #[arg(long, default_missing_value = "true", default_value = "false", num_args = 0..=1, require_equals = true)]
    leader_elect: bool,
    /// Namespace of the Lease
    #[arg(long, default_value = "kube-system")]
    leader_elect_resource_namespace: String,
    /// Name of the Lease
    #[arg(long, default_value = "allot-controllers")]
    leader_elect_resource_name: String,
    /// Seconds without a heartbeat until a node is not ready
    #[arg(long, default_value_t = 50, value_parser = bounds::within(bounds::SECONDS))]
    node_monitor_grace_period: u64,
    /// Seconds until the devices of a driver or node that no longer runs are tainted
    #[arg(long, default_value_t = 30, value_parser = bounds::within(bounds::SECONDS))]
    slice_liveness_delay: u64,
    /// Certificate of the authority that pods trust, in each namespace's kube-root-ca.crt; default: that of the kubeconfig
    #[arg(long, value_name = "FILE")]
    root_ca_file: Option<PathBuf>,
    /// Keys that each controller handles at a time
    #[arg(long, default_value_t = 10, value_parser = bounds::within(bounds::PARALLEL))]
    workers: usize,
    #[command(flatten)]
    serving: component::SecureServing,
    /// Address for /metrics and /healthz over plain HTTP without authentication, for example 127.0.0.1:10252; off by default
    #[arg(long, value_parser = bounds::address)]
    metrics_bind_address: Option<std::net::SocketAddr>,
}

/// Runs the command until it is done or asked to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    component::block_on(|shutdown| serve(args, shutdown))
}

async fn serve(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    // Names are checked before waiting for a server.
    Config::embedded().select(&args.controllers)?;
    let features = component::set_feature_gates(Features::default(), &args.feature_gates)?;
    let access = component::config(args.kubeconfig.as_deref()).await?;
    let root_ca = match &args.root_ca_file {
        Some(file) => Some(
            std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?,
        ),
        // As kube-controller-manager.
        None => access.root_cert.as_deref().map(pem),
    };
    let client = component::connect(access, "allot-controllers", component::Watches::Apart)?;
    let mut config = if is_allot(&client, &shutdown).await {
        Config::embedded()
    } else {
        Config::external()
    };
    config = config.select(&args.controllers)?;
    config.features = features;
    config.root_ca = root_ca;
    config.workers = args.workers.max(1);
    config.node_monitor_grace_period = Duration::from_secs(args.node_monitor_grace_period);
    config.slice_liveness_delay = Duration::from_secs(args.slice_liveness_delay);
    if args.leader_elect {
        config.leader_election = Some(leader::Settings::new(
            &args.leader_elect_resource_namespace,
            &args.leader_elect_resource_name,
            &leader::identity(),
        ));
    }
    let metrics = Metrics::new();
    let page = metrics.clone();
    args.serving
        .start(&client, "allot-controllers", move || page.encode())
        .await?;
    if let Some(address) = args.metrics_bind_address {
        let metrics = metrics.clone();
        component::start_metrics(address, move || metrics.encode()).await?;
    }
    allot_controllers::run_with_metrics(client, config, metrics, shutdown).await?;
    Ok(())
}

/// Certificates as PEM.
fn pem(certificates: &[Vec<u8>]) -> String {
    use base64::Engine as _;
    let engine = base64::engine::general_purpose::STANDARD;
    let mut text = String::new();
    for certificate in certificates {
        text += "-----BEGIN CERTIFICATE-----\n";
        let encoded = engine.encode(certificate);
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, next) = rest.split_at(rest.len().min(64));
            text += line;
            text.push('\n');
            rest = next;
        }
        text += "-----END CERTIFICATE-----\n";
    }
    text
}

/// Whether the API server is one of allot, which has no separate controllers. Waits until it answers.
async fn is_allot(client: &kube::Client, shutdown: &CancellationToken) -> bool {
    let mut told = false;
    loop {
        match client.apiserver_version().await {
            Ok(version) => return version.git_version.contains("allot"),
            Err(error) => {
                if !told {
                    eprintln!("waiting for the API server: {error}");
                    told = true;
                }
                tokio::select! {
                    () = shutdown.cancelled() => return false,
                    () = tokio::time::sleep(Duration::from_millis(200)) => {}
                }
            }
        }
    }
}
