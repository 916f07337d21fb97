//! One attempt: the pools that a node sees, the picks so far, and the checks of one device for one request.

use crate::amount::Amount;
use crate::claims::{Alternative, Claims, ConstraintKind, Mode};
use crate::cluster::Cluster;
use crate::device::{Attribute, Value};
use crate::features::Features;
use crate::node::Node;
use crate::observer::{Observer, Place, Rejection};
use crate::pool::{Pool, PoolInfo, ViewRef, ViewState};
use crate::taint::Taint;
use crate::{Error, ErrorKind, Policy};

mod order;

/// A pool in an attempt, or a part of it.
pub(crate) struct PoolPart<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) view: ViewRef<'a>,
    /// The number of the first device; devices of an attempt are numbered over all pools in the order of trying.
    pub(crate) first: u32,
    /// Where the pool's counters start in `Scratch::counters`.
    pub(crate) first_counter: usize,
    /// Some counter was below zero before: no device that consumes counters can be used.
    overdrawn: bool,
    /// The part whose counters are used instead of the own, when upstream's errors are repeated:
    /// it knows counters by the name of the pool, whatever the driver.
    counters_of: Option<u32>,
}

impl<'a> PoolPart<'a> {
    pub(crate) fn info(&self) -> &'a PoolInfo {
        &self.pool.info
    }

    pub(crate) fn len(&self) -> u32 {
        self.view.slots.len() as u32
    }
}

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

/// What a selectability check found out, remembered per alternative and device.
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
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").finish_non_exhaustive()
    }
}

/// The devices that a constraint has seen, of the claim that is being worked on and of those before.
#[derive(Default)]
pub(crate) struct ConstraintState<'a> {
    pub(crate) attributes: Vec<&'a Attribute>,
    /// For sets: what the first 1, 2, … devices have in common.
    pub(crate) common: Vec<Vec<Value>>,
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
    /// By claim and constraint.
    pub(crate) constraints: Vec<Vec<ConstraintState<'a>>>,
    pub(crate) observer: &'a mut O,
}

