//! One attempt's view of a pod's classic claims: the extension points of the plugin, without any effect.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use allot_framework::claim_plugin::PluginRejection as Rejection;
use allot_framework::node::NodeInfo;
use allot_framework::pod::{Key, PodInfo, Uid, key_of};
use allot_framework::selectors::Nodes;
use allot_framework::status::{MUST_BE_REALLOCATED, NOT_AVAILABLE};
use allot_model::classic::objects::{
    Allocation, AllocationMode, ResourceClaim, SchedulingSpec, SchedulingStatus,
};
use allot_model::limits::CLASSIC_NODES;
use k8s_openapi::api::core::v1::NodeSelector;
use rustc_hash::FxHasher;

use crate::claims::{InFlight, uid_of};
use crate::message::ClaimTask;
use crate::state::Classic;
use crate::structured::{Problem, Used};

mod post_filter;

pub use post_filter::Deallocation;

/// Why a pod waits after its specification was published; upstream's text.
pub const WAITING: &str = "waiting for resource driver";
/// Why a pod waits when there is nothing to publish; upstream's text.
const WAITING_FOR_INFORMATION: &str = "waiting for resource driver to provide information";
const EXCLUDED: &str = "excluded by resource class node filter";
const UNSUITABLE: &str = "resourceclaim cannot be allocated for the node (unsuitable)";

/// What the scheduler allocated, and the driver of the claim's class.
type Allocated = (String, Arc<Allocation>);

/// A claim of a pod.
#[derive(Debug)]
pub struct PodClaim {
    key: Key,
    claim: Arc<ResourceClaim>,
    state: State,
}

impl PodClaim {
    /// Namespace and name.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Whether the claim is allocated and can be used on a node.
    pub fn is_allocated_on(&self, node: &NodeInfo) -> bool {
        match &self.state {
            State::Allocated(nodes) => nodes
                .as_ref()
                .is_none_or(|n| n.matches(&node.name, node.labels())),
            State::Negotiated { .. } | State::Structured { .. } => false,
        }
    }
}

#[derive(Debug)]
enum State {
    /// Usable on these nodes.
    Allocated(Option<Nodes>),
    /// The driver allocates the claim, after a negotiation about the node.
    Negotiated {
        /// The nodes where the class can be used.
        suitable: Option<Nodes>,
        /// The nodes that the driver excluded, if it has answered.
        unsuitable: Option<Vec<String>>,
    },
    /// The scheduler is to allocate it.
    Structured {
        /// The nodes where the class can be used.
        suitable: Option<Nodes>,
        problem: Problem,
    },
}

/// The outcome of an attempt for a pod with claims that drivers must allocate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiation {
    /// The specification to publish, if it changed.
    pub publish: Option<SchedulingSpec>,
    /// What the pod waits for, for its condition.
    pub message: &'static str,
}

/// The classic claims of a pod, prepared for judging nodes.
#[derive(Debug)]
pub struct PodClaims {
    claims: Vec<PodClaim>,
    spec: SchedulingSpec,
    /// Instances in use; only counted for pods that need some.
    used: Option<Used>,
}

fn compile(selector: Option<&NodeSelector>) -> Option<Nodes> {
    selector.map(Nodes::new)
}

impl PodClaims {
    /// Looks up and checks the claims of a pod; `None` when it has none (PreFilter).
    ///
    /// # Errors
    /// When no node is feasible at present.
    pub fn prepare(pod: &PodInfo, cx: &Classic) -> Result<Option<Self>, Rejection> {
        if pod
            .spec()
            .resource_claims
            .as_ref()
            .is_none_or(Vec::is_empty)
        {
            return Ok(None);
        }
        let resolved = cx
            .resolve(pod)
            .map_err(|e| Rejection::unresolvable(e.to_string()))?;
        if resolved.is_empty() {
            return Ok(None);
        }
        let negotiation = cx
            .negotiations
            .of(pod)
            .map_err(|e| Rejection::error(e.to_string()))?;
        let answers = negotiation.map(|n| &n.status);
        let mut claims = Vec::with_capacity(resolved.len());
        for (entry, key, claim) in resolved {
            let state = State::of(pod, &entry, &claim, answers, cx)?;
            claims.push(PodClaim { key, claim, state });
        }
        let is_structured = |c: &PodClaim| matches!(c.state, State::Structured { .. });
        let structured = claims.iter().any(is_structured);
        Ok(Some(Self {
            used: structured.then(|| Used::of(&cx.claims)),
            claims,
            spec: cx.negotiations.spec(&pod.key),
        }))
    }

