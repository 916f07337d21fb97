//! The allocator as the plugin uses it: prepared requests, limits, share IDs.

use std::sync::OnceLock;
use std::time::Duration;

use allot_allocator::explain::{Explanation, Nearness};
use allot_allocator::{
    Allocator, ClaimShapes, Claims, ClassSelectors, Cluster, ErrorKind, Excess, Features, KnownFit,
    Limits, MAX_RESULTS, Policy, SelectorCache,
};
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim};
use parking_lot::{Mutex, MutexGuard};

use crate::node::NodeInfo;
use crate::sources::Sources;

pub mod classes;

use classes::Classes;

// The allocator does not depend on the crate with the limits of the API.
const _: () = assert!(MAX_RESULTS as usize == allot_model::limits::ALLOCATION_RESULTS);

/// Claims that are to be allocated together.
#[derive(Debug, Clone)]
pub struct AllocationRequest(Claims);

impl AllocationRequest {
    /// The number of requests.
    pub fn requests(&self) -> usize {
        self.0.requests()
    }

    /// Limits the devices of each class that the claims get together; see [`Claims::limit_devices`].
    pub fn limit(&mut self, left: &dyn Fn(&str) -> Option<i64>) {
        self.0.limit_devices(left);
    }

    /// Whether a limit may keep the claims from what they could get otherwise.
    pub fn is_limited(&self) -> bool {
        self.0.is_limited()
    }

    /// The limited classes, with the most devices that the claims could get of each.
    pub fn limited(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.limited()
    }

    /// What exceeds a limit whatever is free.
    pub fn excesses(&self) -> Vec<Excess<'_>> {
        self.0.excesses()
    }

    /// Whether the claims exceed a limit whatever alternatives are taken.
    pub fn exceeds(&self) -> bool {
        self.0.exceed()
    }
}

/// The outcome of a search.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// An allocation for each claim, in their order.
    Allocated(Vec<AllocationResult>),
    /// Proven not to fit.
    NoFit,
    /// The node cannot be used, for a reason specific to it.
    NodeError(String),
    /// The attempt cannot continue.
    Error(String),
    /// Too much work or too late; fits or not.
    GaveUp,
}

/// Counters of the allocator's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Nodes on which devices were searched.
    pub nodes: u64,
    /// Decisions of the searches; a cached answer counts with the decisions it took originally.
    pub steps: u64,
    /// Nodes on which the search gave up.
    pub gave_up: u64,
}

/// Compiles and solves. One per scheduler.
#[derive(Debug)]
pub struct DeviceAllocator {
    features: Features,
    sources: Sources,
    selectors: SelectorCache,
    shapes: Mutex<ClaimShapes>,
    search: Mutex<Search>,
}

/// What searches share. They are short and many, so all of it is behind one lock.
#[derive(Debug)]
struct Search {
    allocator: Allocator,
    timeout: Option<Duration>,
    work: Work,
}

/// Tries the same claims on one node after the other. It holds the lock of the search, so that no other search runs.
pub struct Prober<'p> {
    allocator: &'p DeviceAllocator,
    cluster: &'p Cluster,
    request: &'p AllocationRequest,
    search: MutexGuard<'p, Search>,
}

impl Prober<'_> {
    /// As [`DeviceAllocator::probe`]. `known` is what an earlier call left for the node.
    pub fn probe(&mut self, node: &NodeInfo, known: &mut Option<KnownFit>) -> Outcome {
        let search = &mut *self.search;
        let found = self.allocator.limited(search, |allocator, limits| {
            let node = &node.device_node;
            allocator.probe_known(self.cluster, node, &self.request.0, limits, known)
        });
        outcome(&mut search.work, found, |()| Outcome::Allocated(Vec::new()))
    }
}

impl DeviceAllocator {
    /// An allocator for clusters with these features.
    pub fn new(features: Features, sources: Sources) -> Self {
        Self {
            features,
            sources,
            selectors: SelectorCache::new(),
            shapes: Mutex::default(),
            search: Mutex::new(Search {
                allocator: Allocator::new(),
                timeout: None,
                work: Work::default(),
            }),
        }
    }

    /// The work since the last call.
    pub fn take_work(&self) -> Work {
        std::mem::take(&mut self.search.lock().work)
    }

