//! Leader election through a Lease, safe against a paused process.
//!
//! At most one process may write at a time. A leader knows until when it is guaranteed to hold its Lease: the moment
//! *before* the last successful renewal was sent, plus the renewal deadline, measured on a clock that also runs while
//! the machine sleeps. [`Leadership::fence`] puts that check in front of every request, so that a process that was
//! stopped in the middle of its work (SIGSTOP, a paused virtual machine) fails its next request instead of writing with
//! a lost Lease.
//!
//! It must not depend on what is done under its leadership: controllers, the scheduler and drivers all use it.
//!
//! ```no_run
//! # async fn example(client: kube::Client, shutdown: tokio_util::sync::CancellationToken) -> Result<(), kube::Error> {
//! use allot_election::{Elector, Settings};
//! let elector = Elector::new(client.clone(), Settings::new("kube-system", "allot-scheduler", "host-1"));
//! if let Some(leadership) = elector.acquire(&shutdown).await {
//!     let client = leadership.fence(client);   // every write is checked
//!     let lost = leadership.lost();            // cancelled when leadership ends
//!     // run with `client` until `lost` or `shutdown`
//!     # drop((client, lost));
//!     leadership.release().await;
//! }
//! # Ok(()) }
//! ```

#![forbid(unsafe_code)]

pub mod clock;
mod fence;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use fence::Fence;
pub use fence::NotLeading;

/// Name and times of an election. The defaults are upstream's: 15 s, 10 s, 2 s.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// The holder identity; unique per process.
    pub identity: String,
    /// Other candidates wait this long after the last renewal before they take over.
    pub lease_duration: Duration,
    /// The leader stops leading when it could not renew the Lease for this time; less than `lease_duration`.
    pub renew_deadline: Duration,
    /// Time between attempts.
    pub retry_period: Duration,
    /// The time that is written into the Lease.
    pub clock: Clock,
}

impl Settings {
    /// Upstream's times.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            clock: Clock::System,
        }
    }
}

/// The name of this machine when it was first read.
pub fn host_name() -> &'static str {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAME.get_or_init(|| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim();
        if host.is_empty() { "allot" } else { host }.to_owned()
    })
}

/// An identity that no other process has: host name and random digits.
pub fn identity() -> String {
    format!("{}_{:016x}", host_name(), rand::random::<u64>())
}

/// A clock for deadlines: milliseconds since some moment, running also during sleep.
#[derive(Debug, Clone)]
struct Monotonic {
    /// Tests run on tokio's clock.
    tokio: Option<tokio::time::Instant>,
}

impl Monotonic {
    fn new(clock: &Clock) -> Self {
        Self {
            tokio: match clock {
                Clock::System => None,
                Clock::Tokio { start, .. } => Some(*start),
            },
        }
    }

    fn millis(&self) -> u64 {
        match self.tokio {
            Some(start) => u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
            None => {
                // CLOCK_BOOTTIME counts the time a machine sleeps, CLOCK_MONOTONIC does not.
                let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
                let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
                let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
                seconds * 1000 + nanos / 1_000_000
            }
        }
    }
}

#[derive(Debug)]
struct Held {
    clock: Monotonic,
    /// Until when (see [`Monotonic::millis`]) the Lease is surely ours.
    until: AtomicU64,
    lost: CancellationToken,
}

impl Held {
    fn is_valid(&self) -> bool {
        !self.lost.is_cancelled() && self.clock.millis() < self.until.load(Ordering::Acquire)
    }
}

/// What an attempt to get or renew the Lease found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// It is ours.
    Ours,
    /// Another process holds it.
    Theirs,
}

/// Runs for leadership.
pub struct Elector {
    api: Api<Lease>,
    settings: Settings,
    clock: Monotonic,
    /// The last observed state of another holder's Lease.
    observed: parking_lot::Mutex<Option<Seen>>,
}

/// A state of another holder's Lease, by the own clock (see [`Monotonic::millis`]).
struct Seen {
    state: Observed,
    /// When it was first observed.
    since: u64,
    /// When it has lasted for as long as it is valid.
    until: u64,
}

/// What identifies a state of a Lease: holder, renew time, number of transitions.
type Observed = (Option<String>, Option<Timestamp>, Option<i32>);

impl Elector {
    /// A candidate for the Lease of these settings; [`Elector::acquire`] makes it the leader.
    pub fn new(client: Client, settings: Settings) -> Self {
        Self {
            api: Api::namespaced(client, &settings.namespace),
            clock: Monotonic::new(&settings.clock),
            settings,
            observed: parking_lot::Mutex::new(None),
        }
    }

