//! A running controller: watches, a queue, workers.

use std::sync::Arc;
use std::time::Duration;

use allot_election::{Election, Settings, run_as_leader};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Driver;
use super::api::{ClassicApi, discover};
use super::cache::{Cache, Change, Name, keep};
use super::claims::{Core, Outcome};
use super::events::Recorder;
use super::objects::Claim;
use super::queue::{self, Queue};

/// How often an open negotiation is checked without a change: the driver's answer may change.
const REFRESH: Duration = Duration::from_secs(30);

/// A key of the controller's work queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Claim(Name),
    Negotiation(Name),
}

/// Why a controller cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server did not answer.
    #[error("discovering API versions: {0}")]
    Discovery(#[from] kube::Error),
    /// The API server has none of the kinds.
    #[error(
        "the API server serves neither resource.k8s.io/v1alpha2 nor v1alpha1; it needs the feature gate \
         DynamicResourceAllocation and --runtime-config=resource.k8s.io/v1alpha2=true"
    )]
    NotServed,
    /// Another process leads now.
    #[error("leadership was lost")]
    LeadershipLost,
}

/// The controller of a driver; one may run at a time.
pub struct Controller<D> {
    name: String,
    driver: D,
    client: Client,
    workers: usize,
    set_reserved_for: bool,
    election: Option<Settings>,
    queue: Arc<Queue<Key>>,
}

impl<D> std::fmt::Debug for Controller<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl<D: Driver> Controller<D> {
    /// A controller for the classes that name this driver.
    pub fn new(driver_name: impl Into<String>, driver: D, client: Client) -> Self {
        Self {
            name: driver_name.into(),
            driver,
            client,
            workers: 10,
            set_reserved_for: true,
            election: None,
            queue: Arc::new(queue::new()),
        }
    }

    /// Number of concurrent workers; default 10.
    #[must_use]
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count.max(1);
        self
    }

    /// Whether an allocation also reserves the claim for the pod that it is for, which saves the scheduler a write;
    /// true unless set.
    #[must_use]
    pub fn set_reserved_for(mut self, on: bool) -> Self {
        self.set_reserved_for = on;
        self
    }

    /// Several processes may run the controller; one of them works, while it holds a Lease.
    #[must_use]
    pub fn leader_election(mut self, settings: Settings) -> Self {
        self.election = Some(settings);
        self
    }

    /// Metrics of the queue `<driver>-queue` in Prometheus' text form, also while the controller runs.
    pub fn metrics(&self) -> impl Fn() -> String + Clone + Send + Sync + 'static + use<D> {
        let (queue, name) = (Arc::clone(&self.queue), format!("{}-queue", self.name));
        move || queue::metrics(&queue, &name)
    }

    /// Runs until `shutdown`; work in progress is finished.
    ///
    /// # Errors
    /// When discovery fails or finds none of the kinds, and when leadership is lost. Other failures are retried.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), Error> {
        let Some(settings) = self.election.take() else {
            return self.lead(shutdown).await;
        };
        let client = self.client.clone();
        let work = |fenced, stop| {
            self.client = fenced;
            self.lead(stop)
        };
        match run_as_leader(client, settings, &shutdown, work).await {
            Election::Shutdown => Ok(()),
            Election::Finished(result) => result,
            Election::LeadershipLost(result) => result.and(Err(Error::LeadershipLost)),
        }
    }

    async fn lead(self, shutdown: CancellationToken) -> Result<(), Error> {
        let version = discover(&self.client).await?.ok_or(Error::NotServed)?;
        let mut background = JoinSet::new();
        let (events, sending) = Recorder::new(self.client.clone(), &self.name);
        background.spawn(sending);
        let core = Arc::new(Core {
            finalizer: format!("{}/deletion-protection", self.name),
            driver: self.driver,
            name: self.name,
            api: ClassicApi {
                client: self.client.clone(),
                version,
            },
            classes: Arc::default(),
            claims: Arc::default(),
            negotiations: Arc::default(),
            events,
            set_reserved_for: self.set_reserved_for,
            locks: Default::default(),
        });
        let queue = self.queue;
        let mut ready = Vec::new();
        let mut observe = |kind, cache: &Arc<Cache>, changed: Box<dyn FnMut(Change) + Send>| {
            let (synced, done) = watch::channel(false);
            let api = Api::all_with(self.client.clone(), &kind);
            background.spawn(keep(api, Arc::clone(cache), synced, changed));
            ready.push(done);
        };
        observe(version.classes(), &core.classes, {
            let (core, queue) = (Arc::clone(&core), Arc::clone(&queue));
            Box::new(move |change| class_changed(&core, &queue, &change))
        });
        observe(version.claims(), &core.claims, {
            let (core, queue) = (Arc::clone(&core), Arc::clone(&queue));
            Box::new(move |change| claim_changed(&core, &queue, change))
        });
        observe(version.negotiations(), &core.negotiations, {
            let queue = Arc::clone(&queue);
            Box::new(move |change| match change.after {
                Some(_) => queue.add(Key::Negotiation(change.name)),
                None => queue.forget(&Key::Negotiation(change.name)),
            })
        });
        for mut done in ready {
            tokio::select! {
                // An error means that the watch ended, which it does not before this function does.
                _ = done.wait_for(|done| *done) => {}
                () = shutdown.cancelled() => return Ok(()),
            }
        }
        tracing::info!(
            driver = core.name,
            version = version.name(),
            "controller runs"
        );
        let mut workers = JoinSet::new();
        for _ in 0..self.workers {
            let work = work(Arc::clone(&core), Arc::clone(&queue), shutdown.clone());
            workers.spawn(work);
        }
        while let Some(ended) = workers.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        Ok(())
    }
}

