//! The scheduler's core with everything around it, in virtual time.

use std::time::Duration;

use allot_model::features::Feature;
use allot_scheduler::Config;
use allot_scheduler::core::{Core, Input, Time};
use allot_scheduler::metrics::Metrics;
use allot_scheduler::sources::Sources;
use jiff::Timestamp;
use serde_json::Value;

use crate::event_queue::{Event, EventQueue};
use crate::history::{Preemption, Record};
use crate::measure::{Sampler, of_cluster, seconds};
use crate::objects::Objects;
use crate::random::Random;
use crate::workload::{Arrival, Order, Workload};

mod change;
mod load;

/// How long after the last change the timers of the queue still count: longer than the time after which the scheduler
/// tries every pod again. An attempt that finds everything as it was has the same outcome.
const TIMERS_COUNT: Duration = Duration::from_secs(310);
/// How long after the last change a pod on its way to a node may be late.
const DEADLINES_COUNT: Duration = Duration::from_secs(24 * 3600);
/// Attempts for each pod that waits that are made at one moment before time advances: what goes round in a circle must not
/// stop it.
const ATTEMPTS_AT_ONCE: usize = 16;
/// How long it continues then.
const PAUSE: Duration = Duration::from_secs(1);

/// So many pods more are drawn than are placed, and no more.
const FUTILE: usize = 1000;
/// Most pods that are drawn.
const MOST_DRAWN: usize = 10_000_000;

/// The options of a simulation.
#[derive(Debug, Clone)]
pub struct Options {
    /// The time at the start, as the API writes it.
    pub start: Timestamp,
    /// Decides everything that is drawn.
    pub seed: u64,
    /// In which order pods arrive.
    pub order: Order,
    /// Ends with the first pod that fits nowhere.
    pub until_refusal: bool,
    /// Ends at this time at the latest.
    pub until: Option<Duration>,
    /// How long pods take to stop that are deleted; less where their grace period is shorter.
    pub stopping: Duration,
    /// Devices with binding conditions are ready at once; otherwise they never are.
    pub devices_ready: bool,
    /// Keeps pods after their end, for [`Simulation::get`]. Takes more memory.
    pub keep_objects: bool,
    /// How often the state is measured; zero: at the start and the end alone.
    pub sample: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            start: Timestamp::UNIX_EPOCH,
            seed: 1,
            order: Order::AsGiven,
            until_refusal: false,
            until: None,
            stopping: Duration::from_secs(1),
            devices_ready: true,
            keep_objects: false,
            sample: Duration::ZERO,
        }
    }
}

/// The pod that fitted nowhere before any other did.
pub(crate) struct FirstUnschedulable {
    /// The number of its record.
    pub(crate) record: usize,
    /// When.
    pub(crate) at: Duration,
    /// The number of pods that have been bound.
    pub(crate) placed: usize,
    /// What the scheduler said.
    pub(crate) message: String,
}

/// A cluster in memory, with a scheduler. See the crate.
pub struct Simulation {
    pub(crate) core: Core,
    pub(crate) objects: Objects,
    pub(crate) agenda: EventQueue,
    pub(crate) options: Options,
    pub(crate) workload: Workload,
    pub(crate) records: Vec<Record>,
    pub(crate) preemptions: Vec<Preemption>,
    pub(crate) sampler: Sampler,
    pub(crate) now: Duration,
    /// The place of the next arrival.
    next_arrival: usize,
    random: Random,
    /// When something changed last beside what is noted about attempts.
    pub(crate) changed: Duration,
    /// The pod that fitted nowhere before any other did.
    pub(crate) first_refusal: Option<FirstUnschedulable>,
    /// How many pods got a node so far.
    pub(crate) placed: usize,
    /// Allocations say when they were made.
    pub(crate) timestamps: bool,
    /// Attempts of the scheduler.
    pub(crate) attempts: u64,
}

