//! The entry: one attempt from start to end.

use crate::allocation::{Allocation, Picked};
use crate::attempt::{Attempt, PoolPart, Scratch, pools_of};
use crate::claims::Claims;
use crate::cluster::Cluster;
use crate::free_devices::{self, FreeDevices, WHOLE};
use crate::memo::{Answer, Fit, Fits, KnownFit, Memo, PlaceOf};
use crate::node::Node;
use crate::observer::Observer;
use crate::outcome::{Error, Limits, Outcome, Policy};
use crate::pool::ViewState;
use crate::search::{Found, Search};

/// Finds devices. Keeps memory between attempts; use one per thread.
///
/// It also caches the answers for the claims of the last call: for a node that is equal to an earlier one, as far as
/// these claims can distinguish them, the answer is known already. So call one allocator for all nodes with the same
/// [`Claims`], not a new one for each, and use [`ClaimShapes`](crate::ClaimShapes) to identify claims with equal
/// requests.
#[derive(Debug, Default)]
pub struct Allocator {
    policy: Policy,
    scratch: Scratch,
    steps: u64,
    memo: Memo,
    fits: Fits,
    forgetful: bool,
    remembered: u64,
}

impl Policy {
    /// The score of an allocation, higher for the node to prefer, by what is free on the node before and after it.
    fn preference(self, before: &FreeDevices, after: &FreeDevices) -> i64 {
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let used = |free: &FreeDevices| match free.total() {
            0 => 0,
            total => signed((total - free.free().min(total)) * u64::from(WHOLE) / total),
        };
        // A unit that was whole and is used in part from now on.
        let broken = signed(after.broken().saturating_sub(before.broken()));
        match self {
            Self::FirstFit => 0,
            Self::BestFit => used(after) - broken * i64::from(WHOLE),
            Self::Spread => -used(after),
            Self::LeastFragmentation => {
                let more = signed(after.wasted()) - signed(before.wasted());
                // Among equals the node that is used most.
                used(after) - more.saturating_mul(16)
            }
        }
    }
}

