//! The values that devices have for the attribute of a constraint.

use rustc_hash::FxHashMap;

use super::NONE;
use crate::attempt::Attempt;
use crate::device::{Attribute, Value};
use crate::observer::Observer;
use crate::search::bits::Bits;

/// The values of a constraint's attribute.
#[derive(Default)]
pub(super) struct Values {
    numbers: FxHashMap<Value, u32>,
    /// By value: the devices that have it.
    pub(super) devices: Vec<Bits>,
    /// The index of the first value of each device.
    pub(super) first: Vec<u32>,
}

impl Values {
    pub(super) fn new<O: Observer>(attempt: &Attempt<'_, O>, attribute: &str) -> Self {
        let mut values = Self {
            first: vec![NONE; attempt.devices as usize],
            ..Self::default()
        };
        for number in 0..attempt.devices {
            let place = attempt.place_of(number);
            let Some(attribute) = place.device.attribute(&place.pool.info.driver, attribute) else {
                continue;
            };
            if !attempt.features.list_type_attributes && !matches!(attribute, Attribute::Scalar(_))
            {
                // Without sets, such an attribute is equal to nothing, not even to itself.
                values.add(values.devices.len() as u32, number, attempt.devices);
                continue;
            }
            for value in attribute.values().unwrap_or_default() {
                let next = values.devices.len() as u32;
                let id = *values.numbers.entry(value.clone()).or_insert(next);
                values.add(id, number, attempt.devices);
            }
        }
        values
    }

    fn add(&mut self, id: u32, number: u32, devices: u32) {
        if id as usize == self.devices.len() {
            self.devices.push(Bits::new(devices));
        }
        self.devices[id as usize].insert(number);
        let first = &mut self.first[number as usize];
        if *first == NONE {
            *first = id;
        }
    }

    pub(super) fn number(&self, value: &Value) -> u64 {
        self.numbers
            .get(value)
            .map_or(u64::MAX, |id| u64::from(*id))
    }

    pub(super) fn devices(&self, value: &Value) -> Option<&Bits> {
        self.numbers
            .get(value)
            .map(|id| &self.devices[*id as usize])
    }

    pub(super) fn of(&self, attribute: &Attribute) -> impl Iterator<Item = u64> {
        attribute
            .values()
            .unwrap_or_default()
            .iter()
            .map(|v| self.number(v))
    }

    pub(super) fn describe(&self, number: u32, key: &mut Vec<u64>) {
        let having = self
            .devices
            .iter()
            .enumerate()
            .filter(|(_, bits)| bits.contains(number));
        let start = key.len();
        key.push(0);
        key.extend(having.map(|(id, _)| id as u64));
        key[start] = (key.len() - start) as u64;
    }
}
