//! The model of a cluster: slices and allocated claims, kept up to date by deltas.

use std::sync::Arc;

use allot_cel::device::Layouts;
use k8s_openapi::api::resource::v1 as api;
use smol_str::SmolStr;

use crate::amount::Amount;
use crate::features::Features;
use crate::holder::Holder;
use crate::node::Node;
use crate::pool::{Member, Pool, Share};
use crate::slice::Slice;
use crate::taint::TaintRule;

mod census;
mod change_stamp;
mod conflict;
mod count;
mod entry;
mod inventory;
mod paged;

pub use census::{DeviceState, Fullness};
pub(crate) use change_stamp::{ChangeStamp, NodePlace};
pub use conflict::Conflict;
pub use count::{ClassSelectors, CountError, DeviceCount};
use entry::Entry;
pub use inventory::{Inventoried, PoolProblem};
use paged::{Paged, PoolCounts, Sharded};

/// Everything that allocations depend on besides the claims: devices, and which of them are in use.
///
/// Cloning takes a snapshot: it shares all data, and a later change of either side copies only the few kilobytes that
/// it touches. A scheduler keeps one cluster up to date from its watches, takes a snapshot per cycle, and records
/// assumed allocations with [`Cluster::claim_allocated`].
#[derive(Debug, Clone)]
pub struct Cluster {
    features: Features,
    /// Names that devices have in common.
    layouts: Layouts,
    pools: Paged<Entry>,
    /// By driver and pool name.
    ids: Sharded<(SmolStr, SmolStr), u32>,
    /// Pools with slices that are local to a node, sorted by driver and name.
    local: Sharded<SmolStr, Local>,
    /// Pools that are relevant for every node, sorted by driver and name.
    global: Arc<Vec<u32>>,
    /// Each slice and its pool.
    slices: Sharded<SmolStr, (u32, Arc<Member>)>,
    claims: Sharded<SmolStr, Arc<Holding>>,
    rules: Arc<[TaintRule]>,
    arrivals: u64,
    /// The last change of the state that all nodes depend on.
    shared: ChangeStamp,
    /// The last change of which pools are local to which nodes.
    entered: ChangeStamp,
}

/// The pools with slices that are local to a node.
#[derive(Debug, Clone)]
struct Local {
    pools: PoolCounts,
    /// The last time that a pool was added or removed.
    changed: ChangeStamp,
}

impl Local {
    fn new(pools: Vec<(u32, u32)>) -> Self {
        Self {
            pools: PoolCounts::new(pools),
            changed: ChangeStamp::next(),
        }
    }
}

/// What a claim holds, so that it can be taken back.
#[derive(Debug)]
struct Holding {
    holder: Arc<Holder>,
    devices: Vec<Held>,
}

/// A device in use, as results name it.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// Name of the driver.
    pub driver: SmolStr,
    /// Name of the pool.
    pub pool: SmolStr,
    /// Name of the device.
    pub device: SmolStr,
    /// Whether the claim has the device for itself, or which part of it.
    pub kind: HeldKind,
}

/// Alone or shared.
#[derive(Debug, Clone, PartialEq)]
pub enum HeldKind {
    /// No other claim may use the device.
    Dedicated,
    /// One share of a device that allows several allocations.
    Shared {
        /// The share's ID; empty when only the consumption is known.
        share_id: SmolStr,
        /// What the share takes of each capacity.
        capacity: Vec<(
            SmolStr,
            k8s_openapi::apimachinery::pkg::api::resource::Quantity,
        )>,
    },
}

impl Cluster {
    /// An empty cluster in which these features are on.
    pub fn new(features: Features) -> Self {
        Self {
            features,
            layouts: Layouts::new(),
            pools: Paged::default(),
            ids: Sharded::default(),
            local: Sharded::default(),
            global: Arc::default(),
            slices: Sharded::default(),
            claims: Sharded::default(),
            rules: Arc::new([]),
            arrivals: 0,
            shared: ChangeStamp::next(),
            entered: ChangeStamp::next(),
        }
    }

    /// The feature gates that are enabled; they decide which fields of claims and slices count.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Adds or updates a slice. Slices are identified by `metadata.name`.
    pub fn apply(&mut self, slice: &api::ResourceSlice) {
        self.apply_as(slice.metadata.name.as_deref().unwrap_or_default(), slice);
    }

