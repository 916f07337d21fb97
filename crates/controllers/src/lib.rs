//! Controllers: they move claims, workloads, nodes and quotas towards their specifications.
//!
//! Every controller is a function from observed state to actions around a work queue. Observed
//! state comes from shared informers ([`controller`]), actions are API writes that cannot lose fields
//! (JSON merge patches with preconditions, deletes with UIDs). Controllers are idempotent: killed
//! at any moment and restarted, they continue from the state of the API server.
//!
//! Invariants: this crate talks to [`kube::Client`] only and does not depend on a particular API
//! server; time comes from [`controller::clock::Clock`]; nothing waits by polling if a watch event exists.
//!
//! ```no_run
//! # async fn example(client: kube::Client) -> Result<(), allot_controllers::Error> {
//! use allot_controllers::{Config, run};
//! let shutdown = tokio_util::sync::CancellationToken::new();
//! run(client, Config::embedded(), shutdown).await
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod config;
pub mod controller;
pub mod daemonset;
pub mod liveness;

mod accounts;
mod claims;
mod cronjob;
mod deployment;
mod disruption;
pub mod drain;
mod endpoints;
mod error;
mod gc;
mod inventory;
mod job;
mod namespace;
mod nodes;
mod podgc;
mod pool_status;
mod protection;
mod quota;
mod registry;
mod replicaset;
mod roles;
mod served;
mod service_cidrs;
mod statefulset;
mod taints;
mod ttl;
mod workload;

pub use allot_election as leader;
pub use config::{Config, Controller};
pub use error::Error;

use std::sync::Arc;

use kube::Client;
use tokio_util::sync::CancellationToken;

use controller::context::Context;
use controller::events::Recorder;
use controller::metrics::Metrics;
use leader::Election;
use registry::Built;

/// Runs the enabled controllers until `shutdown`, or until leadership is lost.
///
/// # Errors
/// When leadership was lost, or discovery failed.
pub async fn run(client: Client, config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    run_with_metrics(client, config, Metrics::new(), shutdown).await
}

/// As [`run`], with a registry that the caller can print.
///
/// # Errors
/// As [`run`].
pub async fn run_with_metrics(
    client: Client,
    config: Config,
    metrics: Metrics,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let Some(settings) = config.leader_election.clone() else {
        return run_controllers(client, config, metrics, shutdown).await;
    };
    let work = |client, stop| run_controllers(client, config, metrics, stop);
    match leader::run_as_leader(client, settings, &shutdown, work).await {
        Election::Shutdown => Ok(()),
        Election::Finished(result) => result,
        Election::LeadershipLost(_) => Err(Error::LeadershipLost),
    }
}

async fn run_controllers(
    client: Client,
    config: Config,
    metrics: Metrics,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let clock = config.clock.clone();
    let (events, writer) = Recorder::new(
        client.clone(),
        move || clock.now(),
        "allot-controllers",
        shutdown.clone(),
    );
    let served = served::served(&client, &shutdown).await?;
    let context = Context::new(client, config, metrics, events, shutdown.clone());
    context.spawn(writer);
    let Built { tasks, inventory } = registry::build(&context, &Arc::new(served));
    context.start().await;
    if let Some(inventory) = inventory {
        inventory.start().await;
        context.spawn(inventory.run());
    }
    if !shutdown.is_cancelled() {
        tracing::info!(controllers = tasks.len(), "controllers run");
        for task in tasks {
            context.spawn(task);
        }
    }
    shutdown.cancelled().await;
    context.finish().await;
    Ok(())
}