impl Simulation {
    /// A simulation of a cluster with these objects, as an API server has them.
    ///
    /// # Errors
    /// An object is not what its kind says; the message names it.
    pub fn new(mut config: Config, options: Options, cluster: Vec<Value>) -> anyhow::Result<Self> {
        config.sources = Sources::replayable();
        for profile in &mut config.profiles {
            // How long a search takes depends on the machine. It is bounded by its steps nevertheless.
            profile.dynamic_resources.filter_timeout = None;
        }
        if !config.features.enabled(Feature::DRADeviceTaints) {
            config.features = config.features.with(Feature::DRADeviceTaintRules, false);
        }
        let on = |feature| config.features.enabled(feature);
        let timestamps =
            on(Feature::DRADeviceBindingConditions) && on(Feature::DRAResourceClaimDeviceStatus);
        let rules = on(Feature::DRADeviceTaintRules);
        let mut simulation = Self {
            core: Core::new(config, Metrics::new()),
            objects: Objects::default(),
            agenda: EventQueue::default(),
            random: Random::new(options.seed),
            options,
            workload: Workload::default(),
            records: Vec::new(),
            preemptions: Vec::new(),
            sampler: Sampler::default(),
            now: Duration::ZERO,
            next_arrival: 0,
            changed: Duration::ZERO,
            first_refusal: None,
            placed: 0,
            timestamps,
            attempts: 0,
        };
        simulation.load(cluster, rules)?;
        Ok(simulation)
    }

    /// Takes in what arrives; its other objects are there at once.
    ///
    /// # Errors
    /// An object is not what its kind says, or a claim of its name has another specification.
    pub fn add_workload(&mut self, mut workload: Workload) -> anyhow::Result<()> {
        for object in std::mem::take(&mut workload.objects) {
            self.apply(object)?;
        }
        if self.options.order == Order::AsGiven {
            workload.arrivals.sort_by_key(|arrival| arrival.at);
        }
        self.workload = workload;
        self.next_arrival = 0;
        if let Some(at) = self.next_arrival_at() {
            self.agenda.plan(at, Event::Arrival);
        }
        Ok(())
    }

    fn next_arrival_at(&self) -> Option<Duration> {
        match self.options.order {
            Order::AsGiven => {
                let next = self.workload.arrivals.get(self.next_arrival);
                next.map(|arrival| arrival.at.max(self.now))
            }
            Order::Fill if self.workload.arrivals.is_empty() || self.is_futile() => None,
            Order::Fill => Some(Duration::from_secs(self.next_arrival as u64)),
        }
    }

    /// Whether none of the last pods that were drawn was placed or refused: they wait for what never comes.
    fn is_futile(&self) -> bool {
        self.next_arrival >= MOST_DRAWN || self.next_arrival > self.placed + FUTILE
    }

    fn arrive(&mut self) -> anyhow::Result<()> {
        while let Some(at) = self.next_arrival_at() {
            if at > self.now {
                self.agenda.plan(at, Event::Arrival);
                break;
            }
            let arrival = match self.options.order {
                Order::AsGiven => self.workload.arrivals[self.next_arrival].clone(),
                Order::Fill => {
                    let count = self.workload.arrivals.len() as u64;
                    let at = usize::try_from(self.random.below(count)).unwrap_or_default();
                    let drawn = &self.workload.arrivals[at];
                    Arrival {
                        name: format!("{}-{}", drawn.name, self.next_arrival).into(),
                        duration: None,
                        job: None,
                        ..drawn.clone()
                    }
                }
            };
            self.next_arrival += 1;
            self.add_pod(&arrival)?;
        }
        Ok(())
    }

    /// Runs until nothing more is going to happen, or the end that the options say.
    ///
    /// # Errors
    /// A pod of the workload cannot be created.
    pub fn run(&mut self) -> anyhow::Result<()> {
        self.sample();
        if !self.options.sample.is_zero() {
            self.agenda
                .plan(self.now + self.options.sample, Event::Sample);
        }
        while self.step(self.options.until)? {}
        self.sample();
        Ok(())
    }

    /// Lets so much time pass.
    ///
    /// # Errors
    /// A pod of the workload cannot be created.
    pub fn run_for(&mut self, duration: Duration) -> anyhow::Result<()> {
        let until = self.now + duration;
        while self.step(Some(until))? {}
        self.now = self.now.max(until);
        Ok(())
    }

