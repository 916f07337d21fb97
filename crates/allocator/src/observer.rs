//! Observation of a search, for statistics and explanations.

use crate::device::Device;
use crate::pool::Pool;

/// A device in an attempt.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// Index of its pool.
    pub(crate) part: u32,
    /// The device's number in the order of trying.
    pub(crate) number: u32,
    pub(crate) slot: u32,
    pub(crate) pool: &'a Pool,
    pub(crate) device: &'a Device,
}

/// Why a device was not taken for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// It has binding conditions, and the feature is off.
    BindingConditions,
    /// A selector of the class, by index.
    ClassSelector(usize),
    /// A selector of the request, by index.
    Selector(usize),
    /// The device is for other nodes.
    OtherNode,
    Taint,
    InUse,
    Capacity,
    /// It consumes counters, and the feature is off.
    CountersOff,
    Counters,
    /// A constraint of the claim, by index.
    Constraint(u32),
}

/// Why a part of the search was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The request with this first alternative has too few candidates.
    Request(u32),
    /// No choice of devices can satisfy a constraint.
    Constraint { claim: u32, constraint: u32 },
    /// The counters do not allow as many devices.
    Counters,
    /// There are too few devices for all requests together.
    Devices,
    /// The alternative would exceed a limit on the devices of its class, beside what was taken before.
    Budget(u32),
}

/// Observes a search. The default methods do nothing, so that they cost nothing when unused.
pub(crate) trait Observer {
    /// The device was checked for an alternative and not taken.
    fn rejected(&mut self, _alternative: u32, _place: &Place<'_>, _why: Rejection) {}

    /// A part of the search, maybe all of it, cannot have a solution.
    fn proven(&mut self, _proof: Proof) {}
}

/// Observes nothing.
impl Observer for () {}
