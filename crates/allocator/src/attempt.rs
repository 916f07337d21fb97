//! One attempt: the pools that a node sees, the picks so far, and the checks of one device for one request.

use crate::amount::Amount;
use crate::claims::{Alternative, Claims, Mode};
use crate::cluster::Cluster;
use crate::features::Features;
use crate::node::Node;
use crate::observer::{Observer, Place, Rejection};
use crate::outcome::{Error, Policy};
use crate::pool::ViewState;

mod constraint;
mod counters;
mod order;
mod parts;
mod pick;

pub(crate) use constraint::ConstraintState;
pub(crate) use parts::{PoolPart, pools_of};

/// A device that was picked for an alternative.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pick {
    pub(crate) claim: u32,
    pub(crate) alternative: u32,
    /// Index of the pool.
    pub(crate) part: u32,
    /// Number of the device.
    pub(crate) device: u32,
    pub(crate) slot: u32,
    pub(crate) shared: bool,
    /// The pick consumes counters.
    counted: bool,
}

/// The result of a selectability check, remembered per alternative and device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    Selectable,
    Rejected,
}

/// Memory that attempts use again.
#[derive(Default)]
pub(crate) struct Scratch {
    known: Vec<Known>,
    allocating: Vec<u8>,
    counters: Vec<Amount>,
    picks: Vec<Pick>,
    all: Vec<Vec<u32>>,
    /// Devices that count as shared although they were released, when upstream's bugs are reproduced.
    left_behind: Vec<u32>,
}

impl Scratch {
    /// The devices that the last attempt took.
    pub(crate) fn picks(&self) -> &[Pick] {
        &self.picks
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").finish_non_exhaustive()
    }
}

/// The state of one attempt to allocate claims on a node.
pub(crate) struct Attempt<'a, O> {
    pub(crate) features: Features,
    pub(crate) node: &'a Node,
    pub(crate) claims: &'a Claims,
    pub(crate) parts: Vec<PoolPart<'a>>,
    /// The number of devices of all pools.
    pub(crate) devices: u32,
    pub(crate) scratch: &'a mut Scratch,
    /// The states of the constraints, by claim and constraint.
    pub(crate) constraints: Vec<Vec<ConstraintState<'a>>>,
    pub(crate) observer: &'a mut O,
}

impl<'a, O: Observer> Attempt<'a, O> {
    /// Starts an attempt on the pools that [`pools_of`] found.
    pub(crate) fn new(
        cluster: &'a Cluster,
        node: &'a Node,
        claims: &'a Claims,
        policy: Policy,
        mut parts: Vec<PoolPart<'a>>,
        scratch: &'a mut Scratch,
        observer: &'a mut O,
    ) -> Self {
        scratch.counters.clear();
        for part in &mut parts {
            if part.view.state == ViewState::Usable {
                part.first_counter = scratch.counters.len();
                let range = part.pool.info.counters_of(part.view.generation);
                let available = &part.pool.usage.available()[range];
                // The consumption of an allocated device that is no longer published is unknown.
                let unknown = !cluster.features().upstream_errors
                    && !available.is_empty()
                    && part.pool.usage.has_unpublished();
                part.overdrawn = unknown || available.iter().any(|a| a.is_negative());
                scratch.counters.extend_from_slice(available);
            }
        }
        if policy != Policy::FirstFit {
            parts = order::by_policy(policy, parts);
        }
        let mut devices = 0;
        for part in &mut parts {
            part.first = devices;
            devices += part.len();
        }
        scratch.known.clear();
        scratch
            .known
            .resize(devices as usize * claims.alternatives.len(), Known::Nothing);
        scratch.allocating.clear();
        scratch.allocating.resize(devices as usize, 0);
        scratch.picks.clear();
        scratch.left_behind.clear();
        let constraints = claims
            .claims
            .iter()
            .map(|c| {
                c.constraints
                    .iter()
                    .map(|_| ConstraintState::default())
                    .collect()
            })
            .collect();
        Self {
            features: *cluster.features(),
            node,
            claims,
            parts,
            devices,
            scratch,
            constraints,
            observer,
        }
    }

