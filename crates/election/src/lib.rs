//! Leader election through a Lease, safe against a paused process.
//!
//! At most one process may write at a time. A leader knows until when it is guaranteed to hold its Lease: the time
//! *before* its last successful renewal was sent, plus the renewal deadline, measured on a clock that also runs while
//! the machine sleeps. [`Leadership::fence`] puts that check in front of every request, so that a process that was
//! stopped in the middle of its work (SIGSTOP, a paused virtual machine) fails its next request instead of writing with
//! a lost Lease.
//!
//! [`run_as_leader`] is all that a component needs; [`Elector`] and [`Leadership`] are its parts. The crate must not
//! depend on what is done under its leadership: controllers, the scheduler and drivers all use it.
//!
//! ```no_run
//! # async fn schedule(client: kube::Client, stop: tokio_util::sync::CancellationToken) {}
//! # async fn example(client: kube::Client, shutdown: tokio_util::sync::CancellationToken) {
//! use allot_election::{Election, Settings, run_as_leader};
//! let settings = Settings::new("kube-system", "allot-scheduler", "host-1");
//! // Every request of the client that `schedule` receives is checked.
//! match run_as_leader(client, settings, &shutdown, |client, stop| schedule(client, stop)).await {
//!     Election::Shutdown | Election::Finished(()) => {}
//!     Election::LeadershipLost(()) => std::process::exit(1),
//! }
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod clock;
mod elector;
mod fence;
mod leadership;
mod run;

use std::time::Duration;

use clock::Clock;
pub use elector::Elector;
pub use fence::NotLeading;
pub use leadership::Leadership;
pub use run::{Election, run_as_leader};

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

/// The host name, read once per process.
pub fn host_name() -> &'static str {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAME.get_or_init(|| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim();
        if host.is_empty() { "allot" } else { host }.to_owned()
    })
}

/// A unique holder identity: host name and random digits.
pub fn identity() -> String {
    format!("{}_{:016x}", host_name(), rand::random::<u64>())
}
