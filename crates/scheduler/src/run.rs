//! Connects the state with watches, writers and the clock.

use std::time::Duration;

use allot_election::clock::Clock;
use allot_model::features::Feature;
use kube::Client;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::core::{Core, Input, Time, groups_matter};
use crate::metrics::Metrics;
use crate::watched::{POD_GROUPS, TAINT_RULES};
use crate::writer::{self, Recorder, Writer};

mod census;
mod claim_plugins;
mod lists;
mod watches;

use census::Census;
use lists::Lists;
use watches::{Watches, discover, find};

/// Why the scheduler could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Discovery of the API server failed.
    #[error("cannot discover the API: {0}")]
    Discovery(#[source] kube::Error),
    /// No profile is configured.
    #[error("no profile is configured")]
    NoProfile,
}

/// Attempts that take longer than this are announced to the runtime as blocking.
const SLOW: Duration = Duration::from_millis(1);
/// How many observations are taken in before the next pod is tried.
const BATCH: usize = 512;

/// Schedules until `shutdown`.
///
/// # Errors
/// When the configuration has no profile, or discovery fails.
pub async fn run(client: Client, config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    run_with_metrics(client, config, Metrics::new(), shutdown).await
}

/// As [`run`], with a registry that the caller can serve.
///
/// # Errors
/// As [`run`].
pub async fn run_with_metrics(
    client: Client,
    config: Config,
    metrics: Metrics,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    if config.profiles.is_empty() {
        return Err(Error::NoProfile);
    }
    let client = crate::limit::limited(client, &config.client_connection);
    let Some(mut found) = discover(&client, &shutdown).await else {
        return Ok(());
    };
    let rules = match config.features.enabled(Feature::DRADeviceTaintRules) {
        true => find(&client, &TAINT_RULES).await?,
        false => None,
    };
    let groups = match groups_matter(&config.features) {
        true => find(&client, &POD_GROUPS).await?,
        false => None,
    };
    let tasks = TaskTracker::new();
    let (sender, inputs) = unbounded_channel();
    let watches = Watches {
        client: client.clone(),
        sender: sender.clone(),
        tasks: tasks.clone(),
        shutdown: shutdown.clone(),
    };
    let kinds = watches.start(&mut found, rules, groups.clone());
    let (plugin, writes) = found.extension.map(|e| (e.plugin, e.writer)).unzip();
    let (recorder, writing) = Recorder::new(client.clone(), shutdown.clone());
    tasks.spawn(writing);
    let options = writer::Options {
        parallel: config.parallel_bindings,
        timestamps: config.features.enabled(Feature::DRADeviceBindingConditions)
            && config
                .features
                .enabled(Feature::DRAResourceClaimDeviceStatus),
    };
    let clock = config.clock.clone();
    let writer = Writer::new(
        client,
        clock.clone(),
        sender,
        recorder,
        options,
        metrics.clone(),
        shutdown.clone(),
    )
    .with_claim_plugin(writes)
    .with_groups(groups);
    let core = Core::new(config, metrics.clone()).with_claim_plugin(plugin);
    Loop {
        core,
        metrics,
        writer,
        inputs,
        clock,
        start: Instant::now(),
        lists: Lists::new(kinds),
        slow: false,
        shutdown: shutdown.clone(),
        census: Census::default(),
    }
    .run()
    .await;
    tasks.close();
    tasks.wait().await;
    Ok(())
}

struct Loop {
    core: Core,
    metrics: Metrics,
    writer: Writer,
    inputs: UnboundedReceiver<Input>,
    clock: Clock,
    start: Instant,
    /// No decision is made before all kinds are listed, since it would be based on incomplete state.
    lists: Lists,
    /// The last attempt took long; the next one is expected to.
    slow: bool,
    shutdown: CancellationToken,
    census: Census,
}

impl Loop {
    fn time(&self) -> Time {
        Time {
            now: self.start.elapsed(),
            wall: self.clock.now(),
        }
    }

    async fn run(mut self) {
        loop {
            let wakeup = self
                .core
                .next_wakeup(self.time())
                .into_iter()
                .chain(self.census.due().filter(|_| self.lists.are_complete()))
                .min()
                .unwrap_or(Duration::from_secs(3600));
            let input = tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return,
                input = self.inputs.recv() => input,
                () = tokio::time::sleep_until(self.start + wakeup) => None,
            };
            if input.is_none() && self.inputs.is_closed() {
                return;
            }
            self.take(input);
            self.core.tick(self.time());
            self.core.measure();
            self.flush();
            if !self.lists.are_complete() {
                continue;
            }
            self.census.count(&self.core, self.start.elapsed());
            loop {
                let time = self.time();
                // Attempts take processor time: report long ones to the runtime; reporting costs a thread switch.
                let begin = std::time::Instant::now();
                let tried = if self.slow {
                    blocking(|| self.core.schedule_one(time))
                } else {
                    self.core.schedule_one(time)
                };
                if !tried {
                    break;
                }
                let taken = begin.elapsed();
                self.slow = taken > SLOW;
                self.metrics.decided(taken);
                self.flush();
                if self.shutdown.is_cancelled() {
                    return;
                }
                // What happened meanwhile counts for the next attempt.
                tokio::task::yield_now().await;
                self.take(None);
                self.census.count(&self.core, self.start.elapsed());
                self.core.tick(self.time());
                self.core.measure();
                self.flush();
            }
        }
    }

    /// Handles the inputs that have arrived.
    fn take(&mut self, first: Option<Input>) {
        let mut next = first.or_else(|| self.inputs.try_recv().ok());
        let mut left = BATCH;
        while let Some(input) = next {
            self.lists.note(&input);
            self.census.is_old = true;
            let time = self.time();
            self.core.handle(input, time);
            left -= 1;
            next = if left > 0 {
                self.inputs.try_recv().ok()
            } else {
                None
            };
        }
    }

    fn flush(&mut self) {
        for action in self.core.take_actions() {
            self.writer.start(action);
        }
    }
}

fn blocking<T>(f: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => f(),
        _ => tokio::task::block_in_place(f),
    }
}
