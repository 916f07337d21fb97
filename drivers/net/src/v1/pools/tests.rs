use std::collections::BTreeSet;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::*;

fn pool(spec: Value) -> Pool {
    Pool {
        name: "p".to_owned(),
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

/// Checks the addresses that a pool allocates until it is exhausted; `Err` is the message before that.
fn check(spec: Value, expected: Result<&[&str], &str>) {
    let mut pool = pool(spec);
    let mut given = Vec::new();
    loop {
        match pool.free() {
            Ok(address) => {
                pool.leases.insert(address, owner(&given.len().to_string()));
                given.push(address.to_string());
            }
            Err(error) => {
                match expected {
                    Ok(expected) => {
                        assert_eq!(given, expected);
                        assert_eq!(error, "pool p has no free address");
                    }
                    Err(expected) => assert_eq!(error, expected),
                }
                return;
            }
        }
        assert!(given.len() < 100, "{given:?}");
    }
}

#[test]
fn addresses_are_given_in_order_and_never_the_reserved_ones() {
    check(
        json!({"subnet": "10.0.0.0/29", "ips": ["10.0.0.0-10.0.0.7"], "excludeIPs": ["10.0.0.2-10.0.0.4"],
            "gateway": "10.0.0.1"}),
        Ok(&["10.0.0.5", "10.0.0.6"]),
    );
    check(
        json!({"subnet": "10.0.0.0/31", "ips": ["10.0.0.0-10.0.0.1"]}),
        Ok(&["10.0.0.0", "10.0.0.1"]),
    );
    check(
        json!({"subnet": "fd00::/64", "ips": ["fd00::", "fd00::ff"]}),
        Ok(&["fd00::ff"]),
    );
    check(
        json!({"subnet": "0.0.0.0/0", "ips": ["255.255.255.254-255.255.255.255"]}),
        Ok(&["255.255.255.254"]),
    );
    check(json!({"subnet": "10.0.0.0/24"}), Ok(&[]));
    // A range that excludes nearly everything is skipped in one step.
    check(
        json!({"subnet": "fd00::/64", "ips": ["fd00::1-fd00::ffff:ffff:ffff:ffff"],
            "excludeIPs": ["fd00::1-fd00::ffff:ffff:ffff:fffe"]}),
        Ok(&["fd00::ffff:ffff:ffff:ffff"]),
    );
}

#[test]
fn a_pool_that_can_not_be_read_gives_nothing() {
    let bad = "pool p: \"10.0.0.9-10.0.0.2\" is no address and no range such as 10.0.0.2-10.0.0.9";
    check(
        json!({"subnet": "10.0.0.0/24", "ips": ["10.0.0.9-10.0.0.2"]}),
        Err(bad),
    );
    check(
        json!({"subnet": "10.0.0.0/24", "ips": ["10.0.1.1"]}),
        Err("pool p: 10.0.1.1 is not in 10.0.0.0/24"),
    );
    check(
        json!({"subnet": "nonsense", "ips": ["10.0.1.1"]}),
        Err("pool p: bad subnet \"nonsense\""),
    );
    let pool = pool(json!({"subnet": "10.0.0.0/24", "ips": ["10.0.0.1"], "excludeIPs": ["x"]}));
    assert!(pool.covers([10, 0, 0, 1].into()).is_err());
}

#[test]
fn entries_of_others_keep_their_fields() {
    let text = json!({"interface": "eth0", "pod": "ns/p", "podUid": "u"});
    let lease: Lease = serde_json::from_value(text.clone()).expect("a lease");
    assert_eq!(serde_json::to_value(lease).expect("JSON"), text);
}

/// Pools in memory, with simulated crashes before or after each update.
struct Memory {
    pools: Mutex<BTreeMap<String, (u64, Pool)>>,
    random: Mutex<StdRng>,
    /// One in this many calls fails.
    trouble: u32,
}

impl Memory {
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

    async fn serves(&self, user: &User, _: &Pool) -> Result<(), Failure> {
        match user.namespace.as_str() {
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

/// Claims come and go on nodes whose driver crashes at any step; an allocated address is in use until it is released.
#[tokio::test(start_paused = true)]
async fn no_address_is_given_twice_over_crashes() {
    for seed in 0..200 {
        let four = pool(
            json!({"subnet": "10.0.0.0/28", "ips": ["10.0.0.1-10.0.0.12"], "excludeIPs": ["10.0.0.5"]}),
        );
        let mut store = Memory {
            pools: Mutex::new(BTreeMap::from([("p".to_owned(), (1, four))])),
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            trouble: 4,
        };
        let mut random = StdRng::seed_from_u64(seed ^ 0x5eed);
        let mut used: BTreeMap<String, IpAddr> = BTreeMap::new();
        let mut begun: BTreeSet<String> = BTreeSet::new();
        for _ in 0..60 {
            let uid = format!("claim-{}", random.random_range(0..14));
            if random.random_ratio(3, 5) {
                begun.insert(uid.clone());
                let user = User::default();
                let Ok(given) = lease(&store, "p", &owner(&uid), None, &user).await else {
                    continue;
                };
                let given = given.addr();
                let before = used.insert(uid.clone(), given);
                assert!(
                    before.is_none_or(|it| it == given),
                    "seed {seed}: {uid} had {before:?}"
                );
                let holders = used.values().filter(|it| **it == given).count();
                assert_eq!(holders, 1, "seed {seed}: {given} twice, {used:?}");
            } else {
                // The interface is gone before its address is released.
                used.remove(&uid);
                if release(&store, |lease| lease.claim_uid == uid)
                    .await
                    .is_ok()
                {
                    begun.remove(&uid);
                }
            }
        }
        store.trouble = 0;
        for uid in &begun {
            release(&store, |lease| lease.claim_uid == *uid)
                .await
                .expect("given back");
        }
        let left = store
            .get("p")
            .await
            .expect("an answer")
            .expect("a pool")
            .leases;
        assert!(left.is_empty(), "seed {seed}: {left:?}");
    }
}

#[tokio::test]
async fn a_wanted_address_is_one_of_the_pool_too() {
    let four = pool(json!({"subnet": "10.0.0.0/24", "ips": ["10.0.0.1-10.0.0.2"]}));
    let store = Memory {
        pools: Mutex::new(BTreeMap::from([("p".to_owned(), (1, four))])),
        random: Mutex::new(StdRng::seed_from_u64(0)),
        trouble: 0,
    };
    let wanted: IpAddr = [10, 0, 0, 1].into();
    let lease_for =
        async |uid: &str, wanted| lease(&store, "p", &owner(uid), wanted, &User::default()).await;
    let network = lease_for("a", Some(wanted)).await.expect("given");
    assert_eq!(network.to_string(), "10.0.0.1/24");
    assert_eq!(
        lease_for("a", Some(wanted)).await.expect("the same"),
        network
    );
    let refused = lease_for("b", Some(wanted)).await.expect_err("refused");
    assert_eq!(
        refused.to_string(),
        "10.0.0.1 of pool p belongs to another claim"
    );
    let next = lease_for("b", None).await.expect("another one");
    assert_eq!(next.addr().to_string(), "10.0.0.2");
    let stranger = User {
        namespace: "other".to_owned(),
        ..User::default()
    };
    let third = owner("c");
    let denied = lease(&store, "p", &third, None, &stranger);
    assert_eq!(
        denied.await.expect_err("denied").to_string(),
        "is for other namespaces"
    );
}
