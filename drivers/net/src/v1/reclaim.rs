//! Releases addresses that no driver will release: those of claims that were prepared on a node that is gone.
//!
//! An address is released only if all of this holds, for [`GRACE`], and again at the time of the release:
//! - the entry names a claim and a node, so it is this driver's and not that of another IPAM implementation;
//! - the Node object does not exist. As for the pods of a StatefulSet, its deletion means that the machine is off, or at
//!   least that none of its containers runs; while it exists, its own driver releases the address;
//! - the claim does not exist, by its UID. A claim that exists may be prepared on another node with the same address.
//!
//! Every driver does this, so that no node is special: the update carries the resource version of the pool that was read, and
//! a second release of an address has no effect.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use allot_driver::Failure;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, Client, ResourceExt};
use tokio::time::Instant;

use super::pools::{Lease, Store, release_of};

/// Time between rounds. Drivers begin at different times.
const INTERVAL: Duration = Duration::from_secs(10 * 60);
/// How long an address must be an orphan: a node that is registered again and a driver that releases its claims have time.
const GRACE: Duration = Duration::from_secs(15 * 60);
/// Maximum number of claims that are looked up in one round.
const CLAIMS: usize = 500;

/// What exists in the cluster, by requests to the API server and not by a cache.
pub(super) trait Cluster: Send + Sync {
    /// Whether there is a Node with this name.
    fn has_node(&self, name: &str) -> impl Future<Output = Result<bool, Failure>> + Send;
    /// Whether there is a claim, `NAMESPACE/NAME`, with this UID.
    fn has_claim(
        &self,
        name: &str,
        uid: &str,
    ) -> impl Future<Output = Result<bool, Failure>> + Send;
}

impl Cluster for Client {
    async fn has_node(&self, name: &str) -> Result<bool, Failure> {
        let nodes = Api::<Node>::all(self.clone());
        Ok(nodes.get_metadata_opt(name).await?.is_some())
    }

    async fn has_claim(&self, name: &str, uid: &str) -> Result<bool, Failure> {
        let Some((namespace, name)) = name.split_once('/') else {
            // An entry that someone changed.
            return Ok(true);
        };
        let claims = Api::<ResourceClaim>::namespaced(self.clone(), namespace);
        let found = claims.get_metadata_opt(name).await?;
        Ok(found.is_some_and(|it| it.uid().as_deref() == Some(uid)))
    }
}

/// Pool, claim UID and device of an address.
type Key = (String, String, String);

fn key(pool: &str, lease: &Lease) -> Key {
    (
        pool.to_owned(),
        lease.claim_uid.clone(),
        lease.device.clone(),
    )
}