impl<'a, O: Observer> Attempt<'a, O> {
    /// Looks up the pools of the node.
    pub(crate) fn new(
        cluster: &'a Cluster,
        node: &'a Node,
        claims: &'a Claims,
        policy: Policy,
        scratch: &'a mut Scratch,
        observer: &'a mut O,
    ) -> Result<Self, Error> {
        let mut parts = Vec::with_capacity(4);
        let mut binding = Vec::new();
        let found: Result<(), String> = cluster.each_pool(node, |pool| {
            if let Some(view) = pool.info.view(node)? {
                let list = if view.binding {
                    &mut binding
                } else {
                    &mut parts
                };
                list.push(PoolPart {
                    pool,
                    view,
                    first: 0,
                    first_counter: 0,
                    overdrawn: false,
                    counters_of: None,
                });
            }
            Ok(())
        });
        if let Err(text) = found {
            return Err(Error {
                kind: ErrorKind::Fatal,
                text: format!("gather pool information: {text}"),
            });
        }
        parts.append(&mut binding);
        scratch.counters.clear();
        for part in &mut parts {
            if part.view.state == ViewState::Usable {
                part.first_counter = scratch.counters.len();
                let range = part.pool.info.counters_of(part.view.generation);
                let available = &part.pool.usage.available()[range];
                part.overdrawn = available.iter().any(|a| a.is_negative());
                scratch.counters.extend_from_slice(available);
            }
        }
        if policy == Policy::BestFit {
            parts = order::best_fit(parts);
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
        Ok(Self {
            features: *cluster.features(),
            node,
            claims,
            parts,
            devices,
            scratch,
            constraints,
            observer,
        })
    }

    /// The checks that come before the search, and the lists for requests that want all devices.
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
                        self.find_all(id)?;
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

    /// Which devices "all" are for an alternative.
    fn find_all(&mut self, id: u32) -> Result<(), Error> {
        let alternative = &self.claims.alternatives[id as usize];
        for part in 0..self.parts.len() {
            let info = self.parts[part].info();
            let trouble = match self.parts[part].view.state {
                ViewState::Usable => None,
                ViewState::Incomplete => Some("being updated"),
                ViewState::Invalid(_) => Some("invalid"),
            };
            if let Some(trouble) = trouble {
                return Err(Error::fatal(format!(
                    "claim {}, request {}: asks for all devices, but resource pool {}/{} is currently {trouble}",
                    self.claims.claims[alternative.claim as usize].shown,
                    alternative.name,
                    info.driver,
                    info.name
                )));
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

    /// The devices that an alternative wants when it wants all.
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

    /// Whether somebody else has the device.
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

    /// Whether class and request select the device. The error is fatal.
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
                Err(text) => {
                    let class = &alternative.class.name;
                    return Err(Error::fatal(format!(
                        "class {class}: selector #{index}: {text}"
                    )));
                }
            }
        }
        for (index, selector) in alternative.selectors.iter().enumerate() {
            match selector.matches(&device.cel) {
                Ok(true) => {}
                Ok(false) => return Ok(Some(Rejection::Selector(index))),
                Err(text) => {
                    let claim = &self.claims.claims[alternative.claim as usize].shown;
                    return Err(Error::fatal(format!(
                        "claim {claim}: selector #{index}: {text}"
                    )));
                }
            }
        }
        if place.pool.info.slice(place.slot).per_device {
            match device.scope.matches(self.node) {
                Ok(true) => {}
                Ok(false) => return Ok(Some(Rejection::OtherNode)),
                Err(text) => return Err(Error::fatal(text.to_owned())),
            }
        }
        Ok(None)
    }

    /// Whether what the request takes of each capacity is allowed and left.
    pub(crate) fn capacity_fits(&self, alternative: &Alternative, place: &Place<'_>) -> bool {
        let device = place.device;
        if device.capacity.is_empty() {
            return alternative.capacity.is_empty();
        }
        let known = |name: &str| device.capacity.iter().any(|c| c.name == name);
        if !alternative.capacity.iter().all(|(name, _)| known(name)) {
            return false;
        }
        let shared = place
            .pool
            .usage
            .is_shared(place.slot)
            .then(|| place.pool.usage.device(&device.name))
            .flatten();
        for capacity in &device.capacity {
            let requested = alternative.requested(&capacity.name);
            if requested.is_none()
                && shared.is_none()
                && !device.shareable
                && !capacity.has_policy()
            {
                // Everything of a device that nobody else can have: it is there.
                continue;
            }
            let mut sum = capacity.consumed(requested).amount();
            if capacity.refuses(sum) {
                return false;
            }
            if let Some(shared) = shared {
                sum = sum.plus(shared.consumed(&capacity.name));
            }
            if device.shareable {
                for pick in self
                    .scratch
                    .picks
                    .iter()
                    .filter(|p| p.device == place.number && p.shared)
                {
                    let other = &self.claims.alternatives[pick.alternative as usize];
                    sum = sum.plus(capacity.consumed(other.requested(&capacity.name)).amount());
                }
            }
            if sum > capacity.value.amount {
                return false;
            }
        }
        true
    }

    /// Checks whether the selectable device can be used and, if so, marks it as picked. With `must`, a constraint that refuses is an error.
    pub(crate) fn pick(&mut self, id: u32, place: &Place<'a>, must: bool) -> Result<bool, Error> {
        let claims = self.claims;
        let alternative = &claims.alternatives[id as usize];
        let device = place.device;
        if must && self.in_use(alternative, place) {
            self.observer.rejected(id, place, Rejection::InUse);
            return Ok(false);
        }
        if device.consumes_counters() && !self.features.partitionable_devices {
            self.observer.rejected(id, place, Rejection::CountersOff);
            return Ok(false);
        }
        let counted = device.consumes_counters() && !self.counters_paid(place);
        let errors = self.features.upstream_errors;
        if counted && errors {
            self.join_counters(place.part);
        }
        if counted && !self.counters_fit(place) {
            self.observer.rejected(id, place, Rejection::Counters);
            return Ok(false);
        }
        if self.features.device_taints && self.blocking_taint(alternative, place).is_some() {
            self.observer.rejected(id, place, Rejection::Taint);
            if counted && errors {
                // Upstream forgets to give the counters back.
                self.charge(place.part, place.slot, Amount::minus);
            }
            return Ok(false);
        }
        for (position, &constraint) in alternative.constraints.iter().enumerate() {
            if !self.add_to_constraint(alternative, constraint, place) {
                self.observer
                    .rejected(id, place, Rejection::Constraint(constraint));
                if must {
                    return Err(Error::fatal(format!(
                        "claim {}, request {}: cannot add device {}/{}/{} because a claim constraint would not be satisfied",
                        claims.claims[alternative.claim as usize].shown,
                        alternative.name,
                        place.pool.info.driver,
                        place.pool.info.name,
                        device.name
                    )));
                }
                self.remove_from_constraints(alternative, &alternative.constraints[..position]);
                if counted && errors {
                    self.charge(place.part, place.slot, Amount::minus);
                }
                return Ok(false);
            }
        }
        // For exact counts this was checked before, and nothing changed since.
        if must && self.features.consumable_capacity && !self.capacity_fits(alternative, place) {
            self.observer.rejected(id, place, Rejection::Capacity);
            if errors {
                // Upstream forgets to take back what it has noted so far.
                if counted {
                    self.charge(place.part, place.slot, Amount::minus);
                }
                if !device.shareable {
                    self.scratch.allocating[place.number as usize] += 1;
                }
                return Ok(false);
            }
            self.remove_from_constraints(alternative, &alternative.constraints);
            return Ok(false);
        }
        if counted {
            self.charge(place.part, place.slot, Amount::minus);
        }
        if !device.shareable {
            self.scratch.allocating[place.number as usize] += 1;
        }
        self.scratch.picks.push(Pick {
            claim: alternative.claim,
            alternative: id,
            part: place.part,
            device: place.number,
            slot: place.slot,
            shared: device.shareable,
            counted,
        });
        Ok(true)
    }

    /// Takes back the last pick.
    pub(crate) fn unpick(&mut self) {
        let Some(pick) = self.scratch.picks.pop() else {
            return;
        };
        let claims = self.claims;
        let alternative = &claims.alternatives[pick.alternative as usize];
        self.remove_from_constraints(alternative, &alternative.constraints);
        if pick.counted {
            self.charge(pick.part, pick.slot, Amount::plus);
        }
        if !pick.shared {
            self.scratch.allocating[pick.device as usize] -= 1;
        }
    }

    /// The first taint that keeps the device from being used.
    pub(crate) fn blocking_taint(
        &self,
        alternative: &Alternative,
        place: &Place<'a>,
    ) -> Option<&'a Taint> {
        let tolerations = alternative.tolerations.as_deref().unwrap_or_default();
        let extra = place.pool.info.extra_taints(place.slot);
        let mut taints = place.device.taints.iter().chain(extra);
        taints.find(|taint| taint.prevents(tolerations))
    }

