use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::super::memory::Memory;
use super::super::{Consumer, Lease, lease, release};
use super::*;

fn pool(name: &str, created: &str, ips: &str) -> Pool {
    let spec = json!({"subnet": "10.0.0.0/24", "ips": [ips], "excludeIPs": ["10.0.0.9"]});
    Pool {
        name: name.to_owned(),
        created: created.to_owned(),
        spec: serde_json::from_value(spec).expect("a spec"),
        ..Pool::default()
    }
}

fn owner(uid: &str) -> Lease {
    Lease {
        claim_uid: uid.to_owned(),
        device: "eth0".to_owned(),
        ..Lease::default()
    }
}

async fn given(store: &Memory, pool: &str, uid: &str) -> Result<String, String> {
    let given = lease(store, pool, &owner(uid), None, &Consumer::default()).await;
    given
        .map(|it| it.addr().to_string())
        .map_err(|it| it.to_string())
}

/// Two pools with overlapping ranges gave one address to two pods.
#[tokio::test]
async fn regression_of_overlapping_pools_the_second_is_refused() {
    let store = Memory::new(vec![
        pool("b", "2026-01-01T00:00:00Z", "10.0.0.2-10.0.0.5"),
        pool("a", "2026-01-02T00:00:00Z", "10.0.0.5-10.0.0.8"),
        // Only what neither excludes counts.
        pool("c", "2026-01-03T00:00:00Z", "10.0.0.9-10.0.0.12"),
    ]);
    assert_eq!(given(&store, "b", "u1").await, Ok("10.0.0.2".to_owned()));
    let refused = "pool a overlaps with pool b, which was created before it: both have 10.0.0.5; exclude it in one of them";
    assert_eq!(given(&store, "a", "u2").await, Err(refused.to_owned()));
    assert_eq!(given(&store, "c", "u3").await, Ok("10.0.0.10".to_owned()));
}

/// The older pool was changed when the other one had allocated addresses.
#[tokio::test]
async fn addresses_of_a_pool_that_came_to_overlap_are_not_allocated_again() {
    let mut young = pool("young", "2", "10.0.0.2-10.0.0.3");
    young.leases.insert([10, 0, 0, 2].into(), owner("u1"));
    let store = Memory::new(vec![pool("old", "1", "10.0.0.2-10.0.0.4"), young]);
    assert_eq!(given(&store, "old", "u2").await, Ok("10.0.0.3".to_owned()));
    let (third, user) = (owner("u3"), Consumer::default());
    let wanted = lease(&store, "old", &third, Some([10, 0, 0, 2].into()), &user);
    let refused = wanted.await.expect_err("allocated").to_string();
    assert_eq!(refused, "10.0.0.2 of pool old is allocated in pool young");
    // What the other pool has allocated stays with its claim.
    assert_eq!(
        given(&store, "young", "u1").await,
        Ok("10.0.0.2".to_owned())
    );
    release(&store, None, "u1", "").await.expect("released");
    assert_eq!(given(&store, "old", "u4").await, Ok("10.0.0.2".to_owned()));
}

/// Claims of both pools come and go while drivers are killed at any step and the ranges of the pools change.
#[tokio::test(start_paused = true)]
async fn no_address_is_given_by_two_pools_over_restarts() {
    for seed in 0..100 {
        let mut store = Memory::new(vec![
            pool("old", "1", "10.0.0.2-10.0.0.8"),
            pool("young", "2", "10.0.0.6-10.0.0.12"),
        ]);
        store.disturb(5, seed);
        let mut random = StdRng::seed_from_u64(seed ^ 0x5eed);
        let mut used: BTreeMap<String, String> = BTreeMap::new();
        for _ in 0..80 {
            let number = random.random_range(0..8_u8);
            let uid = format!("claim-{number}.");
            match random.random_range(0..8_u8) {
                0 => {
                    let last = random.random_range(4..10_u8);
                    store.set_ips("old", &format!("10.0.0.2-10.0.0.{last}"));
                }
                1..=4 => {
                    let name = if number < 4 { "old" } else { "young" };
                    if let Ok(address) = given(&store, name, &uid).await {
                        used.insert(uid, address);
                    }
                }
                _ => {
                    // The interface is gone before its address is released.
                    used.remove(&uid);
                    let _ = release(&store, None, &uid, "").await;
                }
            }
            let distinct: BTreeSet<&String> = used.values().collect();
            assert_eq!(distinct.len(), used.len(), "seed {seed}: {used:?}");
        }
    }
}