    /// Waits until this process leads; `None` after `shutdown`.
    pub async fn acquire(self, shutdown: &CancellationToken) -> Option<Leadership> {
        let elector = Arc::new(self);
        loop {
            let before = elector.clock.millis();
            match elector.attempt().await {
                Ok(Attempt::Ours) => return Some(Leadership::start(elector, before, shutdown)),
                Ok(Attempt::Theirs) => {}
                Err(error) => {
                    tracing::warn!(%error, lease = elector.settings.name, "election failed")
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return None,
                () = tokio::time::sleep(elector.pause()) => {}
            }
        }
    }

    /// The time until the next attempt: the retry period, or less where the Lease of another holder expires earlier.
    fn pause(&self) -> Duration {
        // Different processes should not collide repeatedly.
        let jitter = rand::random::<f64>() * 0.2;
        let pause = self.settings.retry_period.mul_f64(1.0 + jitter);
        let observed = self.observed.lock();
        let left = observed
            .as_ref()
            .map_or(0, |seen| seen.until.saturating_sub(self.clock.millis()));
        match left {
            // It has expired, and the attempt failed nevertheless.
            0 => pause,
            left => pause.min(Duration::from_millis(left)),
        }
    }

    /// One attempt to get or renew the Lease.
    pub(crate) async fn attempt(&self) -> Result<Attempt, kube::Error> {
        let now = self.settings.clock.micro_time();
        let Some(mut lease) = self.api.get_opt(&self.settings.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.settings.name.clone()),
                    namespace: Some(self.settings.namespace.clone()),
                    ..Default::default()
                },
                spec: Some(self.spec(&now, &now, 0)),
            };
            return match self.api.create(&Default::default(), &lease).await {
                Ok(_) => Ok(Attempt::Ours),
                Err(error) if is_conflict(&error) => Ok(Attempt::Theirs),
                Err(error) => Err(error),
            };
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.clone().filter(|h| !h.is_empty());
        let ours = holder.as_deref() == Some(self.settings.identity.as_str());
        if !ours && holder.is_some() && !self.expired(&spec) {
            return Ok(Attempt::Theirs);
        }
        let transitions = spec.lease_transitions.unwrap_or(0);
        lease.spec = Some(if ours {
            let acquired = spec.acquire_time.unwrap_or_else(|| now.clone());
            self.spec(&now, &acquired, transitions)
        } else {
            self.spec(&now, &now, transitions + 1)
        });
        // The resourceVersion in the object makes this fail after any other write.
        match self
            .api
            .replace(&self.settings.name, &Default::default(), &lease)
            .await
        {
            Ok(_) => Ok(Attempt::Ours),
            Err(error) if is_conflict(&error) => Ok(Attempt::Theirs),
            Err(error) => Err(error),
        }
    }

    fn spec(&self, now: &MicroTime, acquired: &MicroTime, transitions: i32) -> LeaseSpec {
        let seconds = self.settings.lease_duration.as_secs().max(1);
        LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            lease_duration_seconds: i32::try_from(seconds).ok(),
            acquire_time: Some(acquired.clone()),
            renew_time: Some(now.clone()),
            lease_transitions: Some(transitions),
            ..Default::default()
        }
    }

    /// Whether the Lease has not changed for its duration, by our own clock: clocks of different
    /// machines need not agree.
    fn expired(&self, spec: &LeaseSpec) -> bool {
        let state: Observed = (
            spec.holder_identity.clone(),
            spec.renew_time.as_ref().map(|t| t.0),
            spec.lease_transitions,
        );
        let now = self.clock.millis();
        let theirs = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0) * 1000;
        let valid = theirs.max(millis(self.settings.lease_duration));
        let mut observed = self.observed.lock();
        let since = match &*observed {
            Some(seen) if seen.state == state => seen.since,
            _ => now,
        };
        let until = since.saturating_add(valid);
        *observed = Some(Seen {
            state,
            since,
            until,
        });
        now >= until
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Leadership that was won; renewed in the background until it is lost or released.
pub struct Leadership {
    elector: Arc<Elector>,
    held: Arc<Held>,
    renewing: tokio::task::JoinHandle<()>,
}

impl Leadership {
    fn start(elector: Arc<Elector>, before: u64, shutdown: &CancellationToken) -> Self {
        let deadline = millis(elector.settings.renew_deadline);
        let held = Arc::new(Held {
            clock: elector.clock.clone(),
            until: AtomicU64::new(before + deadline),
            lost: CancellationToken::new(),
        });
        tracing::info!(
            lease = elector.settings.name,
            identity = elector.settings.identity,
            "leading"
        );
        let renewing = tokio::spawn(renew(elector.clone(), held.clone(), shutdown.clone()));
        Self {
            elector,
            held,
            renewing,
        }
    }

    /// Cancelled when leadership ends for any reason other than `release`.
    pub fn lost(&self) -> CancellationToken {
        self.held.lost.clone()
    }

    /// Whether the Lease is surely ours right now.
    pub fn is_valid(&self) -> bool {
        self.held.is_valid()
    }

    /// The same client, but each request fails once leadership is not certain any longer.
    pub fn fence(&self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        Client::new(
            Fence {
                client,
                held: self.held.clone(),
            },
            namespace,
        )
    }

    /// Releases the Lease, so that another process need not wait for it to expire.
    pub async fn release(self) {
        self.renewing.abort();
        // Wait until a renewal in progress has ended: it must not arrive after the release.
        let _ = self.renewing.await;
        if !self.held.is_valid() {
            return;
        }
        self.held.until.store(0, Ordering::Release);
        let settings = &self.elector.settings;
        let Ok(Some(mut lease)) = self.elector.api.get_opt(&settings.name).await else {
            return;
        };
        let Some(spec) = &mut lease.spec else { return };
        if spec.holder_identity.as_deref() != Some(settings.identity.as_str()) {
            return;
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        let _ = self
            .elector
            .api
            .replace(&settings.name, &Default::default(), &lease)
            .await;
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

async fn renew(elector: Arc<Elector>, held: Arc<Held>, shutdown: CancellationToken) {
    let settings = &elector.settings;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(settings.retry_period) => {}
        }
        // Counted from before the request: the server may have stored the renewal at once.
        let before = held.clock.millis();
        let left = held.until.load(Ordering::Acquire).saturating_sub(before);
        let attempt = tokio::time::timeout(Duration::from_millis(left), elector.attempt()).await;
        match attempt {
            Ok(Ok(Attempt::Ours)) if held.is_valid() => {
                let until = before + millis(settings.renew_deadline);
                held.until.store(until, Ordering::Release);
                continue;
            }
            Ok(Ok(Attempt::Ours | Attempt::Theirs)) | Err(_) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, lease = settings.name, "Lease not renewed");
                if held.is_valid() {
                    continue;
                }
            }
        }
        tracing::error!(lease = settings.name, "leadership lost");
        held.lost.cancel();
        return;
    }
}
