//! How many requests are served at the same time, and whose turn it is.
//!
//! With priority and fairness (the default) FlowSchemas assign a request to a flow and a priority level, and the
//! level's seats and queues decide ([`seats`]). Without, there is one limit for mutating requests and one for the
//! others. Long-running requests take no seat; a watch has one until it has begun.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use allot_store::ListOptions;
use arc_swap::ArcSwap;
use http::{HeaderName, HeaderValue, Response};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::Value;
use tokio::sync::{Semaphore, oneshot};

use crate::body::Body;
use crate::identity::MASTERS;
use crate::limits::Limits;
use crate::object::meta;
use crate::request::{Incoming, is_long_running};
use crate::shares::owner;
use crate::state::ServerState;

mod dangling;
mod estimate;
mod exempt;
mod kinds;
pub(crate) mod metrics;
mod retry;
mod rules;
mod seat;
mod seats;
#[cfg(test)]
mod tests;
mod watches;

use estimate::Width;
use exempt::Exempt;
use kinds::Kinds;
use metrics::{Counted, Metrics};
use retry::Refused;
use rules::{Level, LevelKind, Rules, Schema};
use seats::{Arrival, LevelId, Refusal, Running, Seats, Sender};
use watches::Watches;

pub use seat::Seat;
use seat::{Execution, Exempted, Place, Taken, Wait};
pub use watches::Watching;

/// The group of flow schemas and priority levels.
pub(crate) const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const SCHEMA_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
/// `Retry-After` in seconds, without priority levels.
const RETRY_AFTER: u64 = 1;
/// Longest wait in a queue, independent of the time limit of the request.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Decides when requests may start.
pub struct FlowControl {
    fair: bool,
    /// Seats of all levels.
    total: usize,
    request_timeout: Duration,
    /// The number of observed changes of FlowSchemas and PriorityLevelConfigurations.
    pub(crate) changes: Arc<AtomicU64>,
    /// The value of `changes` from which `rules` were computed.
    loaded: AtomicU64,
    loading: tokio::sync::Mutex<()>,
    rules: ArcSwap<Loaded>,
    state: Mutex<State>,
    /// Time zero of the fair queues.
    epoch: Instant,
    /// Randomised, so that clients cannot find names that share a queue with another client's.
    hasher: RandomState,
    read_only: Option<Arc<Semaphore>>,
    mutating: Option<Arc<Semaphore>>,
    refused: Refused,
    watches: Arc<Watches>,
    kinds: Kinds,
    metrics: Metrics,
}

#[derive(Default)]
struct State {
    seats: Seats,
    exempt: BTreeMap<Arc<str>, Arc<Exempt>>,
    waiting: FxHashMap<u64, Waiting>,
}

/// What a request in a queue waits for.
struct Waiting {
    start: oneshot::Sender<Running>,
    counted: Arc<Counted>,
}

#[derive(Default)]
struct Loaded {
    rules: Rules,
    /// In the order of the schemas.
    counted: Vec<Arc<Counted>>,
    /// In the order of the levels.
    exempt: Vec<Option<Arc<Exempt>>>,
}

/// The objects that classified a request; their UIDs are returned to the client.
#[derive(Debug, Clone)]
pub struct Classified {
    schema: HeaderValue,
    level: HeaderValue,
}

impl Classified {
    /// Names them in an answer.
    pub fn write_to(&self, headers: &mut http::HeaderMap) {
        headers.insert(LEVEL_HEADER, self.level.clone());
        headers.insert(SCHEMA_HEADER, self.schema.clone());
    }
}

impl FlowControl {
    /// With the limits of the server.
    pub fn new(limits: &Limits, metrics: Metrics) -> Arc<Self> {
        let (reads, writes) = (
            limits.max_requests_inflight,
            limits.max_mutating_requests_inflight,
        );
        let semaphore = |limit: usize| {
            let limit = limit.min(Semaphore::MAX_PERMITS);
            (limit > 0).then(|| Arc::new(Semaphore::new(limit)))
        };
        Arc::new(FlowControl {
            fair: limits.priority_and_fairness && reads.saturating_add(writes) > 0,
            total: reads.saturating_add(writes),
            request_timeout: limits.request_timeout,
            changes: Arc::new(AtomicU64::new(1)),
            loaded: AtomicU64::new(0),
            loading: tokio::sync::Mutex::default(),
            rules: ArcSwap::default(),
            state: Mutex::default(),
            epoch: Instant::now(),
            hasher: RandomState::new(),
            read_only: semaphore(reads),
            mutating: semaphore(writes),
            refused: Refused::default(),
            watches: Arc::default(),
            kinds: Kinds::new(reads, writes),
            metrics,
        })
    }

