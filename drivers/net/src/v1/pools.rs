//! Address allocation from SpiderIPPools. Allocations are recorded in the status of each pool, so that they are visible from
//! every node and survive restarts.
//!
//! Invariants:
//! - an address is recorded in the stored status of its pool before it is used, and the update carries the resource version
//!   that was read: if two claims compete for one address, the second update conflicts and is retried with a new read;
//! - the owner is the device of a claim: a repeated request, also after a crash, gets the same address;
//! - entries of other IPAM implementations, such as Spiderpool's, are preserved and their addresses never allocated;
//! - a pool that cannot be read is never written, and concerns only the claims that need it;
//! - of pools that overlap only the first one allocates, and no address that another one has allocated ([`overlap`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use allot_driver::Failure;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::objects::IpPoolSpec;
use crate::ranges::Range;

#[cfg(test)]
pub(super) mod memory;
mod overlap;
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
    /// When the pool was created, as the API server writes it.
    pub created: String,
    /// Whether the pool is being deleted.
    pub ending: bool,
    /// The pool's spec, with its subnet and addresses.
    pub spec: IpPoolSpec,
    /// Allocated addresses and their owners.
    pub leases: BTreeMap<IpAddr, Lease>,
    /// What of the pool cannot be read. The other fields may be incomplete then.
    pub damage: Option<Damage>,
}

/// A pool whose spec or status cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Field and error, in one line.
    pub reason: String,
    /// The status as it is stored, in which the UIDs of owners can be searched for.
    pub status: String,
}

/// A pod that gets addresses.
#[derive(Debug, Clone, Default)]
pub struct Consumer {
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
    fn serves(
        &self,
        consumer: &Consumer,
        pool: &Pool,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Updates the allocations and counts of a pool; returns false on a resource version conflict.
    fn put(&self, pool: &Pool) -> impl Future<Output = Result<bool, Failure>> + Send;
}

fn ranges(texts: &[String]) -> Result<Vec<Range>, String> {
    texts.iter().map(|text| Range::parse(text)).collect()
}

impl Pool {
    /// Checks that the pool could be read.
    ///
    /// # Errors
    /// It could not; the text names the pool and the field.
    fn check(&self) -> Result<(), String> {
        match &self.damage {
            Some(damage) => Err(format!(
                "pool {} can not be read: {}",
                self.name, damage.reason
            )),
            None => Ok(()),
        }
    }

    /// Parses the pool's subnet.
    ///
    /// # Errors
    /// The pool has no valid subnet.
    pub fn subnet(&self) -> Result<IpNet, String> {
        let text = &self.spec.subnet;
        text.parse()
            .map_err(|_| format!("pool {}: bad subnet {text:?}", self.name))
    }

    /// Whether a static address belongs to the pool, regardless of its current owner. A pool of another subnet is not looked
    /// at further.
    ///
    /// # Errors
    /// The address is reserved: it is excluded, the gateway, or the network or broadcast address of the subnet; or the spec
    /// of a pool with this subnet is invalid.
    pub fn covers(&self, address: IpAddr) -> Result<bool, String> {
        let Ok(subnet) = self.subnet() else {
            tracing::warn!(
                pool = self.name,
                "a pool without a valid subnet is left out"
            );
            return Ok(false);
        };
        if !subnet.contains(&address) {
            return Ok(false);
        }
        self.check()?;
        if let Some(reserved) = self.reserved(subnet, address)? {
            return Err(format!("{address} is {reserved} of pool {}", self.name));
        }
        let of_pool = |error| format!("pool {}: {error}", self.name);
        let ranges = ranges(&self.spec.ips).map_err(of_pool)?;
        Ok(ranges.iter().any(|range| range.contains(address)))
    }