    /// The checks before the search, and the lists for requests with allocation mode All.
    pub(crate) fn validate(&mut self) -> Result<(), Error> {
        if !self.claims.any_all {
            return match &self.claims.error {
                Some(text) => Err(Error::fatal(text.clone())),
                None => Ok(()),
            };
        }
        self.scratch.all.iter_mut().for_each(Vec::clear);
        self.scratch
            .all
            .resize_with(self.claims.alternatives.len(), Vec::new);
        let claims = self.claims;
        for claim in &claims.claims {
            for request in &claim.requests {
                if let Some(text) = &request.error {
                    return Err(Error::fatal(text.clone()));
                }
                for id in request.alternatives.0..request.alternatives.1 {
                    let alternative = &claims.alternatives[id as usize];
                    if let Some(text) = &alternative.error {
                        return Err(Error::fatal(text.clone()));
                    }
                    if alternative.mode == Mode::All {
                        self.collect_all(id, request.is_list)?;
                    }
                }
            }
            let all = &self.scratch.all;
            if let Some(text) = claims.check_limits(claim, &|id| all[id].len() as i64) {
                return Err(Error::fatal(text));
            }
        }
        Ok(())
    }

    /// Collects the devices of an alternative with allocation mode All. They are unknown while a pool of the node cannot be
    /// used: then the request fails on this node, and of a list the next alternative is tried. Upstream ends the attempt for
    /// all nodes.
    fn collect_all(&mut self, id: u32, is_list: bool) -> Result<(), Error> {
        let alternative = &self.claims.alternatives[id as usize];
        if !self.features.upstream_errors {
            let mut unusable = self
                .parts
                .iter()
                .filter_map(|p| self.unusable(alternative, p));
            match unusable.next() {
                Some(_) if is_list => return Ok(()),
                Some(text) => return Err(Error::node(text)),
                None => {}
            }
        }
        for part in 0..self.parts.len() {
            if let Some(text) = self.unusable(alternative, &self.parts[part]) {
                return Err(Error::fatal(text));
            }
            for index in 0..self.parts[part].len() {
                let place = self.place(part as u32, index);
                if !self.selectable(id, &place)? {
                    continue;
                }
                if self.features.consumable_capacity && !self.capacity_fits(alternative, &place) {
                    continue;
                }
                self.scratch.all[id as usize].push(place.number);
            }
        }
        Ok(())
    }

    /// Upstream's error for allocation mode All while a pool cannot be used; `None` if it can be used.
    fn unusable(&self, alternative: &Alternative, part: &PoolPart<'_>) -> Option<String> {
        let state = match part.view.state {
            ViewState::Usable => return None,
            ViewState::Incomplete => "being updated",
            ViewState::Invalid(_) => "invalid",
        };
        let info = part.info();
        Some(format!(
            "claim {}, request {}: asks for all devices, but resource pool {}/{} is currently {state}",
            self.claims.claims[alternative.claim as usize].shown,
            alternative.name,
            info.driver,
            info.name
        ))
    }

    /// The devices of an alternative with allocation mode All.
    pub(crate) fn all(&self, id: u32) -> &[u32] {
        &self.scratch.all[id as usize]
    }

