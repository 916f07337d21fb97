//! Requests that acquire, renew and release a Lease. `leadership` handles their results.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::{Api, Client};

use crate::Settings;
use crate::clock::{Monotonic, millis};

/// The result of an attempt to acquire or renew the Lease.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// This process holds the Lease.
    Ours,
    /// Another process holds the Lease.
    Theirs,
}

/// A candidate for leadership.
pub struct Elector {
    api: Api<Lease>,
    pub(crate) settings: Settings,
    pub(crate) clock: Monotonic,
    /// The last observed state of another holder's Lease.
    observed: parking_lot::Mutex<Option<Seen>>,
}

/// A state of another holder's Lease, with times of this process's clock (see [`Monotonic::millis`]).
struct Seen {
    state: Observed,
    /// When it was first observed.
    since: u64,
    /// When it expires unless it is renewed.
    until: u64,
}

/// What identifies a state of a Lease: holder, renew time, number of transitions.
type Observed = (Option<String>, Option<Timestamp>, Option<i32>);

impl Elector {
    /// Creates a candidate for the Lease of these settings; [`Elector::acquire`] waits until it leads.
    pub fn new(client: Client, settings: Settings) -> Self {
        Self {
            api: Api::namespaced(client, &settings.namespace),
            clock: Monotonic::new(&settings.clock),
            settings,
            observed: parking_lot::Mutex::new(None),
        }
    }

    /// The time until the next attempt: the retry period, or less if the Lease of another holder expires earlier.
    pub(crate) fn pause(&self) -> Duration {
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

    /// One attempt to acquire or renew the Lease.
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
            self.spec(&now, &now, transitions.saturating_add(1))
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

    /// Clears the holder of the Lease if this process holds it.
    pub(crate) async fn release(&self) -> Result<(), kube::Error> {
        match self.clear_holder().await {
            // By a renewal that was given up after it had been sent.
            Err(error) if is_conflict(&error) => self.clear_holder().await,
            released => released,
        }
    }

    async fn clear_holder(&self) -> Result<(), kube::Error> {
        let Some(mut lease) = self.api.get_opt(&self.settings.name).await? else {
            return Ok(());
        };
        let Some(spec) = &mut lease.spec else {
            return Ok(());
        };
        if spec.holder_identity.as_deref() != Some(self.settings.identity.as_str()) {
            return Ok(());
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        self.api
            .replace(&self.settings.name, &Default::default(), &lease)
            .await
            .map(drop)
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

    /// Whether the Lease has not changed for its duration, by the clock of this process: clocks of different
    /// machines may differ.
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