impl Allocator {
    /// An allocator without memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// An allocator that takes devices by a policy other than [`Policy::FirstFit`].
    pub fn with_policy(policy: Policy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// Takes devices by another policy from now on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// An allocator that searches every node again.
    #[must_use]
    pub fn without_memory(mut self) -> Self {
        self.forgetful = true;
        self
    }

    /// Allocates devices for all claims on a node, or returns why that is impossible. Does not change the cluster.
    pub fn allocate(
        &mut self,
        cluster: &Cluster,
        node: &Node,
        claims: &Claims,
        limits: &Limits<'_>,
    ) -> Outcome {
        self.steps = 0;
        let parts = match pools_of(cluster, node) {
            Ok(parts) => parts,
            Err(error) => return Outcome::Failed(error),
        };
        // Other policies split pools into several parts.
        let known = !self.forgetful
            && self.policy == Policy::FirstFit
            && self.memo.find_key(cluster.features(), claims, &parts);
        if !known {
            return self.search(cluster, node, claims, parts, limits, &mut ());
        }
        if let Some(answer) = self.memo.get()
            && answer.steps <= limits.steps
        {
            self.steps = answer.steps;
            self.remembered += 1;
            return match &answer.picks {
                Some(places) => Outcome::Allocated(Allocation {
                    node: node.name().clone(),
                    binding_conditions: cluster.features().binding_conditions,
                    picks: places
                        .iter()
                        .map(|place| Picked {
                            claim: place.claim,
                            alternative: place.alternative,
                            pool: parts[place.part as usize].pool.info.clone(),
                            slot: place.slot,
                            shared: place.shared,
                        })
                        .collect(),
                }),
                None => Outcome::DoesNotFit,
            };
        }
        let outcome = self.search(cluster, node, claims, parts, limits, &mut ());
        let picks = match &outcome {
            Outcome::Allocated(_) => {
                let picks = self.scratch.picks().iter();
                let places = picks.map(|pick| PlaceOf {
                    claim: pick.claim,
                    alternative: pick.alternative,
                    part: pick.part,
                    slot: pick.slot,
                    shared: pick.shared,
                });
                Some(places.collect())
            }
            Outcome::DoesNotFit => None,
            // Texts of errors have names in them, and the rest is no answer.
            _ => return outcome,
        };
        let steps = self.steps;
        self.memo.insert(Answer { picks, steps });
        outcome
    }

    /// Whether all claims can be allocated on a node, without the devices. The answer is cached until something changes
    /// that it depends on.
    pub fn probe(
        &mut self,
        cluster: &Cluster,
        node: &Node,
        claims: &Claims,
        limits: &Limits<'_>,
    ) -> Outcome<()> {
        self.fit(cluster, node, claims, limits, Fit::outcome)
    }

    /// As [`Allocator::probe`], for callers that keep the answer of each node: that saves the search for it. `known` is
    /// what the last call left for the node, regardless of its claims.
    pub fn probe_known(
        &mut self,
        cluster: &Cluster,
        node: &Node,
        claims: &Claims,
        limits: &Limits<'_>,
        known: &mut Option<KnownFit>,
    ) -> Outcome<()> {
        let of = (claims, self.policy);
        if !self.forgetful
            && let Some(fit) = known.as_ref().and_then(|k| k.get(of, cluster, node))
            && fit.steps <= limits.steps
        {
            self.steps = fit.steps;
            self.remembered += 1;
            return fit.outcome();
        }
        self.fit(cluster, node, claims, limits, |fit| {
            *known = Some(KnownFit::new(of, node, *fit));
            fit.outcome()
        })
    }

    /// Like [`Allocator::probe`], with the policy's preference for the allocation on the node: higher is better. Cached
    /// the same way; zero everywhere under [`Policy::FirstFit`].
    pub fn preference(
        &mut self,
        cluster: &Cluster,
        node: &Node,
        claims: &Claims,
        limits: &Limits<'_>,
    ) -> Outcome<i64> {
        let preference = |fit: &Fit| match fit.fits {
            true => Outcome::Allocated(fit.preference),
            false => Outcome::DoesNotFit,
        };
        self.fit(cluster, node, claims, limits, preference)
    }

    fn fit<A>(
        &mut self,
        cluster: &Cluster,
        node: &Node,
        claims: &Claims,
        limits: &Limits<'_>,
        outcome: impl FnOnce(&Fit) -> Outcome<A>,
    ) -> Outcome<A> {
        let known = self.fits.get((claims, self.policy), node);
        let place = known.and_then(|fit| fit.place);
        let changed = place.and_then(|place| cluster.changed_at(&place));
        let changed = changed.unwrap_or_else(|| cluster.changed(node));
        let known = known.filter(|fit| fit.changed == changed);
        if let Some(known) = known.filter(|fit| !self.forgetful && fit.steps <= limits.steps) {
            self.steps = known.steps;
            self.remembered += 1;
            return outcome(&known);
        }
        let mut preference = 0;
        let fits = match self.allocate(cluster, node, claims, limits) {
            Outcome::Allocated(found) => {
                if let Err(error) = found.check(claims) {
                    return Outcome::Failed(Error::fatal(error.to_string()));
                }
                if self.policy != Policy::FirstFit {
                    let (before, after) =
                        free_devices::before_and_after(cluster, node, &found, claims);
                    preference = self.policy.preference(&before, &after);
                }
                true
            }
            Outcome::DoesNotFit => false,
            // Texts of errors have names in them, and the rest is no answer.
            Outcome::Failed(error) => return Outcome::Failed(error),
            Outcome::GaveUp { steps } => return Outcome::GaveUp { steps },
            Outcome::Interrupted => return Outcome::Interrupted,
        };
        let fit = Fit {
            changed,
            place: cluster.place(node),
            fits,
            preference,
            steps: self.steps,
        };
        self.fits.insert((claims, self.policy), node, fit);
        outcome(&fit)
    }

    /// How many answers were cached, from an equal node or from before.
    pub fn remembered(&self) -> u64 {
        self.remembered
    }

    /// How many decisions the last attempt took.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    pub(crate) fn observed<O: Observer>(
        &mut self,
        cluster: &Cluster,
        node: &Node,
        claims: &Claims,
        limits: &Limits<'_>,
        observer: &mut O,
    ) -> Outcome {
        self.steps = 0;
        match pools_of(cluster, node) {
            Ok(parts) => self.search(cluster, node, claims, parts, limits, observer),
            Err(error) => Outcome::Failed(error),
        }
    }

    fn search<O: Observer>(
        &mut self,
        cluster: &Cluster,
        node: &Node,
        claims: &Claims,
        parts: Vec<PoolPart<'_>>,
        limits: &Limits<'_>,
        observer: &mut O,
    ) -> Outcome {
        let (policy, scratch) = (self.policy, &mut self.scratch);
        let mut attempt = Attempt::new(cluster, node, claims, policy, parts, scratch, observer);
        if let Err(error) = attempt.validate() {
            return Outcome::Failed(error);
        }
        let mut search = Search::new(&mut attempt, limits);
        let found = search.run();
        self.steps = search.steps();
        match found {
            Ok(Found::Solution) => Outcome::Allocated(Allocation {
                node: node.name().clone(),
                binding_conditions: cluster.features().binding_conditions,
                picks: attempt
                    .picks()
                    .iter()
                    .map(|pick| Picked {
                        claim: pick.claim,
                        alternative: pick.alternative,
                        pool: attempt.parts[pick.part as usize].pool.info.clone(),
                        slot: pick.slot,
                        shared: pick.shared,
                    })
                    .collect(),
            }),
            Ok(Found::Nothing) => {
                if attempt
                    .parts
                    .iter()
                    .any(|p| matches!(p.view.state, ViewState::Invalid(_)))
                {
                    let text = "invalid resource pools were encountered".to_owned();
                    return Outcome::Failed(Error::node(text));
                }
                Outcome::DoesNotFit
            }
            Ok(Found::GaveUp) => Outcome::GaveUp { steps: self.steps },
            Ok(Found::Interrupted) => Outcome::Interrupted,
            Err(error) => Outcome::Failed(error),
        }
    }
}
