use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::memory::Memory;
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
        match pool.free(|_| false) {
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

/// The device of a claim whose address is static.
fn fixed(uid: &str, address: IpAddr) -> Lease {
    let mut lease = owner(uid);
    lease.device = format!("eth0 {address}");
    lease
}

/// Claims come and go on nodes whose driver crashes at any step, some of them with static addresses; an allocated address is
/// in use until it is released.
#[tokio::test(start_paused = true)]
async fn no_address_is_given_twice_and_no_reserved_one_over_crashes() {
    let reserved: Vec<IpAddr> = [0, 1, 5, 6, 15]
        .map(|last| [10, 0, 0, last].into())
        .to_vec();
    for seed in 0..200 {
        let four = pool(
            json!({"subnet": "10.0.0.0/28", "ips": ["10.0.0.0-10.0.0.12", "10.0.0.15"], "gateway": "10.0.0.1",
                "excludeIPs": ["10.0.0.5-10.0.0.6"]}),
        );
        let mut store = Memory::new(vec![four]);
        store.disturb(4, seed);
        let mut random = StdRng::seed_from_u64(seed ^ 0x5eed);
        let mut used: BTreeMap<String, IpAddr> = BTreeMap::new();
        let mut begun: BTreeSet<String> = BTreeSet::new();
        let names = BTreeSet::from(["p".to_owned()]);
        for _ in 0..60 {
            let number = random.random_range(0..14_u8);
            // Half of the claims have a static address, which a claim with a dynamic one may already have.
            let uid = format!("claim-{number}.");
            let wanted: Option<IpAddr> = (number % 2 == 0).then(|| [10, 0, 0, number + 1].into());
            if random.random_ratio(3, 5) {
                begun.insert(uid.clone());
                let user = Consumer::default();
                let of = wanted.map_or_else(|| owner(&uid), |wanted| fixed(&uid, wanted));
                let Ok(given) = lease(&store, "p", &of, wanted, &user).await else {
                    continue;
                };
                let given = given.addr();
                assert!(!reserved.contains(&given), "seed {seed}: {uid} has {given}");
                assert!(
                    wanted.is_none_or(|it| it == given),
                    "seed {seed}: {uid} has {given}"
                );
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
                if release(&store, Some(&names), &uid, "").await.is_ok() {
                    begun.remove(&uid);
                }
            }
        }
        store.disturb(0, seed);
        for uid in &begun {
            release(&store, None, uid, "").await.expect("released");
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
async fn regression_a_damaged_pool_does_not_keep_claims_from_being_released() {
    let mut good = pool(json!({"subnet": "10.0.0.0/24", "ips": ["10.0.0.2-10.0.0.9"]}));
    for (last, uid) in [(2, "uid-1"), (3, "uid-2")] {
        good.leases.insert([10, 0, 0, last].into(), owner(uid));
    }
    let mut damaged = pool(json!({"subnet": "10.0.1.0/24", "ips": ["10.0.1.2"]}));
    damaged.name = "damaged".to_owned();
    damaged.damage = Some(Damage {
        reason: "status.allocatedIPs: EOF while parsing".to_owned(),
        status: r#"{"10.0.1.2": {"claimUid": "uid-2""#.to_owned(),
    });
    let store = Memory::new(vec![good, damaged]);
    // By the plan, and without it: the damaged pool has nothing of the claim.
    let names = BTreeSet::from(["p".to_owned()]);
    release(&store, Some(&names), "uid-1", "")
        .await
        .expect("released");
    release(&store, None, "uid-1", "")
        .await
        .expect("twice is once");
    // Of this one it has: what can be released is, and the error says what is left.
    let refused = release(&store, None, "uid-2", "")
        .await
        .expect_err("unknown");
    let expected = "pool damaged can not be read: status.allocatedIPs: EOF while parsing";
    assert_eq!(refused.to_string(), expected);
    let left = store.get("p").await.expect("an answer").expect("a pool");
    assert!(left.leases.is_empty(), "{:?}", left.leases);
    // It gives nothing, and is not written.
    let user = Consumer::default();
    let refused = lease(&store, "damaged", &owner("c"), None, &user).await;
    assert_eq!(refused.expect_err("refused").to_string(), expected);
}

#[test]
fn regression_reserved_addresses_are_refused() {
    let lab = pool(
        json!({"subnet": "10.0.0.0/24", "ips": ["10.0.0.0-10.0.0.255"], "gateway": "10.0.0.1",
        "excludeIPs": ["10.0.0.7"]}),
    );
    let check = |address: &str, expected: Result<bool, &str>| {
        let covers = lab.covers(address.parse().expect("an address"));
        assert_eq!(covers, expected.map_err(str::to_owned), "{address}");
    };
    check("10.0.0.2", Ok(true));
    check("10.0.1.0", Ok(false));
    check("fd00::1", Ok(false));
    check("10.0.0.1", Err("10.0.0.1 is the gateway of pool p"));
    check("10.0.0.7", Err("10.0.0.7 is an excluded address of pool p"));
    check("10.0.0.0", Err("10.0.0.0 is the network address of pool p"));
    check(
        "10.0.0.255",
        Err("10.0.0.255 is the broadcast address of pool p"),
    );
}

#[tokio::test]
async fn regression_a_claim_that_moved_to_another_node_keeps_its_address_there() {
    let store = Memory::new(vec![pool(
        json!({"subnet": "10.0.0.0/24", "ips": ["10.0.0.2"]}),
    )]);
    for node in ["old", "new"] {
        let own = Lease {
            node: node.to_owned(),
            ..owner("a")
        };
        let network = lease(&store, "p", &own, None, &Consumer::default())
            .await
            .expect("given");
        assert_eq!(network.to_string(), "10.0.0.2/24");
        let stored = store.get("p").await.expect("an answer").expect("a pool");
        assert_eq!(stored.leases[&network.addr()].node, node);
    }
    // The old node, which was only unreachable, does not release what the new one uses.
    let left = async || {
        store
            .get("p")
            .await
            .expect("an answer")
            .expect("a pool")
            .leases
            .len()
    };
    release(&store, None, "a", "old")
        .await
        .expect("nothing to release");
    assert_eq!(left().await, 1);
    release(&store, None, "a", "new").await.expect("released");
    assert_eq!(left().await, 0);
}

#[tokio::test]
async fn a_wanted_address_is_one_of_the_pool_too() {
    let four = pool(json!({"subnet": "10.0.0.0/24", "ips": ["10.0.0.1-10.0.0.2"]}));
    let store = Memory::new(vec![four]);
    let wanted: IpAddr = [10, 0, 0, 1].into();
    let lease_for = async |uid: &str, wanted| {
        lease(&store, "p", &owner(uid), wanted, &Consumer::default()).await
    };
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
    let stranger = Consumer {
        namespace: "other".to_owned(),
        ..Consumer::default()
    };
    let third = owner("c");
    let denied = lease(&store, "p", &third, None, &stranger);
    assert_eq!(
        denied.await.expect_err("denied").to_string(),
        "is for other namespaces"
    );
}