/// Queues the claims of a class that was created or changed: immediate ones may have waited for it.
fn class_changed<D: Driver>(core: &Core<D>, queue: &Queue<Key>, change: &Change) {
    if change.after.is_none() {
        return;
    }
    for name in core.claims.names() {
        let waits = core.known_claim(&name).is_some_and(|claim| {
            claim.is_immediate() && !claim.is_allocated() && claim.class_name() == change.name.1
        });
        if waits {
            queue.add(Key::Claim(name));
        }
    }
}

fn claim_changed<D: Driver>(core: &Core<D>, queue: &Queue<Key>, change: Change) {
    let Some(after) = change.after.map(Claim) else {
        queue.forget(&Key::Claim(change.name));
        return;
    };
    let was_allocated = change
        .before
        .is_some_and(|before| Claim(before).is_allocated());
    if was_allocated && !after.is_allocated() {
        // Pods checked in between only wait for the regular check.
        let negotiations = core.negotiations.names().into_iter();
        let same = negotiations.filter(|name| name.0 == change.name.0);
        same.for_each(|name| queue.add(Key::Negotiation(name)));
    }
    queue.add(Key::Claim(change.name));
}

async fn work<D: Driver>(core: Arc<Core<D>>, queue: Arc<Queue<Key>>, shutdown: CancellationToken) {
    loop {
        let key = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            (key, _) = queue.next() => key,
        };
        let result = match &key {
            Key::Claim(name) => core.sync_claim(name).await,
            Key::Negotiation(name) => core.sync_negotiation(name).await,
        };
        match result {
            Ok(Outcome::Done) => queue.forget(&key),
            Ok(Outcome::Again) => queue.retry(key.clone()),
            Ok(Outcome::Later) => {
                queue.forget(&key);
                queue.add_after(key.clone(), REFRESH);
            }
            Err(error) => {
                tracing::debug!(?key, error.message, "to be tried again");
                if !error.quiet {
                    let (kind, object) = match &key {
                        Key::Claim(name) => (core.api.version.claims(), core.claims.get(name)),
                        Key::Negotiation(name) => {
                            (core.api.version.negotiations(), core.negotiations.get(name))
                        }
                    };
                    let worked_on = object.into_iter().map(|object| (kind.clone(), object));
                    for (kind, object) in worked_on.chain(error.about) {
                        core.events.failed(&kind, &object, &error.message);
                    }
                }
                queue.retry(key.clone());
            }
        }
        queue.done(&key);
    }
}
