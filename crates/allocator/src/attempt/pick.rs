//! Picking a device for a request, and reverting that.

use super::{Attempt, Pick};
use crate::Error;
use crate::amount::Amount;
use crate::claims::Alternative;
use crate::observer::{Observer, Place, Rejection};
use crate::taint::Taint;

impl<'a, O: Observer> Attempt<'a, O> {
    /// Whether the amount that the request consumes of each capacity is allowed by its policy and available.
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
                // All of an exclusive device is available.
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

    /// Checks whether a selectable device can be used and, if so, picks it. Returns whether it was picked.
    ///
    /// # Errors
    /// With `must`, for allocation mode All: a constraint rejects the device.
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
                // Upstream does not restore the counters.
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
                // Upstream does not revert what it has recorded so far.
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

    /// Reverts the last pick.
    pub(crate) fn unpick(&mut self) {
        let Some(pick) = self.scratch.picks.pop() else {
            return;
        };
        let claims = self.claims;
        let alternative = &claims.alternatives[pick.alternative as usize];
        self.remove_from_constraints(alternative, &alternative.constraints);
        if pick.shared && self.features.upstream_errors {
            // Upstream neither releases the counters nor records that a device without capacities is no longer shared.
            let device = self.parts[pick.part as usize].info().device(pick.slot);
            if device.capacity.is_empty() {
                self.scratch.left_behind.push(pick.device);
            }
        } else if pick.counted {
            self.charge(pick.part, pick.slot, Amount::plus);
        }
        if !pick.shared {
            self.scratch.allocating[pick.device as usize] -= 1;
        }
    }

    /// The first taint that prevents the allocation of the device.
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

    /// The checks of [`Attempt::pick`] that do not depend on other picks: `pick` rejects every device that this rejects.
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
}
