//! Tests with real network namespaces for a node and its pods. They need root; otherwise they report that they are skipped.

use ipnet::IpNet;
use serde_json::json;

use super::super::harness::{Node, Space, names, on_node};
use super::super::release::restore;
use super::*;

/// Restores what a claim moved, which nothing else holds.
fn release(node: &Node, planned: &Planned, uid: &str) -> Result<(), allot_driver::Failure> {
    restore(planned, uid, &node.plans(), std::slice::from_ref(planned))
}

/// The first step alone, as if the hook was killed after it.
fn begin(node: &mut Node, planned: &Planned, uid: &str, pod: &Space) -> Result<(), String> {
    let links = node.netlink.links().expect("links");
    let parent = planned
        .identity
        .find(&links)
        .expect("one")
        .expect("the parent");
    create_or_move(&mut node.netlink, planned, uid, parent, &pod.file())
}

#[test]
fn a_macvlan_interface_is_made_in_the_pod() {
    on_node(|node| {
        let parameters = json!({"mode": "macvlan", "mtu": 1400, "interfaceName": "data0",
            "routes": [{"destination": "10.20.0.0/16", "gateway": "10.9.0.1"}, {"destination": "0.0.0.0/0"}]});
        let planned = node.plan("u1", parameters, &["10.9.0.7/24", "fd00::7/64"]);
        let pod = Space::new().expect("a namespace");
        let outcome = node.attach("u1", &planned, &pod).expect("attached");
        assert_eq!(outcome.interface_name, "data0");
        assert_eq!(outcome.hardware_address, mac_text(&planned.mac("u1")));
        assert_eq!(outcome.ips, ["10.9.0.7/24", "fd00::7/64"]);
        let mut inside = pod.netlink();
        let link = inside.link("data0").expect("a link");
        assert_eq!(link.kind.as_deref(), Some("macvlan"));
        assert_eq!(link.mtu, 1400);
        assert!(link.up && inside.link("lo").expect("loopback").up);
        let routes = inside.routes().expect("routes");
        let leads = |destination: Option<IpNet>| {
            let mut all = routes.iter();
            all.any(|it| (it.link, it.destination) == (link.index, destination))
        };
        let inner = "10.20.0.0/16".parse().expect("a network");
        assert!(leads(Some(inner)) && leads(None), "{routes:?}");
        // The hook for another container of the pod.
        let again = node.attach("u1", &planned, &pod).expect("still attached");
        assert_eq!(again, outcome, "the outcome keeps its time");
        assert_eq!(names(&mut inside), ["data0"]);
        // No interface was created on the node.
        assert_eq!(names(&mut node.netlink), ["switch0", "wire0"]);
        release(node, &planned, "u1").expect("nothing to restore");
    });
}

/// The claim was `Attached`, and its route was not there.
#[test]
fn regression_a_route_that_the_pod_has_otherwise_is_an_error() {
    on_node(|node| {
        let pod = Space::new().expect("a namespace");
        let mut inside = pod.netlink();
        // The network of the pod.
        inside.make_pair("eth0", "eth1").expect("made");
        let network = inside.link("eth0").expect("a link").index;
        inside.set_up(network, true).expect("up");
        let default = "0.0.0.0/0".parse::<IpNet>().expect("a network");
        inside.add_route(network, default, None).expect("added");
        let parameters = json!({"mode": "macvlan", "interfaceName": "data0",
            "routes": [{"destination": "0.0.0.0/0", "gateway": "10.9.0.1"}]});
        let planned = node.plan("u1", parameters, &["10.9.0.7/24"]);
        let error = node.attach("u1", &planned, &pod).expect_err("refused");
        assert_eq!(error, "route to 0.0.0.0/0: the pod has another one already");
        // One of the other family is no obstacle, nor is what the pod does when it has its interface.
        let parameters = json!({"mode": "macvlan", "interfaceName": "data1",
            "routes": [{"destination": "::/0", "gateway": "fd00::1"}, {"destination": "10.20.0.0/16", "gateway": "10.9.0.1"}]});
        let planned = node.plan("u2", parameters, &["10.9.0.8/24", "fd00::7/64"]);
        let outcome = node.attach("u2", &planned, &pod).expect("attached");
        let data = inside.link("data1").expect("a link").index;
        inside.set_up(data, false).expect("down");
        let changed = "10.20.0.0/16".parse::<IpNet>().expect("a network");
        inside.add_route(network, changed, None).expect("added");
        assert_eq!(node.attach("u2", &planned, &pod).expect("still"), outcome);
    });
}

#[test]
fn an_interface_that_was_begun_is_completed() {
    on_node(|node| {
        // Number of steps completed before the hook is killed: create, record, rename, add addresses.
        for steps in 0..5 {
            let uid = format!("u{steps}");
            let planned = node.plan(&uid, json!({"mode": "macvlan"}), &["10.9.0.8/24"]);
            let pod = Space::new().expect("a namespace");
            let mut inside = pod.netlink();
            if steps > 0 {
                begin(node, &planned, &uid, &pod).expect("made");
            }
            if let Some(link) = inside.link(&planned.interim_name(&uid)) {
                if steps > 1 {
                    let location = Location {
                        namespace: Namespace::of(&pod.file()).expect("a namespace"),
                        index: Some(link.index),
                    };
                    let plans = node.plans();
                    plans
                        .write_location(&uid, &planned.key, &location)
                        .expect("recorded");
                }
                if steps > 2 {
                    inside.rename(link.index, "net1").expect("renamed");
                }
                if steps > 3 {
                    inside
                        .add_address(link.index, &planned.addresses[0].into())
                        .expect("added");
                }
            }
            let outcome = node.attach(&uid, &planned, &pod).expect("attached");
            assert_eq!(outcome.interface_name, "net1", "{steps}");
            assert_eq!(outcome.ips, ["10.9.0.8/24"], "{steps}");
            assert_eq!(names(&mut inside), ["net1"], "{steps}");
        }
        assert_eq!(names(&mut node.netlink), ["switch0", "wire0"]);
    });
}