    /// Waits until the request can be executed. `classified` receives its classification, even if it is rejected.
    ///
    /// # Errors
    /// The answer 429.
    pub async fn enter(
        self: &Arc<Self>,
        core: &ServerState,
        request: &Incoming,
        classified: &mut Option<Classified>,
    ) -> Result<Seat, Response<Body>> {
        let watch = request.info.verb == "watch";
        if is_long_running(&request.info) && !(watch && self.fair) {
            return Ok(Seat::Free);
        }
        if !self.fair {
            let seat = self.in_flight(request);
            return seat.ok_or_else(|| too_many_requests(RETRY_AFTER));
        }
        if self.loaded.load(Ordering::Acquire) != self.changes.load(Ordering::Acquire) {
            self.load(core).await;
        }
        let loaded = self.rules.load_full();
        let Some(index) = loaded.rules.find(&request.info, &request.user) else {
            return Ok(Seat::Free);
        };
        let schema = &loaded.rules.schemas[index];
        let level = &loaded.rules.levels[schema.level];
        *classified = Some(Classified {
            schema: schema.uid.clone(),
            level: level.uid.clone(),
        });
        let counted = &loaded.counted[index];
        let watchers = estimate::watchers(&self.watches, request);
        if let Some(watchers) = watchers {
            counted.watchers.observe(watchers as f64);
        }
        let width = match level.kind {
            LevelKind::Limited(_) => estimate::width(core, watchers, request, level.most_seats),
            LevelKind::Exempt(_) => Width::ONE,
        };
        counted.estimated.observe(width.seats as f64);
        let execution = |seats| {
            let phase = self.kinds.execute(&request.info.verb);
            Execution::new(counted.clone(), watch, seats, phase)
        };
        if let Some(exempt) = &loaded.exempt[schema.level] {
            exempt.begin(self.now());
            return Ok(Seat::Exempt(Exempted {
                control: self.clone(),
                level: exempt.clone(),
                execution: execution(width.seats),
            }));
        }
        let LevelKind::Limited(id) = level.kind else {
            return Ok(Seat::Free);
        };
        match self.seat(id, request, schema, level, counted, width).await {
            Ok(running) => Ok(Seat::Level(Taken {
                control: self.clone(),
                running,
                after: width.after,
                execution: execution(running.seats),
            })),
            Err(reason) => {
                self.metrics.refused(&level.name, &schema.name, reason);
                self.metrics.dropped(is_mutating(&request.info.verb));
                let second = self.epoch.elapsed().as_secs();
                Err(too_many_requests(self.refused.count(&level.name, second)))
            }
        }
    }

    /// The seat of a request if priority and fairness is off, `None` if too many are in flight: one limit for mutating
    /// requests and one for the others. Administrators are always served.
    fn in_flight(&self, request: &Incoming) -> Option<Seat> {
        let mutating = is_mutating(&request.info.verb);
        let limit = if mutating {
            &self.mutating
        } else {
            &self.read_only
        };
        let Some(limit) = limit else {
            return Some(Seat::Free);
        };
        match limit.clone().try_acquire_owned() {
            Ok(permit) => {
                let phase = self.kinds.execute(&request.info.verb);
                Some(Seat::InFlight(permit, phase))
            }
            Err(_) if request.user.in_group(MASTERS) => Some(Seat::Free),
            Err(_) => {
                self.metrics.dropped(mutating);
                None
            }
        }
    }

    /// The seats of a request in the level `id`, when it is its turn.
    async fn seat(
        self: &Arc<Self>,
        id: LevelId,
        request: &Incoming,
        schema: &Schema,
        level: &Level,
        counted: &Arc<Counted>,
        width: Width,
    ) -> Result<Running, Refusal> {
        let flow = (&*schema.name, schema.flow(&request.info, &request.user));
        let sender = Sender {
            flow: self.hasher.hash_one(flow),
            user: self.hasher.hash_one(&request.user.name),
            owner: self.hasher.hash_one(owner(&request.user)),
        };
        let (ticket, started) = {
            let mut state = self.state.lock();
            match state.seats.arrive(id, sender, width.seats, self.now()) {
                Arrival::Start(running) => {
                    if let Some(length) = state.seats.queue_length(&running) {
                        counted.queue_length.observe(length as f64);
                    }
                    return Ok(running);
                }
                Arrival::Refuse(reason) => return Err(reason),
                Arrival::Wait(ticket, length) => {
                    counted.queue_length.observe(length as f64);
                    let (start, started) = oneshot::channel();
                    let counted = counted.clone();
                    let waiting = Waiting { start, counted };
                    state.waiting.insert(ticket.id(), waiting);
                    self.dispatch(&mut state);
                    (ticket, started)
                }
            }
        };
        let mut place = Place {
            control: self.clone(),
            ticket,
            started,
            wait: Wait::new(
                counted.clone(),
                width.seats,
                self.kinds.wait(&request.info.verb),
            ),
        };
        let limit = request.deadline.map_or(self.request_timeout, |deadline| {
            deadline.saturating_duration_since(tokio::time::Instant::now())
        });
        let since = Instant::now();
        let result = tokio::time::timeout((limit / 4).min(LONGEST_WAIT), &mut place.started).await;
        let started = matches!(result, Ok(Ok(_)));
        let seconds = since.elapsed().as_secs_f64();
        self.metrics
            .waited(&level.name, &schema.name, started, seconds);
        match result {
            Ok(Ok(running)) => Ok(running),
            _ => Err(Refusal::TimeOut),
        }
    }

