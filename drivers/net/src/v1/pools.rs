//! Address allocation from SpiderIPPools. Allocations are recorded in the status of each pool, so that they are visible from
//! every node and survive restarts.
//!
//! Invariants:
//! - an address is recorded in the stored status of its pool before it is used, and the update carries the resource version
//!   that was read: if two claims compete for one address, the second update conflicts and is retried with a new read;
//! - the owner is the device of a claim: a repeated request, also after a crash, gets the same address;
//! - entries of other IPAM implementations, such as Spiderpool's, are preserved and their addresses never allocated.

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

/// Maximum attempts to update a pool under contention.
const ATTEMPTS: u32 = 60;
/// Initial delay before a retry; it doubles up to [`LONGEST`].
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(250);

/// The owner of an address: Spiderpool's fields, and the claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// Namespace and name of the claim.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// UID of the claim.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub claim_uid: String,
    /// Key of the device in the claim.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// Name of the node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Namespace and name of the pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// UID of the pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod_uid: String,
    /// Unknown fields, preserved as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Lease {
    fn is_of(&self, owner: &Lease) -> bool {
        self.claim_uid == owner.claim_uid && self.device == owner.device
    }
}

/// A pool as read from the API server.
#[derive(Debug, Clone, Default)]
pub struct Pool {
    /// Name of the pool.
    pub name: String,
    /// Resource version of the pool when it was read.
    pub version: String,
    /// Whether the pool is being deleted.
    pub ending: bool,
    /// The pool's spec, with its subnet and addresses.
    pub spec: IpPoolSpec,
    /// Allocated addresses and their owners.
    pub leases: BTreeMap<IpAddr, Lease>,
}

/// A pod that gets addresses.
#[derive(Debug, Clone, Default)]
pub struct User {
    /// Name of the pod's node.
    pub node: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
}

/// Storage of the pools.
pub trait Store: Send + Sync {
    /// Gets a pool; `None` if it does not exist.
    fn get(&self, name: &str) -> impl Future<Output = Result<Option<Pool>, Failure>> + Send;
    /// Lists all pools.
    fn list(&self) -> impl Future<Output = Result<Vec<Pool>, Failure>> + Send;
    /// Checks whether a pool may serve a pod.
    fn serves(&self, user: &User, pool: &Pool) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Updates the allocations and counts of a pool; returns false on a resource version conflict.
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
    /// Parses the pool's subnet.
    ///
    /// # Errors
    /// The pool has no valid subnet.
    pub fn subnet(&self) -> Result<IpNet, String> {
        let text = &self.spec.subnet;
        text.parse()
            .map_err(|_| format!("pool {}: bad subnet {text:?}", self.name))
    }

    /// Whether the address is one of the pool's addresses, regardless of its current owner.
    ///
    /// # Errors
    /// The pool's spec is invalid.
    pub fn covers(&self, address: IpAddr) -> Result<bool, String> {
        let named = |texts: &[String]| -> Result<bool, String> {
            let ranges = ranges(texts).map_err(|error| format!("pool {}: {error}", self.name))?;
            Ok(ranges.iter().any(|range| range.contains(address)))
        };
        Ok(named(&self.spec.ips)? && !named(&self.spec.exclude_ips)?)
    }

    /// The address in the pool that `owner` already has.
    pub fn of(&self, owner: &Lease) -> Option<IpAddr> {
        let mut leases = self.leases.iter();
        leases
            .find(|(_, lease)| lease.is_of(owner))
            .map(|(address, _)| *address)
    }

    /// The first free address. The subnet's network address, its broadcast address and the gateway are never allocated.
    ///
    /// # Errors
    /// The pool is exhausted, or its spec is invalid.
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
            // Each step skips a lease, an excluded range or one of three reserved addresses, which bounds the loop.
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

    /// Total number of addresses in the pool, allocated or not.
    pub fn total(&self) -> i64 {
        let count = |texts: &[String]| crate::ranges::count(texts.iter().map(String::as_str));
        let total = count(&self.spec.ips).saturating_sub(count(&self.spec.exclude_ips));
        i64::try_from(total).unwrap_or(i64::MAX)
    }
}

/// Allocates an address of a pool to an owner and records it in the pool's status: the address that the owner already has,
/// otherwise `wanted` or the first free one. For an existing allocation, the pool's selectors are not checked again.
///
/// # Errors
/// The pool does not exist, does not serve the pod or is exhausted, or the API server rejects the update.
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

/// Releases all allocations matched by `gone`, in all pools; succeeds if there are none.
///
/// # Errors
/// A pool cannot be read or updated.
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
