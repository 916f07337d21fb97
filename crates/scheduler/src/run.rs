//! Connects the state with watches, writers and the clock.

use std::time::Duration;

use allot_election::clock::Clock;
use allot_model::features::Feature;
use allot_reflector::{Collection, Observed, Readable as _, everything, reflect};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::GroupVersionForDiscovery;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::classic::discovery::{self, Found};
use crate::classic::{self, Served};
use crate::config::Config;
use crate::core::{Core, Input, Time, groups_matter};
use crate::metrics::Metrics;
use crate::observe::Observe;
use crate::pod::PodInfo;
use crate::podgroups::claims::PodGroup;
use crate::taint_rules::DeviceTaintRule;
use crate::watched::{self, POD_GROUPS, Plain, TAINT_RULES, Visitor, Watched};
use crate::writer::{self, Recorder, Writer};

mod lists;

use lists::Lists;

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
    let Some(found) = discover(&client, &shutdown).await else {
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
    let kinds = watches.start(&found, rules, groups.clone());
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
    .with_classic(found.classic.clone())
    .with_groups(groups);
    let core = Core::new(config, metrics.clone()).with_classic(found.classic);
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

/// Repeats discovery until it succeeds; `None` on shutdown.
async fn discover(client: &Client, shutdown: &CancellationToken) -> Option<Found> {
    let mut pause = Duration::from_millis(50);
    loop {
        let found = tokio::select! {
            biased;
            () = shutdown.cancelled() => return None,
            found = discovery::discover(client) => found,
        };
        match found {
            Ok(found) => return Some(found),
            Err(error) => tracing::warn!(%error, ?pause, "cannot discover the API"),
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}

/// The newest version in which the server has a kind.
async fn find(client: &Client, wanted: &Watched) -> Result<Option<ApiResource>, Error> {
    let groups = client.list_api_groups().await.map_err(Error::Discovery)?;
    let group = groups.groups.iter().find(|g| g.name == wanted.group);
    for version in wanted.versions {
        let served = |v: &&GroupVersionForDiscovery| v.version == *version;
        let Some(served) = group.and_then(|g| g.versions.iter().find(served)) else {
            continue;
        };
        let list = client
            .list_api_group_resources(&served.group_version)
            .await
            .map_err(Error::Discovery)?;
        if list.resources.iter().any(|r| r.name == wanted.plural) {
            let gvk = GroupVersionKind::gvk(wanted.group, version, wanted.kind);
            return Ok(Some(ApiResource::from_gvk_with_plural(&gvk, wanted.plural)));
        }
    }
    tracing::warn!(
        kind = wanted.kind,
        "a feature is on whose kind the API server does not have"
    );
    Ok(None)
}

struct Watches {
    client: Client,
    sender: UnboundedSender<Input>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

impl Watches {
    /// Starts all watches. Returns how many lists must arrive before the first pod is tried.
    fn start(
        &self,
        found: &Found,
        rules: Option<ApiResource>,
        groups: Option<ApiResource>,
    ) -> usize {
        // Finished pods use no resources and are never scheduled.
        let unfinished = Some("status.phase!=Succeeded,status.phase!=Failed");
        let mut started = Started {
            watches: self,
            count: 1,
        };
        watched::everywhere(&mut started);
        if found.v1 {
            watched::of_devices(&mut started);
        }
        let mut count = started.count;
        match &found.classic {
            Some(classic) => {
                self.pods_with_source(unfinished);
                count += self.classic(classic);
            }
            None => self.watch(Api::all(self.client.clone()), unfinished, |o| {
                Some(Input::Pod(o.map(|pod| PodInfo::observed(pod).into())))
            }),
        }
        if let Some(resource) = rules {
            self.read(&resource, DeviceTaintRule::read, Input::TaintRule);
            count += 1;
        }
        if let Some(resource) = groups {
            self.read(&resource, PodGroup::read, Input::PodGroup);
            count += 1;
        }
        count
    }

    /// A kind of which only a part is read.
    fn read<T: 'static>(
        &self,
        resource: &ApiResource,
        read: fn(&DynamicObject) -> Option<T>,
        input: fn(Observed<T>) -> Input,
    ) {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), resource);
        self.watch(api, None, move |o: Observed<DynamicObject>| {
            o.filter_map(|object| read(&object)).map(input)
        });
    }

    /// Pods of a server that may have the claims of a pod in their older form.
    fn pods_with_source(&self, fields: Option<&str>) {
        let resource = ApiResource::erase::<Pod>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        self.watch(api, fields, |o: Observed<DynamicObject>| {
            o.filter_map(|object| {
                let mut value = serde_json::to_value(object).ok()?;
                allot_model::migrate::pod::flatten_claims(&mut value);
                let pod = Pod::read(&value.to_string(), everything).ok()?;
                Some(PodInfo::observed(pod).into())
            })
            .map(Input::Pod)
        });
    }

    /// Starts the watches of the classic kinds. Returns their number.
    fn classic(&self, served: &Served) -> usize {
        use classic::Input as C;
        let mut count = 2;
        self.dynamic(
            served.resource("ResourceClass", "resourceclasses"),
            C::Class,
        );
        self.dynamic(served.scheduling(), C::Scheduling);
        if served.structured {
            self.dynamic(served.resource("ResourceSlice", "resourceslices"), C::Slice);
            let parameters = served.resource("ResourceClaimParameters", "resourceclaimparameters");
            self.dynamic(parameters, C::ClaimParameters);
            let parameters = served.resource("ResourceClassParameters", "resourceclassparameters");
            self.dynamic(parameters, C::ClassParameters);
            count += 3;
        }
        if served.alone {
            // Otherwise the watch of the newer claims shows these too.
            self.dynamic(served.claims(), C::Claim);
            count += 1;
        }
        count
    }

    fn dynamic<T>(&self, resource: ApiResource, input: fn(Observed<T>) -> classic::Input)
    where
        T: DeserializeOwned + 'static,
    {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        self.watch(api, None, move |o: Observed<DynamicObject>| {
            o.filter_map(|object| {
                let (kind, name) = (object.types.clone(), object.metadata.name.clone());
                serde_json::to_value(object)
                    .and_then(serde_json::from_value)
                    .inspect_err(|error| tracing::warn!(?kind, ?name, %error, "cannot read"))
                    .ok()
            })
            .map(|o| Input::Classic(Box::new(input(o))))
        });
    }

    fn watch<K: Observe>(
        &self,
        api: Api<K>,
        fields: Option<&str>,
        input: impl Fn(Observed<K>) -> Option<Input> + Send + Sync + 'static,
    ) {
        self.follow::<K>(Collection::new(api, fields), input);
    }

    fn follow<K: Observe>(
        &self,
        of: Collection,
        input: impl Fn(Observed<K>) -> Option<Input> + Send + Sync + 'static,
    ) {
        let sender = self.sender.clone();
        let sink = move |observed| input(observed).is_none_or(|input| sender.send(input).is_ok());
        self.tasks
            .spawn(reflect::<K, _>(of, K::keep, self.shutdown.clone(), sink));
    }
}

/// Starts a watch of each kind.
struct Started<'a> {
    watches: &'a Watches,
    count: usize,
}

