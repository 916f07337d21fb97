//! Pools that could allocate the same address. Each pool has its own record of what is allocated, so that both would: the one
//! that was created first allocates addresses, the other one none until the overlap is removed.
//!
//! A pool may be changed so that it overlaps with one that has allocated addresses. These are in use, and neither pool
//! allocates them again. If both pools get the same address at that moment, each attempt sees the other one in the list that it
//! reads after its own was stored, and at least one of them gives the address up before it is used.

use std::net::IpAddr;

use super::{Lease, Pool, ranges};
use crate::ranges::{Range, without};

impl Pool {
    /// The addresses that the pool can have, allocated or not.
    fn addresses(&self) -> Result<Vec<Range>, String> {
        let of_pool = |error| format!("pool {}: {error}", self.name);
        let all = ranges(&self.spec.ips).map_err(of_pool)?;
        let excluded = ranges(&self.spec.exclude_ips).map_err(of_pool)?;
        Ok(without(&all, &excluded))
    }

    pub(in crate::v1) fn is_older(&self, other: &Self) -> bool {
        (&self.created, &self.name) < (&other.created, &other.name)
    }
}

/// An address that both pools can have. One with an invalid spec has none: it allocates nothing.
fn common(pool: &Pool, other: &Pool) -> Option<IpAddr> {
    let (own, others) = (pool.addresses().ok()?, other.addresses().ok()?);
    own.iter()
        .find_map(|range| others.iter().find_map(|it| range.first_common(it)))
}

fn others<'a>(pool: &'a Pool, all: &'a [Pool]) -> impl Iterator<Item = &'a Pool> {
    all.iter().filter(|other| other.name != pool.name)
}

/// Checks that a pool may allocate addresses, beside `all` pools.
///
/// # Errors
/// It overlaps with an older one, or with one whose allocated addresses cannot be read.
pub(super) fn check(pool: &Pool, all: &[Pool]) -> Result<(), String> {
    for other in others(pool, all) {
        let Some(address) = common(pool, other) else {
            continue;
        };
        let (own, name) = (&pool.name, &other.name);
        if other.is_older(pool) {
            return Err(format!(
                "pool {own} overlaps with pool {name}, which was created before it: both have {address}; exclude it in one of them"
            ));
        }
        other
            .check()
            .map_err(|error| format!("pool {own} overlaps with another one: {error}"))?;
    }
    Ok(())
}

/// The other pool in which an address is allocated to another owner.
pub(super) fn holder<'a>(
    pool: &'a Pool,
    address: IpAddr,
    owner: &Lease,
    all: &'a [Pool],
) -> Option<&'a Pool> {
    let is_foreign = |lease: &Lease| !lease.is_of(owner);
    others(pool, all).find(|other| other.leases.get(&address).is_some_and(is_foreign))
}

#[cfg(test)]
mod tests;
