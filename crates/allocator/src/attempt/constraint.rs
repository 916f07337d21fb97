//! Constraints and the devices that they have seen.

use super::Attempt;
use crate::claims::{Alternative, ConstraintKind};
use crate::device::{Attribute, Value};
use crate::observer::{Observer, Place};

/// The devices that a constraint has seen, of the claim that is being worked on and of those before.
#[derive(Default)]
pub(crate) struct ConstraintState<'a> {
    pub(crate) attributes: Vec<&'a Attribute>,
    /// For sets: what the first 1, 2, … devices have in common.
    pub(crate) common: Vec<Vec<Value>>,
}

impl<'a, O: Observer> Attempt<'a, O> {
    /// Adds a device to a constraint unless that violates it.
    pub(super) fn add_to_constraint(
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

    /// Takes the last device out of constraints.
    pub(super) fn remove_from_constraints(
        &mut self,
        alternative: &Alternative,
        constraints: &[u32],
    ) {
        for &constraint in constraints {
            let state = &mut self.constraints[alternative.claim as usize][constraint as usize];
            state.attributes.pop();
            state.common.pop();
        }
    }
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
