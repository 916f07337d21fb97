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

use super::pools::{Lease, Pool, Store, release_of};

/// Time between rounds. Drivers begin at different times.
const INTERVAL: Duration = Duration::from_secs(10 * 60);
/// How long an address must be an orphan: a node that is registered again and a driver that releases its claims have time.
const GRACE: Duration = Duration::from_secs(15 * 60);
/// Maximum number of claims that are looked up in one round; the next round continues with the others.
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
    /// The claim after which the next round begins: those of one round are limited, and all have their turn.
    last: Option<ClaimKey>,
}

/// Namespace and name of a claim, and its UID.
type ClaimKey = (String, String);

impl Orphans {
    /// Looks at all pools once; returns how many addresses were released.
    async fn round(
        &mut self,
        store: &impl Store,
        cluster: &impl Cluster,
        own: &str,
    ) -> Result<usize, Failure> {
        // A damaged pool has no readable entries: it is left alone.
        let pools = store.list().await?;
        let all = pools.iter();
        let all = all.flat_map(|pool| pool.leases.values().map(move |lease| (pool, lease)));
        let is_ours = |lease: &Lease| {
            !lease.claim_uid.is_empty() && !lease.claim.is_empty() && !lease.node.is_empty()
        };
        let mut lost: Vec<(&Pool, &Lease)> = all.filter(|(_, lease)| is_ours(lease)).collect();
        let mut nodes = BTreeMap::from([(own.to_owned(), true)]);
        for (_, lease) in &lost {
            if !nodes.contains_key(&lease.node) {
                let exists = cluster.has_node(&lease.node).await?;
                nodes.insert(lease.node.clone(), exists);
            }
        }
        lost.retain(|(_, lease)| nodes.get(&lease.node) == Some(&false));
        let claims = lost.iter().map(|(_, lease)| claim_of(lease)).collect();
        let claims = self.look_up(claims, cluster).await?;
        let (mut since, mut over) = (BTreeMap::new(), BTreeSet::new());
        for (pool, lease) in lost {
            let key = key(&pool.name, lease);
            let first = self.since.get(&key).copied();
            match claims.get(&claim_of(lease)) {
                Some(true) => {}
                Some(false) if first.is_some_and(|first| first.elapsed() >= GRACE) => {
                    over.insert(key);
                }
                Some(false) => {
                    since.insert(key, first.unwrap_or_else(Instant::now));
                }
                // It was not looked up in this round.
                None => since.extend(first.map(|first| (key, first))),
            }
        }
        self.since = since;
        let mut released = 0;
        for pool in pools {
            let name = pool.name.clone();
            let is_over = |lease: &Lease| over.contains(&key(&name, lease));
            if pool.leases.values().any(is_over) {
                released += release_of(store, pool, is_over, |_| false).await?;
            }
        }
        Ok(released)
    }

    /// Which claims exist, as far as they are looked up in this round.
    async fn look_up(
        &mut self,
        all: BTreeSet<ClaimKey>,
        cluster: &impl Cluster,
    ) -> Result<BTreeMap<ClaimKey, bool>, Failure> {
        let is_later = |claim: &&ClaimKey| self.last.as_ref().is_none_or(|last| *claim > last);
        let (later, earlier): (Vec<&ClaimKey>, Vec<&ClaimKey>) = all.iter().partition(is_later);
        let mut found = BTreeMap::new();
        for claim in later.into_iter().chain(earlier).take(CLAIMS) {
            let exists = cluster.has_claim(&claim.0, &claim.1).await?;
            found.insert(claim.clone(), exists);
            self.last = Some(claim.clone());
        }
        Ok(found)
    }
}

fn claim_of(lease: &Lease) -> ClaimKey {
    (lease.claim.clone(), lease.claim_uid.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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

    /// Claims that exist used up the look-ups of every round, and a claim with several addresses several of them.
    #[tokio::test(start_paused = true)]
    async fn regression_every_claim_is_looked_up_at_last() {
        struct Counted(std::sync::atomic::AtomicUsize);
        impl Cluster for Counted {
            async fn has_node(&self, _: &str) -> Result<bool, Failure> {
                Ok(false)
            }

            async fn has_claim(&self, _: &str, uid: &str) -> Result<bool, Failure> {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Ok(uid != "z")
            }
        }
        let mut pool = Pool {
            name: "p".to_owned(),
            spec: serde_json::from_value(json!({"subnet": "10.0.0.0/16"})).expect("a spec"),
            ..Pool::default()
        };
        for number in 0..=u16::try_from(2 * CLAIMS).expect("a number") {
            let [high, low] = number.to_be_bytes();
            // Two addresses of each claim; the last one is gone.
            let uid = match usize::from(number) == 2 * CLAIMS {
                true => "z".to_owned(),
                false => format!("a{:04}", number / 2),
            };
            let lease = Lease {
                claim: format!("ns/{uid}"),
                claim_uid: uid,
                device: number.to_string(),
                node: "lost".to_owned(),
                ..Lease::default()
            };
            pool.leases.insert([10, 0, high, low].into(), lease);
        }
        let (store, mut orphans) = (Memory::new(vec![pool]), Orphans::default());
        let cluster = Counted(0.into());
        let mut rounds = Vec::new();
        for _ in 0..4 {
            rounds.push(
                orphans
                    .round(&store, &cluster, "here")
                    .await
                    .expect("a round"),
            );
            tokio::time::advance(GRACE).await;
        }
        // The first round looks at the others only.
        assert_eq!(rounds, [0, 0, 1, 0]);
        let looked_up = cluster.0.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(looked_up, 4 * CLAIMS);
        assert!(!left(&store).await.contains(&"z".to_owned()));
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