    /// What an address of the pool's subnet is reserved for.
    fn reserved(&self, subnet: IpNet, address: IpAddr) -> Result<Option<&'static str>, String> {
        let of_pool = |error| format!("pool {}: {error}", self.name);
        if let Some(reserved) = reserved_of_subnet(subnet, address) {
            return Ok(Some(reserved));
        }
        if self.gateway().map_err(of_pool)? == Some(address) {
            return Ok(Some("the gateway"));
        }
        let excluded = ranges(&self.spec.exclude_ips).map_err(of_pool)?;
        let is_excluded = excluded.iter().any(|range| range.contains(address));
        Ok(is_excluded.then_some("an excluded address"))
    }

    fn gateway(&self) -> Result<Option<IpAddr>, String> {
        let gateway = self.spec.gateway.as_deref().filter(|text| !text.is_empty());
        let gateway = gateway.map(str::parse::<IpAddr>).transpose();
        gateway.map_err(|error| format!("gateway: {error}"))
    }

    /// The address in the pool that `owner` already has.
    pub fn of(&self, owner: &Lease) -> Option<IpAddr> {
        let mut leases = self.leases.iter();
        leases
            .find(|(_, lease)| lease.is_of(owner))
            .map(|(address, _)| *address)
    }

    /// The first free address that is not `taken` elsewhere. The subnet's network address, its broadcast address and the
    /// gateway are never allocated.
    ///
    /// # Errors
    /// The pool is exhausted, or its spec is invalid.
    pub fn free(&self, taken: impl Fn(IpAddr) -> bool) -> Result<IpAddr, String> {
        let of_pool = |error| format!("pool {}: {error}", self.name);
        let subnet = self.subnet()?;
        let excluded = ranges(&self.spec.exclude_ips).map_err(of_pool)?;
        let gateway = self.gateway().map_err(of_pool)?;
        for range in ranges(&self.spec.ips).map_err(of_pool)? {
            let mut at = Some(range.first);
            // Each step skips a lease of this or another pool, an excluded range or one of three reserved addresses, which
            // bounds the loop.
            while let Some(candidate) = at.filter(|it| *it <= range.last) {
                at = candidate.checked_add(1);
                let Some(found) = range.address(candidate) else {
                    break;
                };
                if !subnet.contains(&found) {
                    return Err(of_pool(format!("{found} is not in {subnet}")));
                }
                if let Some(over) = excluded.iter().find(|over| over.contains(found)) {
                    at = over.last.checked_add(1);
                    continue;
                }
                let is_reserved =
                    gateway == Some(found) || reserved_of_subnet(subnet, found).is_some();
                if !is_reserved && !self.leases.contains_key(&found) && !taken(found) {
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

/// What an address is reserved for in any network with this subnet.
pub(super) fn reserved_of_subnet(subnet: IpNet, address: IpAddr) -> Option<&'static str> {
    let (network, broadcast) = match subnet {
        IpNet::V4(four) => (four.prefix_len() < 31, four.prefix_len() < 31),
        IpNet::V6(six) => (six.prefix_len() < 127, false),
    };
    if network && address == subnet.network() {
        return Some("the network address");
    }
    (broadcast && address == subnet.broadcast()).then_some("the broadcast address")
}

/// Allocates an address of a pool to an owner and records it in the pool's status: the address that the owner already has,
/// otherwise `wanted` or the first free one. For an existing allocation, the pool's selectors are not checked again.
///
/// # Errors
/// The pool does not exist, overlaps with an older one, does not serve the pod or is exhausted, or the API server rejects the
/// update.
pub async fn lease(
    store: &impl Store,
    name: &str,
    owner: &Lease,
    wanted: Option<IpAddr>,
    consumer: &Consumer,
) -> Result<IpNet, Failure> {
    let mut pause = PAUSE;
    for _ in 0..ATTEMPTS {
        let pool = store.get(name).await?;
        let mut pool = pool.ok_or_else(|| format!("there is no SpiderIPPool {name}"))?;
        pool.check()?;
        let length = pool.subnet()?.prefix_len();
        let before = pool.of(owner);
        let all = store.list().await?;
        if let Some(address) = before {
            // The driver may have been killed before it compared the pools. Of two claims that got an address before pools
            // were compared, that of the older pool keeps it.
            let holder = overlap::holder(&pool, address, owner, &all);
            if let Some(other) = holder.filter(|other| other.is_older(&pool)) {
                return Err(allocated_in(address, name, other).into());
            }
            if pool.leases[&address].node == owner.node {
                return Ok(IpNet::new(address, length)?);
            }
        } else {
            overlap::check(&pool, &all)?;
            store.serves(consumer, &pool).await?;
        }
        let address = match before.or(wanted) {
            // The claim was prepared on another node before.
            Some(address) if before.is_some() => address,
            Some(wanted) if pool.leases.contains_key(&wanted) => {
                return Err(format!("{wanted} of pool {name} belongs to another claim").into());
            }
            Some(wanted) if !pool.covers(wanted)? => {
                return Err(format!("{wanted} is not in pool {name}").into());
            }
            Some(wanted) => match overlap::holder(&pool, wanted, owner, &all) {
                Some(other) => return Err(allocated_in(wanted, name, other).into()),
                None => wanted,
            },
            None => pool.free(|it| overlap::holder(&pool, it, owner, &all).is_some())?,
        };
        pool.leases.insert(address, owner.clone());
        if store.put(&pool).await? {
            let all = store.list().await?;
            let Some(other) = overlap::holder(&pool, address, owner, &all) else {
                return Ok(IpNet::new(address, length)?);
            };
            let is_own = |lease: &Lease| lease.is_of(owner);
            let current = all.iter().find(|it| it.name == pool.name).cloned();
            if let Some(current) = current.filter(|_| before.is_none()) {
                release_of(store, current, is_own, |_| true).await?;
            }
            return Err(allocated_in(address, name, other).into());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
    Err(format!("pool {name} is written by others all the time").into())
}

fn allocated_in(address: IpAddr, pool: &str, other: &Pool) -> String {
    let other = &other.name;
    format!("{address} of pool {pool} is allocated in pool {other}")
}

/// Releases the addresses that a claim has on a node, in the pools that its plan names, or in all pools if there is no plan;
/// succeeds if there are none. If the claim was prepared on another node meanwhile, its addresses are in use there. A damaged
/// pool fails the release only if its status mentions the claim.
///
/// # Errors
/// A pool cannot be read or updated.
pub async fn release(
    store: &impl Store,
    names: Option<&BTreeSet<String>>,
    claim_uid: &str,
    node: &str,
) -> Result<(), Failure> {
    let mut pools = Vec::new();
    match names {
        Some(names) => {
            for name in names {
                pools.extend(store.get(name).await?);
            }
        }
        None => pools = store.list().await?,
    }
    // One pool does not keep the claim's addresses in others.
    let mut result = Ok(());
    for pool in pools {
        let is_gone = |lease: &Lease| lease.claim_uid == claim_uid && lease.node == node;
        let mentions = |damage: &Damage| damage.status.contains(claim_uid);
        result = result.and(release_of(store, pool, is_gone, mentions).await.map(drop));
    }
    result
}

/// Removes the leases of a pool that are `gone`; returns how many. `mentions` tells whether a damaged pool may have any.
///
/// # Errors
/// The pool is damaged and may have such leases, or cannot be updated.
pub(super) async fn release_of(
    store: &impl Store,
    pool: Pool,
    gone: impl Fn(&Lease) -> bool,
    mentions: impl Fn(&Damage) -> bool,
) -> Result<usize, Failure> {
    let (name, mut current, mut pause) = (pool.name.clone(), Some(pool), PAUSE);
    for _ in 0..ATTEMPTS {
        let Some(mut pool) = current else {
            return Ok(0);
        };
        if pool.damage.as_ref().is_some_and(|damage| !mentions(damage)) {
            return Ok(0);
        }
        pool.check()?;
        let before = pool.leases.len();
        pool.leases.retain(|_, lease| !gone(lease));
        let released = before - pool.leases.len();
        if released == 0 || store.put(&pool).await? {
            return Ok(released);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
        current = store.get(&name).await?;
    }
    Err(format!("pool {name} is written by others all the time").into())
}
