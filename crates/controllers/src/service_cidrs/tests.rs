use super::*;
use serde_json::Value;

fn cidr(network: &str, deleted: Option<&str>) -> Arc<ServiceCIDR> {
    let object: Value = json!({
        "metadata": {"name": "range", "deletionTimestamp": deleted}, "spec": {"cidrs": [network, "fd00::/112"]},
    });
    Arc::new(serde_json::from_value(object).unwrap())
}

fn address(name: &str, manager: &str) -> Arc<IPAddress> {
    let object = json!({
        "metadata": {"name": name, "labels": {"ipaddress.kubernetes.io/managed-by": manager}},
        "spec": {"parentRef": {"resource": "services", "namespace": "n", "name": "s"}},
    });
    Arc::new(serde_json::from_value(object).unwrap())
}

#[test]
fn a_range_is_needed_while_an_address_is_in_it_alone() {
    const DELETED: Option<&str> = Some("2026-01-01T00:00:00Z");
    let gone = cidr("10.1.0.0/24", DELETED);
    let server = "ipallocator.k8s.io";
    let elsewhere = cidr("10.2.0.0/16", None);
    for (named, others, addresses, expected) in [
        ("unused", vec![], vec![], false),
        ("used", vec![], vec![address("10.1.0.9", server)], true),
        ("used, IPv6", vec![], vec![address("fd00::9", server)], true),
        ("outside", vec![], vec![address("10.1.1.9", server)], false),
        ("of a user", vec![], vec![address("10.1.0.9", "me")], false),
        (
            "in a wider range",
            vec![cidr("10.1.0.0/16", None)],
            vec![address("10.1.0.9", server)],
            false,
        ),
        (
            "in the same range again",
            vec![cidr("10.1.0.0/24", None)],
            vec![address("10.1.0.9", server)],
            false,
        ),
        (
            "in a wider range that goes as well",
            vec![cidr("10.0.0.0/8", DELETED)],
            vec![address("10.1.0.9", server)],
            true,
        ),
        (
            "beside another range",
            vec![elsewhere.clone()],
            vec![address("10.2.0.9", server)],
            false,
        ),
    ] {
        let mut all = others;
        all.push(gone.clone());
        assert_eq!(is_needed(&gone, &all, &addresses), expected, "{named}");
    }
}

#[test]
fn a_deleted_range_stays_until_all_servers_know() {
    let gone = cidr("10.1.0.0/24", Some("2026-01-01T00:00:00Z"));
    let left = |now: &str| grace_left(&gone, now.parse().unwrap()).as_secs();
    assert_eq!(left("2026-01-01T00:00:03Z"), 7);
    assert_eq!(left("2026-01-01T00:00:10Z"), 0);
    assert_eq!(left("2026-01-01T09:00:00Z"), 0);
}
