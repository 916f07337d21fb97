//! What every control loop gets: the client, the clock, shared informers, events, metrics.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use allot_reflector::Writes;
use futures::future::BoxFuture;
use kube::core::ObjectMeta;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::clock::Clock;
use super::events::Recorder;
use super::informer::{Cached, Informer};
use super::metrics::Metrics;
use super::queue::{Next, Queue, QueueKey};
use crate::{Config, Error};

/// What a controller does; it runs once its informers have their first list.
pub type Task = BoxFuture<'static, ()>;

type Starter = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;
type Synced = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;
/// Receives the metadata of every object of a kind: the existing ones, and each change; `true` means deleted.
pub type MetaSink = Box<dyn Fn(&ObjectMeta, bool) + Send + Sync>;
type Follow = Box<dyn Fn(MetaSink) + Send + Sync>;

/// The requested informers, one per kind.
#[derive(Default)]
struct Informers {
    by_type: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
    /// The functions that follow a resource, by group and plural.
    by_resource: HashMap<(String, String), Follow>,
    starters: Vec<Starter>,
    synced: Vec<Synced>,
}

/// Shared parts of all control loops of a process; cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// Talks to the API server.
    pub client: Client,
    /// Writes whole objects to it.
    pub writes: Writes,
    /// The source of time; another one in tests.
    pub clock: Clock,
    /// Writes events.
    pub events: Recorder,
    /// Counts.
    pub metrics: Metrics,
    /// The settings of all controllers.
    pub config: Arc<Config>,
    /// Ends everything.
    pub shutdown: CancellationToken,
    informers: Arc<Mutex<Informers>>,
    tasks: TaskTracker,
}

impl Context {
    /// A context without informers.
    pub fn new(
        client: Client,
        config: Config,
        metrics: Metrics,
        events: Recorder,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            writes: Writes::new(client.clone()),
            client,
            clock: config.clock.clone(),
            events,
            metrics,
            config: Arc::new(config),
            shutdown,
            informers: Arc::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// Handles the keys of a controller's queue by `sync`, with the configured number of workers.
    pub fn run_workers<C, T, F, R>(&self, queue: Queue<T>, controller: Arc<C>, sync: F) -> Task
    where
        C: Send + Sync + 'static,
        T: QueueKey,
        F: Fn(Arc<C>, T) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Next, Error>> + Send + 'static,
    {
        let handle = move |key| sync(Arc::clone(&controller), key);
        Box::pin(queue.run(self.config.workers, self.shutdown.clone(), handle))
    }

    /// The shared informer of a kind in all namespaces; started by [`Context::start`].
    pub fn informer<K>(&self) -> Informer<K>
    where
        K: Cached<DynamicType: Default>,
    {
        self.informer_with(&K::DynamicType::default())
    }

    /// Like [`Context::informer`], for a kind whose version is known only at run time. All callers must request the
    /// same version.
    pub fn informer_with<K: Cached>(&self, dt: &K::DynamicType) -> Informer<K> {
        let mut informers = self.informers.lock();
        let id = TypeId::of::<K>();
        if let Some(found) = informers
            .by_type
            .get(&id)
            .and_then(|i| i.downcast_ref::<Informer<K>>())
        {
            return found.clone();
        }
        let informer = Informer::<K>::new();
        informers.by_type.insert(id, Box::new(informer.clone()));
        let api: Api<K> = Api::all_with(self.client.clone(), dt);
        let run = informer.clone();
        informers
            .starters
            .push(Box::new(move |shutdown| Box::pin(run.run(api, shutdown))));
        let source = informer.clone();
        let resource = (K::group(dt).into_owned(), K::plural(dt).into_owned());
        informers.by_resource.insert(
            resource,
            Box::new(move |sink| {
                source.follow(move |change| sink(change.object().meta(), change.is_delete()));
            }),
        );
        let wait = informer.clone();
        informers.synced.push(Box::new(move || {
            let wait = wait.clone();
            Box::pin(async move { wait.wait_synced().await })
        }));
        informer
    }

    /// An unshared informer of the objects in all namespaces that a field selector matches.
    pub fn informer_of_some<K>(&self, fields: &'static str) -> Informer<K>
    where
        K: Cached<DynamicType: Default>,
    {
        let informer = Informer::<K>::new();
        let api: Api<K> = Api::all(self.client.clone());
        let (run, wait) = (informer.clone(), informer.clone());
        let mut informers = self.informers.lock();
        informers.starters.push(Box::new(move |shutdown| {
            Box::pin(run.run_some(api, Some(fields), shutdown))
        }));
        informers.synced.push(Box::new(move || {
            let wait = wait.clone();
            Box::pin(async move { wait.wait_synced().await })
        }));
        informer
    }

    /// Shares the informer of a kind with a user of its metadata; returns false if there is none. Call after
    /// [`Context::start`], so that the existing objects are complete.
    pub fn follow_metadata(&self, group: &str, plural: &str, sink: MetaSink) -> bool {
        let informers = self.informers.lock();
        let resource = (group.to_owned(), plural.to_owned());
        let found = informers.by_resource.get(&resource);
        if let Some(follow) = found {
            follow(sink);
        }
        found.is_some()
    }

    /// A work queue whose metrics are registered under that name.
    pub fn queue<T: QueueKey>(&self, name: &'static str) -> Queue<T> {
        Queue::new(name, self.metrics.queue(name))
    }

    /// Runs a task until it ends or the process shuts down.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Starts all requested informers and waits until each has its first list.
    pub async fn start(&self) {
        let (starters, synced) = {
            let mut informers = self.informers.lock();
            (
                std::mem::take(&mut informers.starters),
                std::mem::take(&mut informers.synced),
            )
        };
        for start in starters {
            self.tasks.spawn(start(self.shutdown.clone()));
        }
        for wait in synced {
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                () = wait() => {}
            }
        }
    }

    /// Waits until every task has ended.
    pub async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
