//! What of a pool is in use.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smol_str::SmolStr;

use super::PoolInfo;
use crate::amount::Amount;
use crate::cluster::Holder;

/// The devices of a pool that are in use, by name: a device can be in use while no slice shows it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usage {
    devices: FxHashMap<SmolStr, DeviceUse>,
    /// A bit per slot: somebody has the device for himself.
    dedicated: Vec<u64>,
    /// A bit per slot: somebody shares the device.
    shared: Vec<u64>,
    /// What is left of each counter; below zero when drivers or users did what they should not.
    available: Vec<Amount>,
}

/// How one device is used.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeviceUse {
    pub(crate) dedicated: Vec<Arc<Holder>>,
    pub(crate) shares: Vec<Share>,
}

/// One share of a device.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    pub(crate) holder: Arc<Holder>,
    pub(crate) id: SmolStr,
    pub(crate) capacity: Arc<[(SmolStr, Amount)]>,
}

impl DeviceUse {
    fn is_free(&self) -> bool {
        self.dedicated.is_empty() && self.shares.is_empty()
    }

    /// The sum over all shares of one capacity.
    pub(crate) fn consumed(&self, capacity: &str) -> Amount {
        let amounts = self
            .shares
            .iter()
            .flat_map(|s| s.capacity.iter())
            .filter(|(name, _)| name == capacity);
        amounts.fold(Amount::ZERO, |sum, (_, amount)| sum.plus(*amount))
    }
}

impl Usage {
    /// Adapts to a new description of the pool.
    pub(crate) fn rebuild(&mut self, info: &PoolInfo) {
        let words = info.slots().div_ceil(64);
        self.dedicated = vec![0; words];
        self.shared = vec![0; words];
        self.available = info.counters().iter().map(|c| c.total).collect();
        let devices = std::mem::take(&mut self.devices);
        for (name, device) in &devices {
            self.mark(info, name, device);
            if !device.is_free() {
                self.charge(info, name, Amount::minus);
            }
        }
        self.devices = devices;
    }

    pub(crate) fn change(
        &mut self,
        info: &PoolInfo,
        name: &SmolStr,
        change: impl FnOnce(&mut DeviceUse),
    ) {
        let mut device = self.devices.remove(name).unwrap_or_default();
        let was_free = device.is_free();
        change(&mut device);
        self.mark(info, name, &device);
        match (was_free, device.is_free()) {
            (true, false) => self.charge(info, name, Amount::minus),
            (false, true) => self.charge(info, name, Amount::plus),
            _ => {}
        }
        if !device.is_free() {
            self.devices.insert(name.clone(), device);
        }
    }

    fn mark(&mut self, info: &PoolInfo, name: &str, device: &DeviceUse) {
        for &slot in info.slots_named(name) {
            set(&mut self.dedicated, slot, !device.dedicated.is_empty());
            set(&mut self.shared, slot, !device.shares.is_empty());
        }
    }

    fn charge(&mut self, info: &PoolInfo, name: &str, op: impl Fn(Amount, Amount) -> Amount) {
        for &slot in info.slots_named(name) {
            for &(counter, amount) in info.consumption(slot) {
                let available = &mut self.available[counter as usize];
                *available = op(*available, amount);
            }
        }
    }

    pub(crate) fn is_dedicated(&self, slot: u32) -> bool {
        get(&self.dedicated, slot)
    }

    pub(crate) fn is_shared(&self, slot: u32) -> bool {
        get(&self.shared, slot)
    }

    pub(crate) fn device(&self, name: &str) -> Option<&DeviceUse> {
        self.devices.get(name)
    }

    pub(crate) fn available(&self) -> &[Amount] {
        &self.available
    }
}

fn get(bits: &[u64], slot: u32) -> bool {
    bits[slot as usize / 64] >> (slot % 64) & 1 == 1
}

fn set(bits: &mut [u64], slot: u32, value: bool) {
    let (word, bit) = (&mut bits[slot as usize / 64], 1 << (slot % 64));
    if value { *word |= bit } else { *word &= !bit }
}