    /// Counts a watch until the returned value is dropped; `None` for other requests.
    pub fn watching(&self, request: &Incoming) -> Option<Watching> {
        let watch = self.fair && request.info.is_resource && request.info.verb == "watch";
        watch.then(|| self.watches.open(request)).flatten()
    }

    fn now(&self) -> f64 {
        self.epoch.elapsed().as_secs_f64()
    }

    fn finish(&self, running: Running) {
        let mut state = self.state.lock();
        state.seats.finish(running, self.now());
        self.dispatch(&mut state);
    }

    /// Starts what can be started.
    fn dispatch(&self, state: &mut State) {
        let now = self.now();
        while let Some((ticket, running)) = state.seats.dispatch(now) {
            let sent = match state.waiting.remove(&ticket) {
                Some(waiting) => waiting.start.send(running),
                None => Err(running),
            };
            if let Err(running) = sent {
                // The waiting request was dropped.
                state.seats.finish(running, now);
            }
        }
        let lacking = state.seats.lacking();
        if let Some(waiting) = lacking.and_then(|ticket| state.waiting.get(&ticket)) {
            waiting.counted.lacked_seats.inc();
        }
    }

    /// Takes over the objects that are stored. What cannot be read changes nothing.
    async fn load(&self, core: &ServerState) {
        let alone = self.loading.lock().await;
        let seen = self.changes.load(Ordering::Acquire);
        if self.loaded.load(Ordering::Acquire) == seen {
            return;
        }
        let mut lists = Vec::new();
        let mut schemas = Vec::new();
        for plural in ["prioritylevelconfigurations", "flowschemas"] {
            let collection = format!("{GROUP}/{plural}");
            let page = core.backend.list(&collection, ListOptions::default()).await;
            let Ok(page) = page else { return };
            let objects = page.entries.iter();
            let mut objects: Vec<Value> = objects
                .filter_map(|entry| serde_json::from_slice(&entry.value).ok())
                .collect();
            crate::flow_defaults::add_mandatory(plural, &mut objects);
            lists.push(objects);
            if plural == "flowschemas" {
                schemas = page.entries;
            }
        }
        let levels = lists[0].iter();
        let levels: BTreeSet<String> = levels.map(|it| meta(it, "name").to_owned()).collect();
        self.refused.retain(|level| levels.contains(level));
        self.take_over(&lists[0], &lists[1]);
        self.loaded.store(seen, Ordering::Release);
        // Other requests need not wait until the conditions are stored; the revision orders concurrent writers.
        drop(alone);
        let collection = format!("{GROUP}/flowschemas");
        dangling::update_conditions(core, &collection, &schemas, &levels).await;
    }

    fn take_over(&self, levels: &[Value], schemas: &[Value]) {
        let mut state = self.state.lock();
        let rules = Rules::new(levels, schemas, self.total, &mut state.seats);
        self.dispatch(&mut state);
        let (executing, waiting) = state.seats.capacity();
        self.kinds.set_limits(executing, waiting);
        let known = std::mem::take(&mut state.exempt);
        let exempt = rules.levels.iter().map(|level| {
            let LevelKind::Exempt(spec) = &level.kind else {
                return None;
            };
            let spec = spec.clone();
            let exempt = match known.get(&level.name) {
                Some(known) => known.clone(),
                None => Exempt::new(spec.clone(), self.now()),
            };
            exempt.configure(spec);
            state.exempt.insert(level.name.clone(), exempt.clone());
            Some(exempt)
        });
        let exempt = exempt.collect();
        drop(state);
        let counted = rules.schemas.iter().map(|schema| {
            let level = &rules.levels[schema.level];
            Arc::new(self.metrics.counted(&level.name, &schema.name))
        });
        let counted = counted.collect();
        self.rules.store(Arc::new(Loaded {
            rules,
            counted,
            exempt,
        }));
    }

    /// Sets the metrics that are read at the moment of a scrape.
    pub fn report(&self) {
        let mut state = self.state.lock();
        let now = self.now();
        state.seats.sync(now);
        self.metrics.set(state.seats.numbers());
        let exempt = state.exempt.values();
        self.metrics
            .set(exempt.map(|it| it.numbers(now, self.total)));
        self.metrics.set_kinds(&self.kinds);
    }
}

/// Which of the two limits of requests in flight a verb counts for.
pub(crate) fn is_mutating(verb: &str) -> bool {
    !matches!(verb, "get" | "list" | "watch")
}

/// The answer to a request for which there is no room outside of the priority levels.
pub(crate) fn refusal() -> Response<Body> {
    too_many_requests(RETRY_AFTER)
}

/// Upstream's answer, which is no Status.
fn too_many_requests(retry_after: u64) -> Response<Body> {
    let text = "Too many requests, please try again later.\n";
    let mut response = crate::body::text_response(429, text);
    let headers = response.headers_mut();
    headers.insert(http::header::RETRY_AFTER, retry_after.into());
    response
}