    /// Does everything that happens now, then goes to the next moment. Says whether there is one.
    fn step(&mut self, until: Option<Duration>) -> anyhow::Result<bool> {
        let (mut is_measured, mut has_happened) = (false, false);
        while let Some(event) = self.agenda.due(self.now) {
            match event {
                Event::Sample => is_measured = true,
                _ => has_happened = true,
            }
            self.happen(event)?;
        }
        // A moment that is there to be measured changes nothing for the scheduler.
        if has_happened || !is_measured {
            self.settle();
        }
        if self.is_stopped() {
            return Ok(false);
        }
        let Some(next) = self.next_moment() else {
            return Ok(false);
        };
        if until.is_some_and(|until| next > until) {
            self.now = until.unwrap_or(next);
            return Ok(false);
        }
        self.now = next.max(self.now);
        Ok(true)
    }

    fn is_stopped(&self) -> bool {
        let ends = self.options.until_refusal || self.options.order == Order::Fill;
        ends && self.first_refusal.is_some()
    }

    fn next_moment(&self) -> Option<Duration> {
        let planned = self.agenda.next();
        let time = self.time();
        let deadline = self.core.next_deadline(time);
        let timers = self.core.next_wakeup(time);
        // A time that is over says that something is ready; that has been tried.
        let timers = timers.map(|at| at.max(self.now + Duration::from_millis(1)));
        let timers = timers.filter(|at| *at <= self.changed + TIMERS_COUNT);
        // Devices that are never ready are given up and taken again without end.
        let deadline = deadline.filter(|at| *at <= self.changed + DEADLINES_COUNT);
        let next = [planned, deadline.filter(|at| *at > self.now), timers];
        let next = next.into_iter().flatten().min()?;
        let only_samples = self.agenda.is_over() && deadline.is_none() && timers.is_none();
        (!only_samples).then_some(next)
    }

    fn happen(&mut self, event: Event) -> anyhow::Result<()> {
        match event {
            Event::Ends(uid) => self.pod_ends(&uid)?,
            Event::Stopped(uid) => self.pod_stopped(&uid),
            Event::Arrival => self.arrive()?,
            Event::Sample => {
                self.sample();
                self.agenda
                    .plan(self.now + self.options.sample, Event::Sample);
            }
            Event::Resume => {}
        }
        Ok(())
    }

    /// Lets the scheduler decide about everything that is ready.
    pub(crate) fn settle(&mut self) {
        self.core.tick(self.time());
        self.carry_out();
        let mut made = 0;
        while !self.is_stopped() {
            let counts = self.core.queue_counts();
            if made > ATTEMPTS_AT_ONCE * (counts.active + counts.backoff + counts.unschedulable + 1)
            {
                self.agenda.plan(self.now + PAUSE, Event::Resume);
                return;
            }
            if !self.core.schedule_one(self.time()) {
                return;
            }
            made += 1;
            self.attempts += 1;
            self.carry_out();
        }
    }

    /// Measures the state now.
    fn sample(&mut self) {
        let mut sample = of_cluster(&self.core);
        sample.at = seconds(self.now);
        let placed = self.objects.pods.values().filter(|p| p.node.is_some());
        sample.running = placed.count();
        sample.waiting = self.objects.pods.len() - sample.running;
        if self.sampler.add(sample) {
            self.options.sample *= 2;
        }
    }

    pub(crate) fn time(&self) -> Time {
        Time {
            now: self.now,
            wall: self.wall(),
        }
    }

    /// The time as the API writes it.
    pub(crate) fn wall(&self) -> Timestamp {
        let start = self.options.start;
        start.checked_add(self.now).unwrap_or(Timestamp::MAX)
    }

    pub(crate) fn deliver(&mut self, input: Input) {
        let time = self.time();
        self.core.handle(input, time);
    }

    /// Something changed that may let a pod fit which did not fit before.
    pub(crate) fn note_change(&mut self) {
        self.changed = self.now;
    }
}
