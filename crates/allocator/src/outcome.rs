//! The options and outcomes of an allocation attempt.

use crate::allocation::Allocation;

/// Which of several possible devices to take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The first in the order of drivers, pools, slices and devices. That is what Kubernetes does, and drivers rely on it.
    #[default]
    FirstFit,
    /// Best fit: prefers shared devices with the least spare capacity, then partitions of devices that are already
    /// partitioned, then small devices. Pools with binding conditions still come last; the first of equals is chosen.
    BestFit,
    /// The opposite: unused devices first, the largest of them before the others. Claims share as little as possible.
    Spread,
    /// Like [`Policy::BestFit`], but of partitions the one that blocks the fewest other partitions, weighted by their
    /// sizes.
    LeastFragmentation,
}

impl Policy {
    /// All of them, with their names in configurations.
    pub const NAMED: [(&'static str, Self); 4] = [
        ("FirstFit", Self::FirstFit),
        ("Pack", Self::BestFit),
        ("Spread", Self::Spread),
        ("LeastFragmentation", Self::LeastFragmentation),
    ];
}

/// The outcome of an attempt.
#[derive(Debug, Clone)]
pub enum Outcome<A = Allocation> {
    /// Every claim gets its devices.
    Allocated(A),
    /// The claims cannot all be allocated on this node.
    DoesNotFit,
    /// Something is wrong.
    Failed(Error),
    /// The budget was used up before the answer was known. The claims may or may not fit.
    GaveUp {
        /// The number of steps that were taken.
        steps: u64,
    },
    /// [`Limits::interrupt`] stopped the attempt.
    Interrupted,
}

/// The error that prevented an attempt from completing, with the message of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    /// Whether the error concerns the node or all nodes.
    pub kind: ErrorKind,
    /// The text for events and logs.
    pub text: String,
}

/// Whether an error concerns one node or all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Scheduling of the pod has to stop: other nodes must not be tried.
    Fatal,
    /// Only this node cannot be used.
    Node,
}

impl Error {
    pub(crate) fn node(text: String) -> Self {
        Self {
            kind: ErrorKind::Node,
            text,
        }
    }

    pub(crate) fn fatal(text: String) -> Self {
        Self {
            kind: ErrorKind::Fatal,
            text,
        }
    }
}

/// The limits on the work of an attempt.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// The budget in steps of the search (decisions that are taken). Deterministic: a search with the same input ends at the same step on every machine.
    pub steps: u64,
    /// Called periodically to determine whether to stop, for deadlines. `None` = never.
    pub interrupt: Option<&'a (dyn Fn() -> bool + Sync)>,
}

impl Limits<'_> {
    /// Steps that are enough for everything but contrived claims, and take well under a second.
    pub const DEFAULT_STEPS: u64 = 1_000_000;
}

impl Default for Limits<'_> {
    fn default() -> Self {
        Self {
            steps: Self::DEFAULT_STEPS,
            interrupt: None,
        }
    }
}

impl std::fmt::Debug for Limits<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { steps, interrupt } = self;
        f.debug_struct("Limits")
            .field("steps", steps)
            .field("interrupt", &interrupt.is_some())
            .finish()
    }
}
