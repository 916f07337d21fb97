//! What became of each pod.

use std::sync::Arc;
use std::time::Duration;

use allot_scheduler::pod::Key;
use k8s_openapi::api::resource::v1::AllocationResult;

/// Why a pod no longer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It ran for its time.
    Completed,
    /// It had to make way for a pod of higher priority.
    Preempted,
    /// It was deleted.
    Deleted,
}

/// Where a pod went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// When, in the time of the simulation.
    pub at: Duration,
    /// Name of the node that the pod was bound to.
    pub node: Arc<str>,
    /// `driver/pool/device` of each device of its claims, in their order.
    pub devices: Box<[Box<str>]>,
}

/// One pod from its arrival to its end.
#[derive(Debug, Clone)]
pub struct Record {
    /// Namespace and name.
    pub key: Key,
    /// When it arrived; zero for those that were there before.
    pub arrived: Duration,
    /// Whether it was there before the start.
    pub found: bool,
    /// Whether it was on its node before the start.
    pub was_running: bool,
    /// Where it went.
    pub placed: Option<Placement>,
    /// When and how it ended.
    pub ended: Option<(Duration, End)>,
    /// When it fitted nowhere for the first time.
    pub refused: Option<Duration>,
    /// What the scheduler said last, as long as it waits.
    pub reason: Option<Arc<str>>,
}

impl Record {
    pub(crate) fn new(key: Key, arrived: Duration, found: bool) -> Self {
        Self {
            key,
            arrived,
            found,
            was_running: false,
            placed: None,
            ended: None,
            refused: None,
            reason: None,
        }
    }

    /// How long it waited for its node.
    #[must_use]
    pub fn waited(&self) -> Option<Duration> {
        let placed = self.placed.as_ref()?;
        Some(placed.at.saturating_sub(self.arrived))
    }

    /// Whether it still waits for a node.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.placed.is_none() && self.ended.is_none()
    }
}

/// The names of the devices of an allocation.
pub(crate) fn devices_of(allocation: &AllocationResult) -> impl Iterator<Item = Box<str>> {
    let results = allocation
        .devices
        .iter()
        .flat_map(|devices| devices.results.iter().flatten());
    results.map(|r| format!("{}/{}/{}", r.driver, r.pool, r.device).into())
}

/// A preemption.
#[derive(Debug, Clone)]
pub(crate) struct Preemption {
    pub(crate) at: Duration,
    pub(crate) victim: Key,
    pub(crate) preemptor: Key,
    pub(crate) node: Arc<str>,
}
