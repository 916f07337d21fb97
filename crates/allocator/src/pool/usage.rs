//! The devices and capacity of a pool that are in use.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smol_str::SmolStr;

use super::PoolInfo;
use crate::amount::Amount;
use crate::holder::Holder;

/// The devices of a pool that are in use, by name: a device can be in use while no slice shows it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usage {
    devices: FxHashMap<SmolStr, DeviceUse>,
    /// Exclusively allocated devices, by slot.
    dedicated: Bits,
    /// Shared devices.
    shared: Bits,
    /// Devices in use that the newest generation of the pool does not have.
    unpublished: usize,
    /// Remaining amount of each counter; below zero after errors of drivers or users.
    available: Vec<Amount>,
}

/// The claims that use a device.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeviceUse {
    pub(crate) dedicated: Vec<Arc<Holder>>,
    pub(crate) shares: Vec<Share>,
}

/// A share of a device with `allowMultipleAllocations`.
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

    /// Whether a share consumes a capacity, even an amount of zero.
    pub(crate) fn takes(&self, capacity: &str) -> bool {
        let names = self.shares.iter().flat_map(|s| s.capacity.iter());
        names.into_iter().any(|(name, _)| name == capacity)
    }

    /// The claims that hold it: exclusive ones first, then shares.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Holder> {
        let shares = self.shares.iter().map(|s| &s.holder);
        self.dedicated.iter().chain(shares).map(|h| &**h)
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
        self.dedicated = Bits::new(info.slots());
        self.shared = Bits::new(info.slots());
        self.available = info.counters().iter().map(|c| c.total).collect();
        let devices = std::mem::take(&mut self.devices);
        for (name, device) in &devices {
            self.mark(info, name, device);
            if !device.is_free() {
                self.charge(info, name, Amount::minus);
            }
        }
        let used = devices.iter().filter(|(_, device)| !device.is_free());
        self.unpublished = used.filter(|(name, _)| !info.publishes(name)).count();
        self.devices = devices;
    }

    /// Like [`Usage::change`] while the devices are unknown; [`Usage::rebuild`] is called before it is read.
    pub(crate) fn change_unseen(&mut self, name: &SmolStr, change: impl FnOnce(&mut DeviceUse)) {
        let mut device = self.devices.remove(name).unwrap_or_default();
        change(&mut device);
        if !device.is_free() {
            self.devices.insert(name.clone(), device);
        }
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
            (true, false) => {
                self.charge(info, name, Amount::minus);
                self.unpublished += usize::from(!info.publishes(name));
            }
            (false, true) => {
                self.charge(info, name, Amount::plus);
                self.unpublished -= usize::from(!info.publishes(name));
            }
            _ => {}
        }
        if !device.is_free() {
            self.devices.insert(name.clone(), device);
        }
    }

    fn mark(&mut self, info: &PoolInfo, name: &str, device: &DeviceUse) {
        for slot in info.slots_named(name) {
            self.dedicated.set(slot, !device.dedicated.is_empty());
            self.shared.set(slot, !device.shares.is_empty());
        }
    }

    fn charge(&mut self, info: &PoolInfo, name: &str, op: impl Fn(Amount, Amount) -> Amount) {
        for slot in info.slots_named(name) {
            for &(counter, amount) in info.consumption(slot) {
                let available = &mut self.available[counter as usize];
                *available = op(*available, amount);
            }
        }
    }

    pub(crate) fn is_dedicated(&self, slot: u32) -> bool {
        self.dedicated.get(slot)
    }

    /// A bit per slot.
    pub(crate) fn dedicated(&self) -> &[u64] {
        self.dedicated.words()
    }

    pub(crate) fn is_shared(&self, slot: u32) -> bool {
        self.shared.get(slot)
    }

    pub(crate) fn any_shared(&self) -> bool {
        self.shared.words().iter().any(|word| *word != 0)
    }

    pub(crate) fn device(&self, name: &str) -> Option<&DeviceUse> {
        self.devices.get(name)
    }

    /// All devices that are in use.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (&SmolStr, &DeviceUse)> {
        self.devices.iter()
    }

    /// Whether a device in use is no longer published, so that the counters that it consumes are unknown.
    pub(crate) fn has_unpublished(&self) -> bool {
        self.unpublished > 0
    }

    pub(crate) fn available(&self) -> &[Amount] {
        &self.available
    }
}

/// A bit per slot; most pools need one word.
#[derive(Debug, Clone)]
enum Bits {
    One([u64; 1]),
    More(Vec<u64>),
}

impl Default for Bits {
    fn default() -> Self {
        Self::One([0])
    }
}

impl Bits {
    fn new(slots: usize) -> Self {
        if slots <= 64 {
            return Self::default();
        }
        Self::More(vec![0; slots.div_ceil(64)])
    }

    fn words(&self) -> &[u64] {
        match self {
            Self::One(word) => word,
            Self::More(words) => words,
        }
    }

    fn get(&self, slot: u32) -> bool {
        self.words()[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    fn set(&mut self, slot: u32, value: bool) {
        let words = match self {
            Self::One(word) => &mut word[..],
            Self::More(words) => words,
        };
        let (word, bit) = (&mut words[slot as usize / 64], 1 << (slot % 64));
        if value { *word |= bit } else { *word &= !bit }
    }
}