impl Visitor for Started<'_> {
    fn visit<K: Plain>(&mut self, input: fn(Observed<K>) -> Input) {
        let api: Api<K> = Api::all(self.watches.client.clone());
        let of = Collection::new(api, None);
        let of = match K::OPTIONAL {
            true => of.optional(),
            false => of,
        };
        self.watches.follow(of, move |o| Some(input(o)));
        self.count += 1;
    }
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

/// How often devices are counted for the metrics, while there are changes.
const CENSUS: Duration = Duration::from_secs(5);

/// When devices are counted, which happens on another thread.
#[derive(Default)]
struct Census {
    /// When the last count began, after the start.
    last: Option<Duration>,
    /// There were changes since the last count.
    is_old: bool,
    running: Option<tokio::task::JoinHandle<()>>,
}

impl Census {
    /// When to count again.
    fn due(&self) -> Option<Duration> {
        self.is_old
            .then(|| self.last.map_or(Duration::ZERO, |last| last + CENSUS))
    }

    /// Counts if it is time, and the last count has ended.
    fn count(&mut self, core: &Core, now: Duration) {
        let busy = self.running.as_ref().is_some_and(|it| !it.is_finished());
        if self.due().is_none_or(|due| due > now) {
            return;
        }
        self.last = Some(now);
        if !busy {
            self.is_old = false;
            self.running = Some(tokio::task::spawn_blocking(core.census()));
        }
    }
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

    /// Takes in what has arrived.
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