    /// The device at an index of a pool.
    pub(crate) fn place(&self, part: u32, index: u32) -> Place<'a> {
        let pool_part = &self.parts[part as usize];
        let slot = pool_part.view.slots[index as usize];
        Place {
            part,
            number: pool_part.first + index,
            slot,
            pool: pool_part.pool,
            device: pool_part.info().device(slot),
        }
    }

    /// The device with a number.
    pub(crate) fn place_of(&self, number: u32) -> Place<'a> {
        let part = self.parts.partition_point(|p| p.first + p.len() <= number);
        self.place(part as u32, number - self.parts[part].first)
    }

    pub(crate) fn picks(&self) -> &[Pick] {
        &self.scratch.picks
    }

    /// How many devices of a limited class may be taken beside those that were picked.
    pub(crate) fn budget_left(&self, budget: u32) -> i64 {
        let counts = |pick: &&Pick| {
            self.claims.alternatives[pick.alternative as usize].budget == Some(budget)
        };
        let picked = self.scratch.picks.iter().filter(counts).count() as i64;
        self.claims.budgets[budget as usize].left - picked
    }

    /// Whether another claim has the device.
    pub(crate) fn in_use(&self, alternative: &Alternative, place: &Place<'_>) -> bool {
        if alternative.admin {
            let mut picks = self
                .scratch
                .picks
                .iter()
                .rev()
                .take_while(|p| p.claim == alternative.claim);
            return picks.any(|p| p.device == place.number && !p.shared);
        }
        place.pool.usage.is_dedicated(place.slot)
            || self.scratch.allocating[place.number as usize] > 0
    }

    /// Whether class and request select the device. Evaluated once per alternative and device.
    ///
    /// # Errors
    /// A selector or node selector that cannot be evaluated; that is fatal.
    pub(crate) fn selectable(&mut self, id: u32, place: &Place<'a>) -> Result<bool, Error> {
        let index = id as usize * self.devices as usize + place.number as usize;
        match self.scratch.known[index] {
            Known::Nothing => {}
            known => return Ok(known == Known::Selectable),
        }
        let rejection = self.evaluate(id, place)?;
        self.scratch.known[index] = if rejection.is_none() {
            Known::Selectable
        } else {
            Known::Rejected
        };
        if let Some(rejection) = rejection {
            self.observer.rejected(id, place, rejection);
            return Ok(false);
        }
        Ok(true)
    }

    /// The check behind [`Attempt::selectable`]; `None` if the device is selected.
    fn evaluate(&self, id: u32, place: &Place<'a>) -> Result<Option<Rejection>, Error> {
        let device = place.device;
        if !self.features.binding_conditions
            && device
                .binding_conditions
                .as_ref()
                .is_some_and(|c| !c.is_empty())
        {
            return Ok(Some(Rejection::BindingConditions));
        }
        let alternative = &self.claims.alternatives[id as usize];
        for (index, selector) in alternative.class.selectors.iter().enumerate() {
            match selector.matches(&device.cel) {
                Ok(true) => {}
                Ok(false) => return Ok(Some(Rejection::ClassSelector(index))),
                Err(error) => {
                    let class = &alternative.class.name;
                    return Err(Error::fatal(format!(
                        "class {class}: selector #{index}: {error}"
                    )));
                }
            }
        }
        for (index, selector) in alternative.selectors.iter().enumerate() {
            match selector.matches(&device.cel) {
                Ok(true) => {}
                Ok(false) => return Ok(Some(Rejection::Selector(index))),
                Err(error) => {
                    let claim = &self.claims.claims[alternative.claim as usize].shown;
                    return Err(Error::fatal(format!(
                        "claim {claim}: selector #{index}: {error}"
                    )));
                }
            }
        }
        if place.pool.info.slice(place.slot).per_device {
            match device.scope.matches(self.node) {
                Ok(true) if device.scope.has_several_terms() && !self.features.upstream_errors => {
                    return Ok(Some(Rejection::OtherNode));
                }
                Ok(true) => {}
                Ok(false) => return Ok(Some(Rejection::OtherNode)),
                Err(error) => return Err(Error::fatal(error.to_string())),
            }
        }
        Ok(None)
    }
}

impl Alternative {
    /// The requested amount of a capacity.
    pub(crate) fn requested(&self, name: &str) -> Option<&crate::capacity::Quantity> {
        self.capacity
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, quantity)| quantity)
    }
}
