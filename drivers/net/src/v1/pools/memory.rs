//! Pools in memory, for tests.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

/// Pools in memory, with simulated crashes before or after each update.
pub(in crate::v1) struct Memory {
    pools: Mutex<BTreeMap<String, (u64, Pool)>>,
    random: Mutex<StdRng>,
    /// One in this many calls fails.
    trouble: u32,
}

impl Memory {
    pub(in crate::v1) fn new(pools: Vec<Pool>) -> Self {
        let pools = pools.into_iter().map(|pool| (pool.name.clone(), (1, pool)));
        Self {
            pools: Mutex::new(pools.collect()),
            random: Mutex::new(StdRng::seed_from_u64(0)),
            trouble: 0,
        }
    }

    /// From now on one in `trouble` calls fails, if that is not 0.
    pub(in crate::v1) fn disturb(&mut self, trouble: u32, seed: u64) {
        self.trouble = trouble;
        self.random = Mutex::new(StdRng::seed_from_u64(seed));
    }

    /// Changes the ranges of a pool.
    pub(in crate::v1) fn set_ips(&self, name: &str, ips: &str) {
        if let Some((version, pool)) = self.pools.lock().get_mut(name) {
            *version += 1;
            pool.spec.ips = vec![ips.to_owned()];
        }
    }

    fn unlucky(&self) -> bool {
        self.trouble > 0 && self.random.lock().random_ratio(1, self.trouble)
    }
}

impl Store for Memory {
    async fn get(&self, name: &str) -> Result<Option<Pool>, Failure> {
        if self.unlucky() {
            return Err("killed before the answer".into());
        }
        let pools = self.pools.lock();
        Ok(pools.get(name).map(|(version, pool)| Pool {
            version: version.to_string(),
            ..pool.clone()
        }))
    }

    async fn list(&self) -> Result<Vec<Pool>, Failure> {
        let names: Vec<String> = self.pools.lock().keys().cloned().collect();
        let mut all = Vec::new();
        for name in names {
            all.extend(self.get(&name).await?);
        }
        Ok(all)
    }

    async fn serves(&self, consumer: &Consumer, _: &Pool) -> Result<(), Failure> {
        match consumer.namespace.as_str() {
            "" => Ok(()),
            _ => Err("is for other namespaces".into()),
        }
    }

    async fn put(&self, pool: &Pool) -> Result<bool, Failure> {
        if self.unlucky() {
            return Err("killed before the write".into());
        }
        // Simulates a concurrent update.
        if self.unlucky()
            && let Some((version, _)) = self.pools.lock().get_mut(&pool.name)
        {
            *version += 1;
        }
        {
            let mut pools = self.pools.lock();
            let (version, stored) = pools.get_mut(&pool.name).expect("a pool");
            if version.to_string() != pool.version {
                return Ok(false);
            }
            *version += 1;
            stored.leases = pool.leases.clone();
        }
        match self.unlucky() {
            true => Err("killed after the write".into()),
            false => Ok(true),
        }
    }
}
