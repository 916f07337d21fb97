//! State of a worker's containers.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ContainerUser;
use tokio::time::Instant;

use super::resources::Budget;
use crate::runtime::{ReportedResources, Running};
use crate::shim::spec::Exit;

/// First and longest back-off before a restart.
pub(super) const BACKOFF: (Duration, Duration) =
    (Duration::from_secs(10), Duration::from_secs(300));
/// A container that ran this long starts with a fresh back-off.
const CALM: Duration = Duration::from_secs(600);

/// What the probes of a container that runs have found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Health {
    /// It is up: liveness and readiness count from here.
    pub(crate) started: bool,
    /// It can do its work.
    pub(crate) ready: bool,
}

impl Health {
    /// That of a container without probes.
    pub(crate) const GOOD: Self = Self {
        started: true,
        ready: true,
    };
}

/// One container of a pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct ContainerState {
    pub(crate) phase: Phase,
    /// How the previous run ended, if there was one.
    pub(crate) last: Option<Terminated>,
    pub(crate) restarts: u32,
    pub(crate) health: Health,
    /// What the status calls the image of the last run; empty for the host's files.
    pub(crate) image_id: String,
    /// The user of the last run, if the runtime reports it.
    pub(crate) user: Option<ContainerUser>,
    /// The resources that the last run was started with or resized to.
    pub(super) applied: Option<Budget>,
    /// The resources that the runtime reports for it.
    pub(super) given: Option<ReportedResources>,
    pub(super) backoff: Duration,
    pub(crate) retry_at: Option<Instant>,
}

/// The three states of the API.
#[derive(Debug, Clone)]
pub(crate) enum Phase {
    Waiting { reason: String, message: String },
    Running(Running),
    Terminated(Terminated),
}

impl Default for Phase {
    fn default() -> Self {
        Self::waiting("ContainerCreating", "")
    }
}

impl Phase {
    pub(crate) fn waiting(reason: &str, message: impl Into<String>) -> Self {
        Self::Waiting {
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}

/// A container that has ended.
#[derive(Debug, Clone)]
pub(crate) struct Terminated {
    /// Empty if it never had one.
    pub(crate) id: String,
    pub(crate) started: Option<Timestamp>,
    pub(crate) exit: Exit,
    pub(crate) reason: Cow<'static, str>,
    pub(crate) message: String,
}

impl Terminated {
    pub(crate) fn new(running: &Running, exit: Exit) -> Self {
        let reason = match (exit.oom_killed, exit.code) {
            (true, _) => "OOMKilled",
            (false, 0) => "Completed",
            (false, _) => "Error",
        };
        Self {
            id: running.id.clone(),
            started: Some(running.started),
            exit,
            reason: reason.into(),
            message: String::new(),
        }
    }
}

impl ContainerState {
    /// A container runs.
    pub(crate) fn run(&mut self, running: Running) {
        self.image_id.clone_from(&running.image_id);
        self.user.clone_from(&running.user);
        self.given = running.given;
        self.phase = Phase::Running(running);
    }

    pub(crate) fn running(&self) -> Option<&Running> {
        match &self.phase {
            Phase::Running(running) => Some(running),
            _ => None,
        }
    }

    pub(crate) fn terminated(&self) -> Option<&Terminated> {
        match &self.phase {
            Phase::Terminated(terminated) => Some(terminated),
            _ => None,
        }
    }

    /// The IDs of its runs that have ended, as far as they are known.
    pub(crate) fn ended_ids(&self) -> impl Iterator<Item = &str> {
        let ends = [self.terminated(), self.last.as_ref()]
            .into_iter()
            .flatten();
        let ids = ends.map(|end| end.id.as_str());
        ids.filter(|id| !id.is_empty())
    }

    /// It runs, and its startup probe, if it has one, has succeeded.
    pub(crate) fn up(&self) -> bool {
        self.running().is_some() && self.health.started
    }

    /// It ran at least once.
    pub(crate) fn started_once(&self) -> bool {
        self.last.is_some() || !matches!(self.phase, Phase::Waiting { .. })
    }

    /// Decides when the next start may happen: the first restart at once, later ones with exponential back-off. Returns
    /// the wait.
    pub(crate) fn plan_restart(&mut self, now: Instant, ran: Duration) -> Duration {
        if ran >= CALM {
            self.backoff = Duration::ZERO;
        }
        let wait = self.backoff;
        self.backoff = if wait.is_zero() {
            BACKOFF.0
        } else {
            (wait * 2).min(BACKOFF.1)
        };
        self.retry_at = Some(now + wait);
        wait
    }

    pub(crate) fn waiting_reason(&self) -> Option<&str> {
        match &self.phase {
            Phase::Waiting { reason, .. } => Some(reason),
            _ => None,
        }
    }

    pub(crate) fn may_start(&self, now: Instant) -> bool {
        self.retry_at.is_none_or(|at| at <= now)
    }
}
