//! A pool of the cluster: its slices, updated incrementally, and the description that attempts need.

use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

use smol_str::SmolStr;

use super::ChangeStamp;
use crate::pool::{DeviceUse, Member, Pool, PoolInfo, Usage};
use crate::taint::TaintRule;

/// Pools with more slices are described on first use, not whenever a slice changes: so the cost of a change does not
/// depend on the number of slices.
const EAGER: usize = 8;

/// A pool. Copies share slices and description.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) driver: SmolStr,
    pub(super) name: SmolStr,
    /// The stamp of the last change.
    pub(super) changed: ChangeStamp,
    members: Members,
    /// Slices with devices that are not local to one node.
    elsewhere: u32,
    /// Slices with counters.
    counted: u32,
    /// What is in use, while there is no description.
    usage: Usage,
    described: OnceLock<Pool>,
}

impl Entry {
    pub(super) fn new(driver: &SmolStr, name: &SmolStr) -> Self {
        Self {
            driver: driver.clone(),
            name: name.clone(),
            changed: ChangeStamp::next(),
            members: Members::default(),
            elsewhere: 0,
            counted: 0,
            usage: Usage::default(),
            described: OnceLock::new(),
        }
    }

    /// The pool with its description, which is computed if it does not exist yet.
    pub(super) fn pool(&self, rules: &[TaintRule]) -> &Pool {
        self.described
            .get_or_init(|| self.describe(rules, self.usage.clone()))
    }

    fn describe(&self, rules: &[TaintRule], mut usage: Usage) -> Pool {
        let info = PoolInfo::new(&self.driver, &self.name, self.members.to_vec(), rules);
        usage.rebuild(&info);
        Pool {
            info: Arc::new(info),
            usage,
        }
    }

    /// Replaces a slice, adds one or takes one away.
    pub(super) fn change(
        &mut self,
        gone: Option<&Member>,
        new: Option<Arc<Member>>,
        rules: &[TaintRule],
    ) {
        if let Some(gone) = gone {
            self.members.remove(gone);
            self.elsewhere -= u32::from(gone.is_elsewhere());
            self.counted -= u32::from(gone.has_counters());
        }
        if let Some(new) = new {
            self.elsewhere += u32::from(new.is_elsewhere());
            self.counted += u32::from(new.has_counters());
            self.members.insert(new);
        }
        self.forget_description(rules);
    }

    /// The inputs of the description have changed.
    pub(super) fn forget_description(&mut self, rules: &[TaintRule]) {
        if let Some(pool) = self.described.take() {
            self.usage = pool.usage;
        }
        // Whether a pool with counters is relevant for the whole cluster is only known from its description.
        if self.members.len <= EAGER || self.counted > 0 {
            let usage = std::mem::take(&mut self.usage);
            self.described = OnceLock::from(self.describe(rules, usage));
        }
    }

    /// Changes how a device is used.
    pub(super) fn change_use(&mut self, device: &SmolStr, change: impl FnOnce(&mut DeviceUse)) {
        match self.described.get_mut() {
            Some(pool) => pool.usage.change(&pool.info, device, change),
            None => self.usage.change_unseen(device, change),
        }
    }

    /// How one device is used, if it is.
    pub(super) fn device_use(&self, device: &str) -> Option<&DeviceUse> {
        let usage = self.described.get().map_or(&self.usage, |p| &p.usage);
        usage.device(device)
    }

    /// Whether devices of the pool may draw from shared counters.
    pub(super) fn has_counters(&self) -> bool {
        self.counted > 0
    }

    /// Whether the pool is relevant for nodes without local slices.
    pub(super) fn is_global(&self) -> bool {
        let described = || self.described.get().is_some_and(|p| p.info.is_global());
        self.elsewhere > 0 || self.counted > 0 && described()
    }
}

/// The slices of a pool in their order, in chunks that copies share.
#[derive(Debug, Clone, Default)]
struct Members {
    chunks: Vec<Arc<Vec<Arc<Member>>>>,
    len: usize,
}

const CHUNK: usize = 128;

impl Members {
    /// The chunk and the position of a slice in it, or its insertion position.
    fn find(&self, member: &Member) -> (usize, Result<usize, usize>) {
        let before = |chunk: &Arc<Vec<Arc<Member>>>| {
            chunk
                .last()
                .is_some_and(|last| last.order(member) == Ordering::Less)
        };
        let chunk = self.chunks.partition_point(before);
        let chunk = chunk.min(self.chunks.len().saturating_sub(1));
        let place = self
            .chunks
            .get(chunk)
            .map_or(Err(0), |c| c.binary_search_by(|known| known.order(member)));
        (chunk, place)
    }

    fn insert(&mut self, member: Arc<Member>) {
        let (index, place) = self.find(&member);
        self.len += 1;
        if self.chunks.is_empty() {
            self.chunks.push(Arc::new(vec![member]));
            return;
        }
        let chunk = Arc::make_mut(&mut self.chunks[index]);
        chunk.insert(place.unwrap_or_else(|place| place), member);
        if chunk.len() > CHUNK {
            let second = chunk.split_off(CHUNK / 2);
            self.chunks.insert(index + 1, Arc::new(second));
        }
    }

    fn remove(&mut self, member: &Member) {
        let (index, place) = self.find(member);
        let Ok(place) = place else { return };
        self.len -= 1;
        let chunk = Arc::make_mut(&mut self.chunks[index]);
        chunk.remove(place);
        if chunk.is_empty() {
            self.chunks.remove(index);
        }
    }

    fn to_vec(&self) -> Vec<Arc<Member>> {
        let mut all = Vec::with_capacity(self.len);
        all.extend(self.chunks.iter().flat_map(|chunk| chunk.iter()).cloned());
        all
    }
}