    /// Sets how long one node may take.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.search.lock().timeout = timeout;
    }

    /// Sets which devices are taken, and which nodes are preferred for them.
    pub fn set_policy(&self, policy: Policy) {
        self.search.lock().allocator.set_policy(policy);
    }

    /// Prepares claims for solving on many nodes, within limits that `limit` sets.
    pub fn prepare(
        &self,
        classes: &Classes,
        claims: &[&ResourceClaim],
        limit: impl FnOnce(&mut AllocationRequest),
    ) -> AllocationRequest {
        let claims = claims.iter().copied();
        let claims = Claims::prepare(&self.features, &self.selectors, classes, claims);
        let mut request = AllocationRequest(claims);
        limit(&mut request);
        self.shapes.lock().recognize(&mut request.0);
        request
    }

    /// Prepares a class for counting its devices on many nodes.
    pub fn selectors(&self, class: &DeviceClass) -> ClassSelectors {
        ClassSelectors::new(&self.features, &self.selectors, class)
    }

    /// Finds devices on a node.
    pub fn solve(
        &self,
        cluster: &Cluster,
        request: &AllocationRequest,
        node: &NodeInfo,
    ) -> Outcome {
        let search = &mut *self.search.lock();
        let found = self.limited(search, |allocator, limits| {
            allocator.allocate(cluster, &node.device_node, &request.0, limits)
        });
        outcome(&mut search.work, found, |found| {
            let mut share_id = || self.sources.share_id();
            match found.results(&request.0, &mut share_id) {
                Ok(results) => Outcome::Allocated(results),
                Err(error) => Outcome::Error(error.to_string()),
            }
        })
    }

    /// As [`DeviceAllocator::solve`], without the results: only whether there are devices.
    pub fn probe(
        &self,
        cluster: &Cluster,
        request: &AllocationRequest,
        node: &NodeInfo,
    ) -> Outcome {
        self.prober(cluster, request).probe(node, &mut None)
    }

    /// A prober for many nodes, which keeps the lock of the search.
    pub fn prober<'p>(
        &'p self,
        cluster: &'p Cluster,
        request: &'p AllocationRequest,
    ) -> Prober<'p> {
        Prober {
            allocator: self,
            cluster,
            request,
            search: self.search.lock(),
        }
    }

    /// The preference of the placement policy for the allocation on a node; `None` if there is none.
    pub fn preference(
        &self,
        cluster: &Cluster,
        request: &AllocationRequest,
        node: &NodeInfo,
    ) -> Option<i64> {
        let search = &mut *self.search.lock();
        let found = self.limited(search, |allocator, limits| {
            allocator.preference(cluster, &node.device_node, &request.0, limits)
        });
        match found {
            allot_allocator::Outcome::Allocated(preference) => Some(preference),
            _ => None,
        }
    }

    /// Calls the allocator within the limits, and counts its work.
    fn limited<A>(
        &self,
        search: &mut Search,
        ask: impl FnOnce(&mut Allocator, &Limits<'_>) -> allot_allocator::Outcome<A>,
    ) -> allot_allocator::Outcome<A> {
        // Most searches end before they read the clock; the timeout starts with the first read.
        let (timeout, asked) = (search.timeout, OnceLock::new());
        let late = || {
            let now = self.sources.elapsed();
            timeout.is_some_and(|t| now.saturating_sub(*asked.get_or_init(|| now)) >= t)
        };
        let limits = Limits {
            interrupt: timeout.is_some().then_some(&late),
            ..Limits::default()
        };
        let outcome = ask(&mut search.allocator, &limits);
        let steps = search.allocator.steps();
        search.work.nodes += 1;
        search.work.steps += steps;
        outcome
    }

    /// How near a node comes to satisfying the request, and how many device checks that took.
    pub fn nearness(
        &self,
        cluster: &Cluster,
        request: &AllocationRequest,
        node: &NodeInfo,
    ) -> (Nearness, usize) {
        Allocator::nearness(cluster, &node.device_node, &request.0)
    }

    /// Why there is an allocation on a node, or none. `steps`: most decisions of the search, if not the usual number.
    pub fn explain(
        &self,
        cluster: &Cluster,
        request: &AllocationRequest,
        node: &NodeInfo,
        steps: Option<u64>,
    ) -> Explanation {
        let limits = Limits {
            steps: steps.unwrap_or(Limits::DEFAULT_STEPS),
            ..Limits::default()
        };
        let mut search = self.search.lock();
        let node = &node.device_node;
        let (_, explanation) = search.allocator.explain(cluster, node, &request.0, &limits);
        explanation
    }
}

fn outcome<A>(
    work: &mut Work,
    outcome: allot_allocator::Outcome<A>,
    allocated: impl FnOnce(A) -> Outcome,
) -> Outcome {
    match outcome {
        allot_allocator::Outcome::Allocated(found) => allocated(found),
        allot_allocator::Outcome::DoesNotFit => Outcome::NoFit,
        allot_allocator::Outcome::Failed(error) => match error.kind {
            ErrorKind::Node => Outcome::NodeError(error.text),
            ErrorKind::Fatal => Outcome::Error(error.text),
        },
        allot_allocator::Outcome::GaveUp { .. } | allot_allocator::Outcome::Interrupted => {
            work.gave_up += 1;
            Outcome::GaveUp
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_until_it_is_asked_for() {
        let allocator = DeviceAllocator::new(Features::default(), Sources::replayable());
        let request = allocator.prepare(&Classes::default(), &[], |_| {});
        let node = NodeInfo::new("n".into());
        let cluster = Cluster::new(Features::default());
        for _ in 0..2 {
            allocator.solve(&cluster, &request, &node);
        }
        assert_eq!(allocator.take_work().nodes, 2);
        assert_eq!(allocator.take_work(), Work::default());
    }
}