    /// Whether the device has a share already, so that its counters are paid for.
    pub(crate) fn counters_paid(&self, place: &Place<'_>) -> bool {
        let picked = || self.scratch.picks.iter().any(|p| p.device == place.number);
        place.device.shareable && (place.pool.usage.is_shared(place.slot) || picked())
    }

    /// The checks of [`Attempt::pick`] that do not depend on other picks. For all that this refuses, `pick` refuses too.
    pub(crate) fn could_pick(&self, alternative: &Alternative, place: &Place<'a>) -> bool {
        let device = place.device;
        if device.consumes_counters() {
            let possible = self.features.partitionable_devices
                && (self.counters_paid(place) || self.counters_fit(place));
            if !possible {
                return false;
            }
        }
        if self.features.device_taints && self.blocking_taint(alternative, place).is_some() {
            return false;
        }
        let described = &self.claims.claims[alternative.claim as usize].constraints;
        alternative.constraints.iter().all(|constraint| {
            let name = &described[*constraint as usize].attribute;
            let attribute = device.attribute(&place.pool.info.driver, name);
            attribute.is_some_and(|a| !self.features.list_type_attributes || a.values().is_some())
        })
    }

    /// What is left of all counters.
    pub(crate) fn counters_left(&self) -> &[Amount] {
        &self.scratch.counters
    }

    /// What is left of the counters of one pool.
    pub(crate) fn counters_of(&self, part: usize) -> &[Amount] {
        let part = &self.parts[part];
        if part.view.state != ViewState::Usable {
            return &[];
        }
        let range = part.info().counters_of(part.view.generation);
        &self.scratch.counters[part.first_counter..part.first_counter + range.len()]
    }

    /// Whether the counters that the device needs are left.
    pub(crate) fn counters_fit(&self, place: &Place<'_>) -> bool {
        let (part, table) = self.counter_table(place.part);
        if table.overdrawn {
            return false;
        }
        let consumption = part.info().consumption(place.slot);
        consumption.iter().all(|(counter, _)| {
            // A device may name a counter twice.
            let wanted = consumption.iter().filter(|(c, _)| c == counter);
            let wanted = wanted.fold(Amount::ZERO, |sum, (_, amount)| sum.plus(*amount));
            let index = counter_index(part, table, *counter);
            index.is_none_or(|index| self.scratch.counters[index] >= wanted)
        })
    }

