//! Addresses from SpiderIPPools: who has which, in the pool's own status, so that it is known wherever and whenever the
//! next one asks.
//!
//! Invariants:
//! - an address is in the stored status of its pool before anybody uses it, and is written with the version of the pool
//!   that was read: of two who want one address the second reads again;
//! - the owner is the device of a claim: who asks again, after a crash too, gets the same address;
//! - entries of others, such as Spiderpool's IPAM, are kept as they are and never given.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use allot_driver::Failure;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::objects::IpPoolSpec;

#[cfg(test)]
mod tests;

/// Attempts to write a pool that others write as well.
const ATTEMPTS: u32 = 60;
/// First pause before another attempt; it doubles up to [`LONGEST`].
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(250);

/// Who has an address: Spiderpool's fields, and the claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// Namespace and name of the claim.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// UID of the claim.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub claim_uid: String,
    /// Which device of the claim.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// The node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Namespace and name of the pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// UID of the pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod_uid: String,
    /// What others write.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Lease {
    fn is_of(&self, owner: &Lease) -> bool {
        self.claim_uid == owner.claim_uid && self.device == owner.device
    }
}

/// A pool as it was read.
#[derive(Debug, Clone, Default)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// The version that was read.
    pub version: String,
    /// It is being deleted.
    pub ending: bool,
    /// What it gives.
    pub spec: IpPoolSpec,
    /// Who has what.
    pub leases: BTreeMap<IpAddr, Lease>,
}

/// A pod that gets addresses.
#[derive(Debug, Clone, Default)]
pub struct User {
    /// Its node.
    pub node: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
}

/// Where the pools are.
pub trait Store: Send + Sync {
    /// A pool; nothing when there is none.
    fn get(&self, name: &str) -> impl Future<Output = Result<Option<Pool>, Failure>> + Send;
    /// All pools.
    fn list(&self) -> impl Future<Output = Result<Vec<Pool>, Failure>> + Send;
    /// Whether a pool is for a pod.
    fn serves(&self, user: &User, pool: &Pool) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Writes who has what, and the counts; false when the pool is not the version that was read any more.
    fn put(&self, pool: &Pool) -> impl Future<Output = Result<bool, Failure>> + Send;
}

/// Consecutive addresses of one family, as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    six: bool,
    first: u128,
    last: u128,
}

impl Range {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no address and no range such as 10.0.0.2-10.0.0.9");
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let read = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| wrong());
        let (first, last) = (read(first)?, read(last)?);
        let range = Self {
            six: first.is_ipv6(),
            first: number(first),
            last: number(last),
        };
        match first.is_ipv4() == last.is_ipv4() && range.first <= range.last {
            true => Ok(range),
            false => Err(wrong()),
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.six == address.is_ipv6() && (self.first..=self.last).contains(&number(address))
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => u128::from(u32::from(four)),
        IpAddr::V6(six) => u128::from(six),
    }
}

fn address(number: u128, six: bool) -> Option<IpAddr> {
    match six {
        true => Some(IpAddr::from(number.to_be_bytes())),
        false => Some(IpAddr::from(u32::try_from(number).ok()?.to_be_bytes())),
    }
}

fn ranges(texts: &[String]) -> Result<Vec<Range>, String> {
    texts.iter().map(|text| Range::parse(text)).collect()
}

impl Pool {
    /// The network of the addresses.
    ///
    /// # Errors
    /// The pool does not say.
    pub fn subnet(&self) -> Result<IpNet, String> {
        let text = &self.spec.subnet;
        text.parse()
            .map_err(|_| format!("pool {}: bad subnet {text:?}", self.name))
    }

    /// Whether the pool may give an address, whoever has it now.
    ///
    /// # Errors
    /// What the pool says can not be read.
    pub fn covers(&self, address: IpAddr) -> Result<bool, String> {
        let named = |texts: &[String]| -> Result<bool, String> {
            let ranges = ranges(texts).map_err(|error| format!("pool {}: {error}", self.name))?;
            Ok(ranges.iter().any(|range| range.contains(address)))
        };
        Ok(named(&self.spec.ips)? && !named(&self.spec.exclude_ips)?)
    }

    /// What `owner` has of the pool already.
    pub fn of(&self, owner: &Lease) -> Option<IpAddr> {
        let mut leases = self.leases.iter();
        leases
            .find(|(_, lease)| lease.is_of(owner))
            .map(|(address, _)| *address)
    }