    /// Like [`Cluster::apply`] for sources in which slice names are not unique: the slice is identified by `key`.
    pub fn apply_as(&mut self, key: &str, slice: &api::ResourceSlice) {
        let slice = Slice::new(&self.features, &self.layouts, slice);
        let id = self.pool_id(&slice.driver, &slice.pool);
        let known = self.slices.get(key).cloned();
        // A changed slice keeps its position in the list.
        let arrival = known.as_ref().map_or(self.arrivals, |(_, m)| m.arrival);
        self.arrivals += 1;
        let member = Arc::new(Member { arrival, slice });
        self.slices
            .insert(SmolStr::new(key), (id, Arc::clone(&member)));
        match known {
            Some((old, gone)) if old != id => {
                self.change_members(old, Some(&gone), None);
                self.change_members(id, None, Some(member));
            }
            known => self.change_members(id, known.as_ref().map(|(_, m)| &**m), Some(member)),
        }
    }

    /// Removes a slice. Does nothing if it is unknown.
    pub fn remove(&mut self, slice_name: &str) {
        if let Some((id, gone)) = self.slices.remove(slice_name) {
            self.change_members(id, Some(&gone), None);
        }
    }

    /// Replaces the taints of DeviceTaintRules.
    pub fn set_taint_rules(&mut self, rules: Vec<TaintRule>) {
        let old = std::mem::replace(&mut self.rules, rules.into());
        for id in 0..self.pools.len() {
            let entry = self.pools.get(id);
            let mut rules = old.iter().chain(&*self.rules);
            if rules.any(|r| r.covers_pool(&entry.driver, &entry.name)) {
                self.pools.get_mut(id).forget_description(&self.rules);
            }
        }
        self.shared = ChangeStamp::next();
    }

    /// Records the allocation of a claim, in place of what the same claim (by UID) had before.
    pub fn claim_allocated(&mut self, holder: &Holder, allocation: &api::AllocationResult) {
        let results = allocation
            .devices
            .iter()
            .flat_map(|d| d.results.iter().flatten());
        // Admin access leaves no trace: others may still get the device.
        let devices = results
            .filter(|r| r.admin_access != Some(true))
            .map(|result| Held {
                driver: SmolStr::new(&result.driver),
                pool: SmolStr::new(&result.pool),
                device: SmolStr::new(&result.device),
                kind: match &result.share_id {
                    Some(id) if self.features.consumable_capacity => HeldKind::Shared {
                        share_id: SmolStr::new(id),
                        capacity: result
                            .consumed_capacity
                            .iter()
                            .flatten()
                            .map(|(n, q)| (n.into(), q.clone()))
                            .collect(),
                    },
                    _ => HeldKind::Dedicated,
                },
            });
        let devices = devices.collect();
        self.hold(holder, devices);
    }

    /// Records that a claim (by UID) holds exactly these devices.
    pub fn hold(&mut self, holder: &Holder, devices: Vec<Held>) {
        if self
            .claims
            .get(&holder.uid)
            .is_some_and(|known| *known.holder == *holder && known.devices == devices)
        {
            return;
        }
        self.claim_released(&holder.uid);
        let holder = Arc::new(holder.clone());
        for held in &devices {
            self.change_use(held, |device| match &held.kind {
                HeldKind::Dedicated => device.dedicated.push(Arc::clone(&holder)),
                HeldKind::Shared { share_id, capacity } => device.shares.push(Share {
                    holder: Arc::clone(&holder),
                    id: share_id.clone(),
                    capacity: capacity
                        .iter()
                        .map(|(name, q)| (name.clone(), Amount::parse(q)))
                        .collect(),
                }),
            });
        }
        self.claims
            .insert(holder.uid.clone(), Arc::new(Holding { holder, devices }));
    }

    /// Releases the devices of a claim. Does nothing if it holds none.
    pub fn claim_released(&mut self, uid: &str) {
        let Some(holding) = self.claims.remove(uid) else {
            return;
        };
        for held in &holding.devices {
            self.change_use(held, |device| match &held.kind {
                HeldKind::Dedicated => {
                    if let Some(index) = device.dedicated.iter().position(|h| h.uid == uid) {
                        device.dedicated.remove(index);
                    }
                }
                HeldKind::Shared { share_id, .. } => {
                    if let Some(index) = device
                        .shares
                        .iter()
                        .position(|s| s.holder.uid == uid && s.id == *share_id)
                    {
                        device.shares.remove(index);
                    }
                }
            });
        }
    }