#[test]
fn two_pods_never_have_one_interface() {
    on_node(|node| {
        let planned = node.plan("u1", json!({"mode": "macvlan"}), &["10.9.0.9/24"]);
        let (first, second) = (
            Space::new().expect("a namespace"),
            Space::new().expect("another"),
        );
        node.attach("u1", &planned, &first).expect("attached");
        let refused = node.attach("u1", &planned, &second).expect_err("refused");
        assert!(
            refused.contains("another pod has this interface"),
            "{refused}"
        );
        let said = node.plans().outcome("u1", &planned.key).expect("read");
        assert_eq!(said.expect("an outcome").error, Some(refused));
        // The first pod's next container finds it as before.
        node.attach("u1", &planned, &first).expect("still attached");
        // Another claim can use the same parent.
        let other = node.plan("u2", json!({"mode": "macvlan"}), &[]);
        node.attach("u2", &other, &second).expect("attached");
    });
}

#[test]
fn regression_a_pod_can_not_give_its_interface_to_another_claim() {
    on_node(|node| {
        let first = node.plan("u1", json!({"mode": "macvlan"}), &["10.9.0.8/24"]);
        let pod = Space::new().expect("a namespace");
        node.attach("u1", &first, &pod).expect("attached");
        let mut inside = pod.netlink();
        // The pod's own interface takes everything that a hook could look for, and its claim's interface loses it.
        inside.make_pair("own0", "own1").expect("made");
        let (ours, own) = (
            inside.link("net1").expect("a link"),
            inside.link("own0").expect("a link"),
        );
        inside.set_up(ours.index, false).expect("down");
        inside
            .set_mac(ours.index, vec![2, 6, 6, 6, 6, 6])
            .expect("changed");
        inside
            .set_mac(own.index, ours.mac.clone())
            .expect("changed");
        inside.rename(ours.index, "hidden0").expect("renamed");
        inside
            .rename(own.index, &first.interim_name("u1"))
            .expect("renamed");
        inside
            .set_alias(own.index, "net.allot.dev u1 wire0 wire0")
            .expect("marked");
        let outcome = node.attach("u1", &first, &pod).expect("completed");
        assert_eq!(outcome.interface_name, "hidden0");
        let own = inside.link(&first.interim_name("u1")).expect("a link");
        let addresses = inside.addresses().expect("addresses");
        assert!(
            addresses.iter().all(|it| it.link != own.index),
            "{addresses:?}"
        );
    });
}

#[test]
fn what_must_not_be_attached_is_refused() {
    on_node(|node| {
        let planned = node.plan("u1", json!({"mode": "macvlan"}), &[]);
        let plans = node.plans();
        let pod = Space::new().expect("a namespace");
        let check = |state: &str, device: &str, expected: &str| {
            let refused = attach(&plans.file("u1"), device, state.as_bytes()).expect_err(expected);
            assert!(refused.contains(expected), "{refused}, not {expected}");
        };
        check("{}", &planned.key, "missing field `pid`");
        check("nonsense", &planned.key, "state on standard input");
        check(r#"{"pid": 0}"#, &planned.key, "has no process");
        check(r#"{"pid": -1}"#, &planned.key, "has no process");
        check(&pod.state(), "eth7", "claim ns/u1 has no device eth7");
        // A container in the host network.
        let here = rustix::thread::gettid().as_raw_nonzero();
        check(
            &json!({"pid": here.get()}).to_string(),
            &planned.key,
            "in the network of the node",
        );
        assert_eq!(names(&mut node.netlink), ["switch0", "wire0"]);
        // Another interface now has the name, and the hardware address.
        let wire = node.netlink.link("wire0").expect("a link");
        node.netlink.set_up(wire.index, false).expect("down");
        node.netlink.rename(wire.index, "old0").expect("renamed");
        node.netlink.make_pair("wire0", "switch9").expect("made");
        let fake = node.index("wire0");
        node.netlink
            .set_mac(fake, wire.mac.clone())
            .expect("changed");
        let links = node.netlink.links().expect("links");
        let found = planned.identity.find(&links).expect("one").expect("found");
        assert_eq!(found.name, "old0");
        node.netlink.rename(fake, "fake0").expect("renamed");
        node.netlink.rename(wire.index, "wire0").expect("renamed");
        node.netlink.set_up(wire.index, true).expect("up");
        // The name is already in use in the pod.
        let first = node.plan("u2", json!({"mode": "macvlan", "interfaceName": "x"}), &[]);
        let second = node.plan("u3", json!({"mode": "macvlan", "interfaceName": "x"}), &[]);
        node.attach("u2", &first, &pod).expect("attached");
        let refused = node.attach("u3", &second, &pod).expect_err("taken");
        assert_eq!(refused, "the pod has an interface x already");
        // The claim was unprepared.
        node.plans().begin_release("u2").expect("begun");
        let gone = node.attach("u2", &first, &pod).expect_err("gone");
        assert!(gone.contains("u2.plan.json"), "{gone}");
    });
}