/// Looks for such addresses again and again. Never returns.
pub(super) async fn run(store: &impl Store, cluster: &impl Cluster, node: &str) {
    let mut orphans = Orphans::default();
    // Drivers that start together spread over the interval, by the names of their nodes.
    let spread = node.bytes().fold(7_u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    tokio::time::sleep(Duration::from_secs(spread % INTERVAL.as_secs())).await;
    loop {
        match orphans.round(store, cluster, node).await {
            Ok(0) => {}
            Ok(released) => tracing::info!(released, "released addresses of nodes that are gone"),
            Err(error) => {
                tracing::warn!(error, "can not look for addresses of nodes that are gone")
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Addresses of claims and nodes that are gone, with the time at which that was first seen.
#[derive(Default)]
pub(super) struct Orphans {
    since: BTreeMap<Key, Instant>,
}

impl Orphans {
    /// Looks at all pools once; returns how many addresses were released.
    async fn round(
        &mut self,
        store: &impl Store,
        cluster: &impl Cluster,
        own: &str,
    ) -> Result<usize, Failure> {
        let mut nodes = BTreeMap::from([(own.to_owned(), true)]);
        let (mut seen, mut released, mut claims) = (BTreeMap::new(), 0, 0);
        // A damaged pool has no readable entries: it is left alone.
        for pool in store.list().await? {
            let mut over = BTreeSet::new();
            for lease in pool.leases.values() {
                if lease.claim_uid.is_empty() || lease.claim.is_empty() || lease.node.is_empty() {
                    continue;
                }
                let exists = match nodes.get(&lease.node) {
                    Some(exists) => *exists,
                    None => {
                        let exists = cluster.has_node(&lease.node).await?;
                        nodes.insert(lease.node.clone(), exists);
                        exists
                    }
                };
                if exists || claims == CLAIMS {
                    continue;
                }
                claims += 1;
                if cluster.has_claim(&lease.claim, &lease.claim_uid).await? {
                    continue;
                }
                let key = key(&pool.name, lease);
                let since = self.since.get(&key).copied().unwrap_or_else(Instant::now);
                match since.elapsed() >= GRACE {
                    true => over.insert(key),
                    false => seen.insert(key, since).is_none(),
                };
            }
            if !over.is_empty() {
                let name = pool.name.clone();
                let is_over = |lease: &Lease| over.contains(&key(&name, lease));
                released += release_of(store, pool, is_over, |_| false).await?;
            }
        }
        self.since = seen;
        Ok(released)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::pools::Pool;
    use super::super::pools::memory::Memory;
    use super::*;

    /// Names of existing nodes, and UIDs of existing claims.
    struct Existing {
        nodes: Vec<&'static str>,
        claims: Vec<&'static str>,
    }

    impl Cluster for Existing {
        async fn has_node(&self, name: &str) -> Result<bool, Failure> {
            Ok(self.nodes.contains(&name))
        }

        async fn has_claim(&self, _: &str, uid: &str) -> Result<bool, Failure> {
            Ok(self.claims.contains(&uid))
        }
    }

    fn store() -> Memory {
        let mut pool = Pool {
            name: "p".to_owned(),
            spec: serde_json::from_value(json!({"subnet": "10.0.0.0/24"})).expect("a spec"),
            ..Pool::default()
        };
        for (last, uid, node) in [
            (2, "a", "lost"),
            (3, "b", "lost"),
            (4, "c", "here"),
            (5, "", "lost"),
        ] {
            let lease = Lease {
                claim: "ns/c".to_owned(),
                claim_uid: uid.to_owned(),
                node: node.to_owned(),
                ..Lease::default()
            };
            pool.leases.insert([10, 0, 0, last].into(), lease);
        }
        Memory::new(vec![pool])
    }

    async fn left(store: &Memory) -> Vec<String> {
        let pool = store.get("p").await.expect("an answer").expect("a pool");
        pool.leases
            .values()
            .map(|it| it.claim_uid.clone())
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_of_a_lost_node_are_released_when_their_claims_are_gone() {
        let (store, mut orphans) = (store(), Orphans::default());
        let cluster = Existing {
            nodes: vec!["here"],
            claims: vec!["b"],
        };
        assert_eq!(
            orphans
                .round(&store, &cluster, "here")
                .await
                .expect("a round"),
            0
        );
        tokio::time::advance(GRACE).await;
        assert_eq!(
            orphans
                .round(&store, &cluster, "here")
                .await
                .expect("a round"),
            1
        );
        // The claim that exists, that of a node that exists, and the entry of another IPAM implementation.
        assert_eq!(left(&store).await, ["b", "c", ""]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_comes_back_keeps_its_addresses() {
        let (store, mut orphans) = (store(), Orphans::default());
        let gone = Existing {
            nodes: vec![],
            claims: vec![],
        };
        let back = Existing {
            nodes: vec!["lost"],
            claims: vec![],
        };
        for _ in 0..3 {
            assert_eq!(
                orphans.round(&store, &gone, "here").await.expect("a round"),
                0
            );
            tokio::time::advance(GRACE).await;
            // The time starts again.
            assert_eq!(
                orphans.round(&store, &back, "here").await.expect("a round"),
                0
            );
        }
        assert_eq!(left(&store).await.len(), 4);
    }
}
