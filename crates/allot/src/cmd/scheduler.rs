//! `allot scheduler`: the scheduler against any Kubernetes API server.

use std::net::SocketAddr;
use std::path::PathBuf;

use allot_controllers::leader::{self, Election};
use allot_model::features::Features;
use allot_scheduler::config::LeaderElection;
use allot_scheduler::{Config, Metrics};
use tokio_util::sync::CancellationToken;

use super::component;

/// Flags of `allot scheduler`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Kubeconfig of the API server; default: that of --config, $KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// KubeSchedulerConfiguration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Work only while holding a Lease, so that several processes can stand by
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    leader_elect: Option<bool>,
    /// Namespace of the Lease
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_namespace: Option<String>,
    /// Name of the Lease
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_name: Option<String>,
    /// Feature gates to set: Name=true|false
    #[arg(long, value_name = "LIST")]
    feature_gates: Vec<String>,
    #[command(flatten)]
    serving: component::SecureServing,
    /// Address for /metrics and /healthz over plain HTTP without authentication, for example 127.0.0.1:10251; off by default
    #[arg(long, value_name = "ADDR", value_parser = super::bounds::address)]
    metrics_bind_address: Option<SocketAddr>,
}

/// Runs the command until it is done or asked to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    component::block_on(|shutdown| serve(args, shutdown))
}

async fn serve(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let features = component::set_feature_gates(Features::default(), &args.feature_gates)?;
    let config = component::read_scheduler_config(args.config.as_deref(), features)?;
    let from_file = config
        .client_connection
        .kubeconfig
        .clone()
        .map(PathBuf::from);
    let client =
        component::client(args.kubeconfig.or(from_file).as_deref(), "allot-scheduler").await?;
    let election = LeaderElection {
        // One process on one machine is the normal case; upstream's default is for control planes of several.
        enabled: args
            .leader_elect
            .unwrap_or(args.config.is_some() && config.leader_election.enabled),
        name: args
            .leader_elect_resource_name
            .unwrap_or(config.leader_election.name.clone()),
        namespace: args
            .leader_elect_resource_namespace
            .unwrap_or(config.leader_election.namespace.clone()),
        ..config.leader_election.clone()
    };
    let metrics = Metrics::new();
    let page = metrics.clone();
    args.serving
        .start(&client, "allot-scheduler", move || page.encode())
        .await?;
    if let Some(address) = args.metrics_bind_address {
        let metrics = metrics.clone();
        component::start_metrics(address, move || metrics.encode()).await?;
    }
    if !election.enabled {
        allot_scheduler::run_with_metrics(client, config, metrics, shutdown).await?;
        return Ok(());
    }
    lead(client, config, election, metrics, shutdown).await
}

/// Schedules while holding the Lease; every request is fenced.
async fn lead(
    client: kube::Client,
    config: Config,
    election: LeaderElection,
    metrics: Metrics,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let settings = leader::Settings {
        lease_duration: election.lease_duration,
        renew_deadline: election.renew_deadline,
        retry_period: election.retry_period,
        ..leader::Settings::new(&election.namespace, &election.name, &leader::identity())
    };
    let work = |client, stop| allot_scheduler::run_with_metrics(client, config, metrics, stop);
    match leader::run_as_leader(client, settings, &shutdown, work).await {
        Election::Shutdown => Ok(()),
        Election::Finished(result) => Ok(result?),
        Election::LeadershipLost(_) => anyhow::bail!("leadership was lost"),
    }
}