    /// Whether drivers have to allocate claims before the pod can be placed.
    pub fn is_pending(&self) -> bool {
        self.pending().next().is_some()
    }

    fn pending(&self) -> impl Iterator<Item = &Option<Vec<String>>> {
        self.claims.iter().filter_map(|c| match &c.state {
            State::Negotiated { unsuitable, .. } => Some(unsuitable),
            State::Allocated(_) | State::Structured { .. } => None,
        })
    }

    /// Judges a node.
    ///
    /// # Errors
    /// When a claim cannot be used or allocated there.
    pub fn filter(&self, node: &NodeInfo, cx: &Classic) -> Result<(), Rejection> {
        let outside = |nodes: &Option<Nodes>| {
            nodes
                .as_ref()
                .is_some_and(|n| !n.matches(&node.name, node.labels()))
        };
        let reject = |reason: &'static str| Err(Rejection::unresolvable(reason));
        let mut available = true;
        for claim in &self.claims {
            match &claim.state {
                State::Allocated(nodes) => available &= !outside(nodes),
                State::Structured { suitable, .. } if outside(suitable) => return reject(EXCLUDED),
                State::Structured { .. } => {}
                State::Negotiated {
                    suitable,
                    unsuitable,
                } => {
                    if outside(suitable) {
                        return reject(EXCLUDED);
                    }
                    if unsuitable
                        .as_ref()
                        .is_some_and(|u| u.iter().any(|n| **n == *node.name))
                    {
                        return reject(UNSUITABLE);
                    }
                }
            }
        }
        self.allocate(&node.name, cx)?;
        // Last, because it is the one reason that a deallocation can help against.
        if available {
            Ok(())
        } else {
            reject(NOT_AVAILABLE)
        }
    }

    /// Allocates on a node what the scheduler has to; by position of the claim.
    fn allocate(&self, node: &str, cx: &Classic) -> Result<Vec<(usize, Allocated)>, Rejection> {
        let Some(used) = &self.used else {
            return Ok(Vec::new());
        };
        let (mut allocations, mut taken) = (Vec::new(), Vec::new());
        for (at, claim) in self.claims.iter().enumerate() {
            let State::Structured { problem, .. } = &claim.state else {
                continue;
            };
            match problem.allocate(node, &cx.structured, used, &mut taken) {
                Ok(Some(found)) => {
                    allocations.push((at, (problem.driver.clone(), Arc::new(found))));
                }
                Ok(None) => return Err(Rejection::unresolvable(UNSUITABLE)),
                Err(error) => {
                    let text = format!("checking structured parameters failed: {error}");
                    return Err(Rejection::unresolvable(text));
                }
            }
        }
        Ok(allocations)
    }

    /// The node that was published before, if it is still feasible: selecting another one costs a round.
    pub fn selected_among(&self, nodes: &[Arc<NodeInfo>], feasible: &[usize]) -> Option<usize> {
        feasible
            .iter()
            .copied()
            .find(|i| *nodes[*i].name == *self.spec.selected_node)
    }

    /// What to publish when these nodes are feasible, of which `best` is the best (PreScore and Reserve). `others` says
    /// whether the pod has claims that the scheduler allocates.
    pub fn negotiate(&self, pod: &Uid, feasible: &[&str], best: &str, others: bool) -> Negotiation {
        let mut spec = self.spec.clone();
        let potential = potential_nodes(pod, feasible, best);
        if potential.iter().any(|n| !spec.potential_nodes.contains(n)) {
            spec.potential_nodes = potential;
            // Drivers answer only about potential nodes. A node that was excluded and is no longer listed would look
            // feasible, be listed in place of another one, be excluded again, and so on.
            for refused in self.pending().flatten().flatten() {
                let nodes = &mut spec.potential_nodes;
                if nodes.len() < CLASSIC_NODES && !nodes.contains(refused) {
                    nodes.push(refused.clone());
                }
            }
            spec.potential_nodes.sort_unstable();
        }
        let pending = self.pending().count();
        let answered = self.pending().filter(|u| u.is_some()).count();
        let alone = pending == 1 && !others && self.used.is_none();
        if answered == pending || alone {
            best.clone_into(&mut spec.selected_node);
        }
        if spec == self.spec {
            return Negotiation {
                publish: None,
                message: WAITING_FOR_INFORMATION,
            };
        }
        Negotiation {
            publish: Some(spec),
            message: WAITING,
        }
    }