    fn charge(&mut self, part: u32, slot: u32, op: impl Fn(Amount, Amount) -> Amount) {
        let (part, table) = self.counter_table(part);
        let consumption = part.info().consumption(slot);
        let charges = consumption
            .iter()
            .map(|(counter, amount)| (counter_index(part, table, *counter), *amount));
        for (index, amount) in charges.collect::<Vec<_>>() {
            if let Some(index) = index {
                let left = &mut self.scratch.counters[index];
                *left = op(*left, amount);
            }
        }
    }

    /// A part and the one whose counters it uses, which is nearly always itself.
    fn counter_table(&self, part: u32) -> (&PoolPart<'a>, &PoolPart<'a>) {
        let own = &self.parts[part as usize];
        (
            own,
            own.counters_of
                .map_or(own, |other| &self.parts[other as usize]),
        )
    }

    /// Makes all pools of the same name use the counters of this one, unless they do so already.
    fn join_counters(&mut self, part: u32) {
        if self.parts[part as usize].counters_of.is_some() {
            return;
        }
        let info = self.parts[part as usize].info();
        for other in self
            .parts
            .iter_mut()
            .filter(|p| p.pool.info.name == info.name)
        {
            other.counters_of = Some(part);
        }
    }

    fn add_to_constraint(
        &mut self,
        alternative: &Alternative,
        constraint: u32,
        place: &Place<'a>,
    ) -> bool {
        let described =
            &self.claims.claims[alternative.claim as usize].constraints[constraint as usize];
        let Some(attribute) = place
            .device
            .attribute(&place.pool.info.driver, &described.attribute)
        else {
            return false;
        };
        let state = &mut self.constraints[alternative.claim as usize][constraint as usize];
        state.add(
            described.kind,
            self.features.list_type_attributes,
            attribute,
        )
    }

    fn remove_from_constraints(&mut self, alternative: &Alternative, constraints: &[u32]) {
        for &constraint in constraints {
            let state = &mut self.constraints[alternative.claim as usize][constraint as usize];
            state.attributes.pop();
            state.common.pop();
        }
    }
}

/// Where a counter of a part is in the table of another part.
fn counter_index(part: &PoolPart<'_>, table: &PoolPart<'_>, counter: u32) -> Option<usize> {
    let range = part.info().counters_of(part.view.generation);
    if part.first_counter == table.first_counter {
        return Some(part.first_counter + counter as usize - range.start);
    }
    let wanted = &part.info().counters()[counter as usize];
    let range = table.info().counters_of(table.view.generation);
    let mut counters = table.info().counters()[range].iter();
    let found = counters.position(|c| c.set == wanted.set && c.name == wanted.name);
    found.map(|index| table.first_counter + index)
}

impl<'a> ConstraintState<'a> {
    /// Adds a device's attribute unless that violates the constraint.
    fn add(&mut self, kind: ConstraintKind, sets: bool, attribute: &'a Attribute) -> bool {
        let allowed = match (kind, sets) {
            (ConstraintKind::Match, false) => match self.attributes.first() {
                None => true,
                Some(first) => matches!(attribute, Attribute::Scalar(_)) && *first == attribute,
            },
            (ConstraintKind::Distinct, false) => {
                self.attributes.is_empty()
                    || matches!(attribute, Attribute::Scalar(_))
                        && self.attributes.iter().all(|a| *a != attribute)
            }
            (ConstraintKind::Match, true) => {
                let Some(values) = attribute.values() else {
                    return false;
                };
                let common = match self.common.last() {
                    None => values.to_vec(),
                    Some(before) => before
                        .iter()
                        .filter(|v| values.contains(v))
                        .cloned()
                        .collect(),
                };
                let allowed = !common.is_empty();
                if allowed {
                    self.common.push(common);
                }
                allowed
            }
            (ConstraintKind::Distinct, true) => {
                let Some(values) = attribute.values() else {
                    return false;
                };
                let mut others = self.attributes.iter().filter_map(|a| a.values()).flatten();
                others.all(|v| !values.contains(v))
            }
        };
        if allowed {
            self.attributes.push(attribute);
        }
        allowed
    }
}

impl Alternative {
    /// What it asks for of a capacity.
    pub(crate) fn requested(&self, name: &str) -> Option<&crate::capacity::Quantity> {
        self.capacity
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, quantity)| quantity)
    }
}
