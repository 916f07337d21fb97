use serde_json::{Value, json};

use super::*;

/// The verdict of a node with `eth0=172.18.0.2/16`, of zone a, about a pod of namespace `team` with the label app=demo
/// that requests `macvlan-conf`, given changes to the network, and pools.
fn check_node(wanted: Value, network: Value, pools: &[Value], interfaces: &[&str], expected: &str) {
    let name = NetworkName::read("macvlan-conf", "kube-system");
    let mut config = json!({"cniType": "macvlan", "macvlan": {"master": ["eth0"]}});
    merge(&mut config, &network);
    let config = serde_json::from_value(config).expect("a network");
    let pools: Vec<IpPool> = pools
        .iter()
        .map(|pool| {
            let mut object = json!({
                "apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
                "metadata": {"name": "pool"},
                "spec": {
                    "subnet": "172.18.0.0/16", "ips": ["172.18.30.131-172.18.30.140"],
                    "multusName": ["kube-system/macvlan-conf"],
                },
            });
            merge(&mut object, pool);
            serde_json::from_value(object).expect("a pool")
        })
        .collect();
    let labels = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let asked: Vec<String> = serde_json::from_value(wanted["pools"].clone()).unwrap_or_default();
    let wanted = Wanted {
        networks: vec![(name, config)],
        pools: asked,
        rdma: wanted["rdma"] == true,
        namespace: "team".to_owned(),
        namespace_labels: labels("of", "team"),
        labels: labels("app", "demo"),
    };
    let node = Node {
        name: "node-0".to_owned(),
        labels: labels("zone", "a"),
        interfaces: Ok(interfaces
            .iter()
            .map(|i| i.parse().expect("an interface"))
            .collect()),
    };
    let found = check(&wanted, &pools, &node).err().unwrap_or_default();
    let found = found.replace("network kube-system/macvlan-conf: ", "");
    assert_eq!(found, expected);
}

fn merge(into: &mut Value, more: &Value) {
    match more {
        Value::Object(map) => map
            .iter()
            .for_each(|(k, v)| merge(&mut into[k.as_str()], v)),
        other => *into = other.clone(),
    }
}

const ETH0: &[&str] = &["eth0=172.18.0.2/16"];

#[test]
fn interfaces_have_to_be_there_and_up() {
    let none = json!({});
    check_node(none.clone(), none.clone(), &[], ETH0, "");
    check_node(
        none.clone(),
        none.clone(),
        &[],
        &["eth1"],
        "no interface eth0",
    );
    check_node(
        none.clone(),
        none.clone(),
        &[],
        &["eth0=down"],
        "interface eth0 is down",
    );
    let rdma = json!({"rdma": true});
    check_node(
        rdma.clone(),
        none.clone(),
        &[],
        ETH0,
        "interface eth0 has no RDMA",
    );
    check_node(rdma, none.clone(), &[], &["eth0=rdma"], "");
    let config = json!({"macvlan": {"enableRdma": true}});
    check_node(
        none.clone(),
        config,
        &[],
        ETH0,
        "interface eth0 has no RDMA",
    );
    let ovs = json!({"cniType": "ovs", "ovs": {"bridge": "br0"}});
    check_node(none.clone(), ovs, &[], ETH0, "no interface br0");
    let silent = Node {
        name: "silent".to_owned(),
        labels: LabelMap::new(),
        interfaces: Err("it has not reported its interfaces".to_owned()),
    };
    let wanted = Wanted {
        networks: vec![(NetworkName::read("n", "ns"), MultusConfigSpec::default())],
        ..Wanted::default()
    };
    assert_eq!(
        check(&wanted, &[], &silent).expect_err("unknown"),
        "it has not reported its interfaces"
    );
    assert_eq!(check(&Wanted::default(), &[], &silent), Ok(Vec::new()));
}

