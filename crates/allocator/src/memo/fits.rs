//! Whether claims fit on nodes, cached until something changes there.
//!
//! Between two pods with the same claims hardly anything changes: the devices of one node, where the first of them was
//! placed. For all other nodes the answer is the same, and checking that nothing changed is cheaper than reading the
//! state.

use rustc_hash::FxHashMap;

use crate::claims::{Claims, SHAPES};
use crate::cluster::{ChangeStamp, Cluster, NodePlace};
use crate::node::Node;
use crate::outcome::{Outcome, Policy};

/// Limit of cached answers per shape, including those for deleted nodes.
const LIMIT: usize = 1 << 15;

/// An answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fit {
    /// The last change that it takes into account.
    pub(crate) changed: ChangeStamp,
    /// Where later changes are looked up.
    pub(crate) place: Option<NodePlace>,
    pub(crate) fits: bool,
    /// The policy's preference for the allocation.
    pub(crate) preference: i64,
    /// How many decisions the search took.
    pub(crate) steps: u64,
}

impl Fit {
    pub(crate) fn outcome(&self) -> Outcome<()> {
        match self.fits {
            true => Outcome::Allocated(()),
            false => Outcome::DoesNotFit,
        }
    }
}

/// What [`Allocator::probe_known`](crate::Allocator::probe_known) found on a node, for the next pod with the same claims.
#[derive(Debug, Clone, Copy)]
pub struct KnownFit {
    id: (u64, Policy),
    node: u64,
    fit: Fit,
}

impl KnownFit {
    pub(crate) fn new((claims, policy): (&Claims, Policy), node: &Node, fit: Fit) -> Self {
        Self {
            id: (claims.shape, policy),
            node: node.id(),
            fit,
        }
    }

    /// The answer, if nothing has changed that it depends on.
    pub(crate) fn get(
        &self,
        (claims, policy): (&Claims, Policy),
        cluster: &Cluster,
        node: &Node,
    ) -> Option<&Fit> {
        let place = self.fit.place.as_ref()?;
        let same = self.id == (claims.shape, policy) && self.node == node.id();
        (same && cluster.changed_at(place)? == self.fit.changed).then_some(&self.fit)
    }
}

/// The answers for claims of one shape, by node.
#[derive(Debug)]
struct Shape {
    id: (u64, Policy),
    nodes: FxHashMap<u64, Fit>,
}

/// The answers for the most recent shapes, the last one first.
#[derive(Debug, Default)]
pub(crate) struct Fits(Vec<Shape>);

impl Fits {
    /// The last answer for a node, whatever has changed since.
    pub(crate) fn get(&mut self, (claims, policy): (&Claims, Policy), node: &Node) -> Option<Fit> {
        let id = (claims.shape, policy);
        let at = self.0.iter().position(|shape| shape.id == id)?;
        self.0[..=at].rotate_right(1);
        self.0[0].nodes.get(&node.id()).copied()
    }

    pub(crate) fn insert(&mut self, (claims, policy): (&Claims, Policy), node: &Node, fit: Fit) {
        let id = (claims.shape, policy);
        if self.0.first().is_none_or(|shape| shape.id != id) {
            self.0.truncate(SHAPES - 1);
            let nodes = FxHashMap::default();
            self.0.insert(0, Shape { id, nodes });
        }
        let nodes = &mut self.0[0].nodes;
        if nodes.len() >= LIMIT {
            nodes.clear();
        }
        nodes.insert(node.id(), fit);
    }
}