    /// The first address that nobody has. The network's own address, its broadcast address and the gateway are never given.
    ///
    /// # Errors
    /// There is none, or what the pool says can not be read.
    pub fn free(&self) -> Result<IpAddr, String> {
        let of_pool = |error| format!("pool {}: {error}", self.name);
        let subnet = self.subnet()?;
        let excluded = ranges(&self.spec.exclude_ips).map_err(of_pool)?;
        let gateway = self.spec.gateway.as_deref().map(str::parse::<IpAddr>);
        let gateway = gateway
            .transpose()
            .map_err(|error| of_pool(format!("gateway: {error}")))?;
        for range in ranges(&self.spec.ips).map_err(of_pool)? {
            let mut at = Some(range.first);
            // Each step passes a lease, an excluded range or one of three addresses: the loop is as short as the pool.
            while let Some(candidate) = at.filter(|it| *it <= range.last) {
                at = candidate.checked_add(1);
                let Some(found) = address(candidate, range.six) else {
                    break;
                };
                if !subnet.contains(&found) {
                    return Err(of_pool(format!("{found} is not in {subnet}")));
                }
                if let Some(over) = excluded.iter().find(|over| over.contains(found)) {
                    at = over.last.checked_add(1);
                    continue;
                }
                let reserved = match subnet {
                    IpNet::V4(four) => {
                        four.prefix_len() < 31
                            && (found == four.network() || found == four.broadcast())
                    }
                    IpNet::V6(six) => six.prefix_len() < 127 && found == six.network(),
                };
                if !reserved && gateway != Some(found) && !self.leases.contains_key(&found) {
                    return Ok(found);
                }
            }
        }
        Err(format!("pool {} has no free address", self.name))
    }

    /// How many addresses the pool has, whoever has them.
    pub fn total(&self) -> i64 {
        let count = |texts: &[String]| crate::ranges::count(texts.iter().map(String::as_str));
        let total = count(&self.spec.ips).saturating_sub(count(&self.spec.exclude_ips));
        i64::try_from(total).unwrap_or(i64::MAX)
    }
}

/// An address of a pool for an owner, in the pool's status when this returns: the one that it has already, else `wanted` or the
/// first free one. Whether the pool is for the pod is not asked again for what the owner has.
///
/// # Errors
/// There is no such pool, it is not for the owner, it has no address left, or the API server refuses.
pub async fn lease(
    store: &impl Store,
    name: &str,
    owner: &Lease,
    wanted: Option<IpAddr>,
    user: &User,
) -> Result<IpNet, Failure> {
    let mut pause = PAUSE;
    for _ in 0..ATTEMPTS {
        let pool = store.get(name).await?;
        let mut pool = pool.ok_or_else(|| format!("there is no SpiderIPPool {name}"))?;
        let length = pool.subnet()?.prefix_len();
        if let Some(address) = pool.of(owner) {
            return Ok(IpNet::new(address, length)?);
        }
        store.serves(user, &pool).await?;
        let address = match wanted {
            Some(wanted) if pool.leases.contains_key(&wanted) => {
                return Err(format!("{wanted} of pool {name} belongs to another claim").into());
            }
            Some(wanted) => wanted,
            None => pool.free()?,
        };
        pool.leases.insert(address, owner.clone());
        if store.put(&pool).await? {
            return Ok(IpNet::new(address, length)?);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
    Err(format!("pool {name} is written by others all the time").into())
}

/// Gives back all that `gone` says of all pools; succeeds when there is nothing.
///
/// # Errors
/// A pool can not be read or written.
pub async fn release(store: &impl Store, gone: impl Fn(&Lease) -> bool) -> Result<(), Failure> {
    let has = |pool: &Pool| pool.leases.values().any(&gone);
    for pool in store.list().await?.into_iter().filter(has) {
        let (name, mut current, mut pause) = (pool.name.clone(), Some(pool), PAUSE);
        let mut attempts = 0;
        while let Some(mut pool) = current.filter(has) {
            pool.leases.retain(|_, lease| !gone(lease));
            if store.put(&pool).await? {
                break;
            }
            attempts += 1;
            if attempts == ATTEMPTS {
                return Err(format!("pool {name} is written by others all the time").into());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
            current = store.get(&name).await?;
        }
    }
    Ok(())
}