    /// The claims that hold devices, with what they hold.
    pub fn holders(&self) -> impl Iterator<Item = (&Holder, &[Held])> {
        self.claims
            .iter()
            .map(|(_, holding)| (&*holding.holder, holding.devices.as_slice()))
    }

    fn change_use(&mut self, held: &Held, change: impl FnOnce(&mut crate::pool::DeviceUse)) {
        let id = self.pool_id(&held.driver, &held.pool);
        let entry = self.pools.get_mut(id as usize);
        entry.changed = ChangeStamp::next();
        entry.change_use(&held.device, change);
        if entry.is_global() {
            self.shared = entry.changed;
        }
    }

    fn pool_id(&mut self, driver: &SmolStr, name: &SmolStr) -> u32 {
        let key = (driver.clone(), name.clone());
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        let id = self.pools.push(Entry::new(driver, name)) as u32;
        self.ids.insert(key, id);
        id
    }

    /// Changes a slice of a pool and everything that is derived from it.
    fn change_members(&mut self, id: u32, gone: Option<&Member>, new: Option<Arc<Member>>) {
        let left = gone.and_then(Member::node);
        let entered = new.as_deref().and_then(Member::node).cloned();
        if left != entered.as_ref() {
            if let Some(node) = left {
                self.leave(id, node);
            }
            if let Some(node) = &entered {
                self.enter(id, node);
            }
        }
        let entry = self.pools.get_mut(id as usize);
        let was_global = entry.is_global();
        entry.changed = ChangeStamp::next();
        entry.change(gone, new, &self.rules);
        let is_global = entry.is_global();
        if was_global || is_global {
            self.shared = entry.changed;
        }
        if was_global != is_global {
            let mut list = self.global.to_vec();
            if is_global {
                let at = list.partition_point(|other| self.order(*other) < self.order(id));
                list.insert(at, id);
            } else {
                list.retain(|p| *p != id)
            }
            self.global = Arc::new(list);
        }
    }

    /// One more slice of the pool is local to the node.
    fn enter(&mut self, id: u32, node: &SmolStr) {
        let known = self.local.get(node);
        let mut list = known.map_or_else(Vec::new, |l| l.pools.as_slice().to_vec());
        match list.iter_mut().find(|(pool, _)| *pool == id) {
            Some((_, slices)) => *slices += 1,
            None => {
                let at = list.partition_point(|(other, _)| self.order(*other) < self.order(id));
                list.insert(at, (id, 1));
            }
        }
        self.local.insert(node.clone(), Local::new(list));
        self.entered = ChangeStamp::next();
    }

    /// One slice less of the pool is local to the node.
    fn leave(&mut self, id: u32, node: &SmolStr) {
        let known = self.local.get(node);
        let mut list = known.map_or_else(Vec::new, |l| l.pools.as_slice().to_vec());
        for (_, slices) in list.iter_mut().filter(|(pool, _)| *pool == id) {
            *slices -= 1;
        }
        list.retain(|(_, slices)| *slices > 0);
        self.entered = ChangeStamp::next();
        if list.is_empty() {
            self.local.remove(node);
        } else {
            self.local.insert(node.clone(), Local::new(list));
        }
    }

    fn order(&self, id: u32) -> (&SmolStr, &SmolStr) {
        let entry = self.pools.get(id as usize);
        (&entry.driver, &entry.name)
    }

    /// Calls `visit` with every pool that may matter for a node, sorted by driver and name.
    pub(crate) fn each_pool<'a, E>(
        &'a self,
        node: &Node,
        mut visit: impl FnMut(&'a Pool) -> Result<(), E>,
    ) -> Result<(), E> {
        let local = self.local.get(node.name());
        let local = local.map_or(&[][..], |l| l.pools.as_slice());
        let mut a = local.iter().map(|(pool, _)| pool).peekable();
        let mut b = self.global.iter().peekable();
        loop {
            let id = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) if x == y => {
                    a.next();
                    b.next()
                }
                (Some(x), Some(y)) => {
                    if self.order(**x) < self.order(**y) {
                        a.next()
                    } else {
                        b.next()
                    }
                }
                (Some(_), None) => a.next(),
                (None, _) => b.next(),
            };
            let Some(id) = id else { return Ok(()) };
            visit(self.pools.get(*id as usize).pool(&self.rules))?;
        }
    }
}