#[test]
fn a_pool_has_to_serve_pod_and_node() {
    let rejected = |pool: Value, why: &str| {
        let expected = if why.is_empty() {
            String::new()
        } else {
            format!("pool pool {why}")
        };
        check_node(json!({}), json!({}), &[pool], ETH0, &expected);
    };
    rejected(json!({}), "");
    rejected(json!({"spec": {"disable": true}}), "is disabled");
    rejected(
        json!({"spec": {"nodeName": ["node-1"]}}),
        "is for other nodes",
    );
    rejected(
        json!({"spec": {"nodeAffinity": {"matchLabels": {"zone": "b"}}}}),
        "is for other nodes",
    );
    rejected(
        json!({"spec": {"nodeName": ["node-0"], "nodeAffinity": {"matchLabels": {"zone": "b"}}}}),
        "",
    );
    rejected(
        json!({"spec": {"namespaceName": ["other"]}}),
        "is for other namespaces",
    );
    rejected(
        json!({"spec": {"podAffinity": {"matchLabels": {"app": "x"}}}}),
        "is for other pods",
    );
    rejected(json!({"status": {"allocatedIPCount": 9}}), "");
    rejected(
        json!({"status": {"allocatedIPCount": 10}}),
        "has no free address",
    );
    rejected(
        json!({"spec": {"excludeIPs": ["172.18.30.131-172.18.30.139"]}, "status": {"allocatedIPCount": 1}}),
        "has no free address",
    );
    rejected(
        json!({"spec": {"namespaceAffinity": {"matchLabels": {"of": "x"}}}}),
        "is for other namespaces",
    );
    rejected(
        json!({"spec": {"namespaceAffinity": {"matchLabels": {"of": "team"}}}}),
        "",
    );
    // Pools for other networks are ignored, unless they are named.
    let other = json!({"spec": {"multusName": ["kube-system/other"]}});
    rejected(other.clone(), "");
    let asked = json!({"pools": ["pool"]});
    check_node(
        asked.clone(),
        json!({}),
        &[other],
        ETH0,
        "pool pool is for other networks",
    );
    check_node(asked, json!({}), &[], ETH0, "there is no SpiderIPPool pool");
}

#[test]
fn the_subnet_of_a_pool_has_to_be_on_the_interface() {
    let elsewhere = &["eth0=10.0.0.2/24"];
    let why = "pool pool is of subnet 172.18.0.0/16, the interface is in 10.0.0.2/24";
    check_node(json!({}), json!({}), &[json!({})], elsewhere, why);
    // Each family needs one.
    let v6 = json!({"metadata": {"name": "v6"}, "spec": {"subnet": "fd00::/64", "ips": []}});
    let none = "pool v6 has no free address";
    check_node(json!({}), json!({}), &[json!({}), v6], ETH0, none);
    // One pool of a family is enough.
    let here = json!({"metadata": {"name": "here"}, "spec": {"subnet": "10.0.0.0/25"}});
    check_node(json!({}), json!({}), &[json!({}), here], elsewhere, "");
    // A VLAN is another network, and an interface without an address of the family is inconclusive.
    let vlan = json!({"macvlan": {"vlanID": 100}});
    check_node(json!({}), vlan, &[json!({})], elsewhere, "");
    check_node(json!({}), json!({}), &[json!({})], &["eth0=fd00::2/64"], "");
    check_node(json!({}), json!({}), &[json!({})], &["eth0"], "");
}

#[test]
fn regression_networks_of_one_pod_share_the_addresses_of_pools() {
    let demand = |network: &str, pools: &[(&str, u128)]| Demand {
        network: NetworkName::read(network, "ns"),
        pools: pools
            .iter()
            .map(|(name, free)| ((*name).to_owned(), *free))
            .collect(),
    };
    let (one, both) = ([("a", 1)], [("a", 1), ("b", 1)]);
    assert_eq!(together(&[]), Ok(()));
    // The first gives way to the second, which has no other pool.
    assert_eq!(together(&[demand("x", &both), demand("y", &one)]), Ok(()));
    assert_eq!(
        together(&[demand("x", &one), demand("y", &one)]).expect_err("one address"),
        "network ns/y: the pod's networks need more addresses than a has left"
    );
    let three = [demand("x", &both), demand("y", &one), demand("z", &both)];
    assert_eq!(
        together(&three).expect_err("two addresses"),
        "network ns/z: the pod's networks need more addresses than a and b have left"
    );
    assert_eq!(
        together(&[demand("x", &[("a", 2)]), demand("y", &[("a", 2)])]),
        Ok(())
    );
}