    /// The claims to write before the pod can be bound to a node (Reserve).
    ///
    /// # Errors
    /// When the node does not fit after all.
    pub fn tasks(&self, pod: &Uid, node: &str, cx: &Classic) -> Result<Vec<ClaimTask>, Rejection> {
        let mut allocations = self.allocate(node, cx)?;
        let mut tasks = Vec::new();
        for (at, c) in self.claims.iter().enumerate() {
            let fresh = allocations.iter().position(|(of, _)| *of == at);
            let allocation = fresh.map(|i| allocations.swap_remove(i).1);
            if allocation.is_some() || !c.claim.is_reserved_for(pod) {
                tasks.push(ClaimTask {
                    key: c.key.clone(),
                    uid: uid_of(&c.claim).into(),
                    claim: c.claim.clone(),
                    allocation,
                });
            }
        }
        Ok(tasks)
    }

    /// Namespace, name and identity of every claim.
    pub fn keys(&self) -> Vec<(Key, Uid)> {
        self.claims
            .iter()
            .map(|c| (c.key.clone(), uid_of(&c.claim).into()))
            .collect()
    }

    /// Whether a change of the drivers' answers matters while the pod waits for an allocation: not as long as claims
    /// lack an answer, nor while the selected node is still possible.
    pub fn answers_matter(&self) -> bool {
        let selected = &self.spec.selected_node;
        if !selected.is_empty() {
            return self.pending().flatten().any(|u| u.contains(selected));
        }
        self.pending().all(Option::is_some)
    }
}

impl State {
    fn of(
        pod: &PodInfo,
        entry: &str,
        claim: &ResourceClaim,
        answers: Option<&SchedulingStatus>,
        cx: &Classic,
    ) -> Result<Self, Rejection> {
        let reject = |text: &'static str| Err(Rejection::unschedulable(text));
        if claim.status.deallocation_requested || cx.claims.is_releasing(uid_of(claim), &pod.uid) {
            return reject(MUST_BE_REALLOCATED);
        }
        if let Some(allocation) = &claim.status.allocation {
            if !cx.claims.can_be_reserved(claim, &pod.uid) {
                return reject("resourceclaim in use");
            }
            return Ok(Self::Allocated(compile(
                allocation.available_on_nodes.as_ref(),
            )));
        }
        let name = &claim.spec.resource_class_name;
        let Some(class) = cx.class(name) else {
            let text = format!("resource class {name} does not exist");
            return Err(Rejection::unresolvable(text));
        };
        if class.structured_parameters == Some(true) {
            let writing = cx.claims.in_flight(uid_of(claim));
            if writing.is_some_and(InFlight::allocates) {
                let key = key_of(&claim.metadata);
                let text = format!("resource claim {key} is in the process of being allocated");
                return Err(Rejection::unschedulable(text));
            }
            let problem = cx.structured.problem(claim, class);
            return Ok(Self::Structured {
                suitable: compile(class.suitable_nodes.as_ref()),
                problem: problem.map_err(|error| Rejection::unresolvable(error.to_string()))?,
            });
        }
        if claim.spec.allocation_mode == AllocationMode::Immediate {
            return Err(Rejection::unresolvable(
                "unallocated immediate resourceclaim",
            ));
        }
        let answer = answers.and_then(|a| a.resource_claims.iter().find(|c| c.name == entry));
        Ok(Self::Negotiated {
            suitable: compile(class.suitable_nodes.as_ref()),
            unsuitable: answer.map(|a| a.unsuitable_nodes.clone()),
        })
    }
}

/// The nodes to negotiate about, sorted. Of too many a choice that differs from pod to pod, but not from attempt to
/// attempt; the best one is always in it.
fn potential_nodes(pod: &Uid, feasible: &[&str], best: &str) -> Vec<String> {
    let mut nodes: Vec<&str> = feasible.to_vec();
    if nodes.len() > CLASSIC_NODES {
        nodes.sort_by_cached_key(|node| {
            let mut hasher = FxHasher::default();
            (pod, node).hash(&mut hasher);
            (**node != *best, hasher.finish())
        });
        nodes.truncate(CLASSIC_NODES);
    }
    nodes.sort_unstable();
    nodes.into_iter().map(str::to_owned).collect()
}
