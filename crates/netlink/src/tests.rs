//! Real network namespaces. They need root; otherwise a line says that a test is skipped.

use std::time::Duration;

use super::*;

/// Runs a test on a thread in a network namespace of its own, which has a pair of links `wire0` and `switch0`. The second
/// argument of the test is the file of another namespace.
fn on_node(test: impl FnOnce(Netlink, File) + Send + 'static) {
    let thread = std::thread::spawn(|| {
        let (Ok(pod), Ok(_)) = (new_namespace(), new_namespace()) else {
            eprintln!("skipped: network namespaces are not permitted here");
            return;
        };
        let mut node = Netlink::here().expect("a socket");
        node.make_pair("wire0", "switch0").expect("a pair");
        test(node, pod);
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Has this thread enter a new network namespace, and opens the file of it.
fn new_namespace() -> io::Result<File> {
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    // SAFETY: the flag concerns the network of this thread alone, and no memory or descriptors.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    File::open("/proc/thread-self/ns/net")
}

fn index(netlink: &mut Netlink, name: &str) -> u32 {
    netlink.link(name).expect("a link").index
}

#[test]
fn links_are_listed_and_changed() {
    on_node(|mut node, _| {
        let lo = node.link("lo").expect("a link");
        assert!(lo.is_loopback && !lo.up, "{lo:?}");
        let wire = node.link("wire0").expect("a link");
        let switch = node.link("switch0").expect("a link");
        assert_eq!(wire.kind.as_deref(), Some("veth"));
        assert_eq!(wire.lower, Some(switch.index));
        assert!(!wire.is_loopback && !wire.lower_is_elsewhere && wire.mac.len() == 6);
        node.set_mtu(wire.index, 1400).expect("set");
        node.set_alias(wire.index, "rack 7").expect("set");
        node.set_mac(wire.index, vec![2, 0, 0, 0, 0, 7])
            .expect("set");
        node.set_alternative_name(wire.index, "seventh", true)
            .expect("set");
        node.rename(wire.index, "data0").expect("renamed");
        node.set_up(wire.index, true).expect("up");
        let changed = node.link("data0").expect("a link");
        assert_eq!(changed.index, wire.index);
        assert_eq!(
            (changed.mtu, &*changed.alias, changed.up),
            (1400, "rack 7", true)
        );
        assert_eq!(mac_text(&changed.mac), "02:00:00:00:00:07");
        assert_eq!(changed.alternative_names, ["seventh"]);
        let taken = node.rename(switch.index, "data0");
        let taken = taken.expect_err("the name of another link");
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        let missing = node.set_up(9999, true).expect_err("no such link");
        assert_eq!(missing.raw_os_error(), Some(19), "ENODEV: {missing}");
    });
}

#[test]
fn a_link_is_moved_under_a_name() {
    on_node(|mut node, pod| {
        let wire = node.link("wire0").expect("a link");
        node.move_to(wire.index, "net1", &pod).expect("moved");
        assert!(node.link("wire0").is_none());
        let mut inside = Netlink::inside(&pod).expect("a socket");
        let moved = inside.link("net1").expect("a link");
        assert!(moved.lower_is_elsewhere && !moved.up, "{moved:?}");
        assert_eq!(moved.mac, wire.mac);
        // The thread that opened the socket there has ended; this one is where it was.
        assert!(Netlink::here().expect("a socket").link("switch0").is_some());
    });
}

#[test]
fn links_are_made_in_another_namespace() {
    on_node(|mut node, pod| {
        let wire = index(&mut node, "wire0");
        let kind = Kind::MacVlan(MacVlanMode::Bridge, [2, 0, 0, 0, 0, 9]);
        match node.make("data0", wire, &kind, &pod) {
            Err(error) if error.raw_os_error() == Some(95) => {
                eprintln!("skipped: the kernel has no macvlan");
            }
            made => {
                made.expect("made");
                let mut inside = Netlink::inside(&pod).expect("a socket");
                let made = inside.link("data0").expect("a link");
                assert_eq!(made.kind.as_deref(), Some("macvlan"));
                assert_eq!(mac_text(&made.mac), "02:00:00:00:00:09");
            }
        }
    });
}

fn net(text: &str) -> Address {
    let net: ipnet::IpNet = text.parse().expect("an address");
    net.into()
}

#[test]
fn addresses_are_added_once() {
    on_node(|mut node, _| {
        let wire = index(&mut node, "wire0");
        let peer = Address {
            peer: Some("198.51.100.2".parse().expect("an address")),
            ..net("198.51.100.1/32")
        };
        let all = [net("192.0.2.7/24"), peer, net("2001:db8::7/64")];
        for address in all.iter().chain(&all) {
            node.add_address(wire, address).expect("added");
        }
        let found = node.addresses().expect("addresses");
        let of_wire = found.into_iter().filter(|it| it.link == wire);
        let of_wire: Vec<_> = of_wire.map(|it| (it.is_permanent, it.address)).collect();
        assert_eq!(of_wire.len(), all.len(), "{of_wire:?}");
        for address in all {
            assert!(of_wire.contains(&(true, address)), "{of_wire:?}");
        }
    });
}

#[test]
fn addresses_are_recorded_as_before() {
    let text = r#"{"local":"198.51.100.1","peer":"198.51.100.2","prefix":32}"#;
    let address: Address = serde_json::from_str(text).expect("an address");
    assert_eq!(serde_json::to_string(&address).expect("text"), text);
    let network = address.network().expect("a network");
    assert_eq!(network.to_string(), "198.51.100.1/32");
    let wide = Address {
        prefix: 64,
        ..address
    };
    assert_eq!(wide.network(), None);
}

#[test]
fn routes_are_added_once() {
    on_node(|mut node, _| {
        let [wire, switch] = ["wire0", "switch0"].map(|name| index(&mut node, name));
        for link in [wire, switch] {
            node.set_up(link, true).expect("up");
        }
        let inner: ipnet::IpNet = "10.20.0.0/16".parse().expect("a network");
        for _ in 0..2 {
            node.add_route(wire, inner, None).expect("added");
        }
        let other = node.add_route(switch, inner, None);
        let other = other.expect_err("another route");
        assert_eq!(other.kind(), io::ErrorKind::AlreadyExists);
        let routes = node.routes().expect("routes");
        let found = routes.iter().filter(|it| it.destination == Some(inner));
        assert_eq!(found.map(|it| it.link).collect::<Vec<_>>(), [wire]);
        assert_eq!(node.uplinks().expect("uplinks"), []);
    });
}

#[test]
fn regression_links_of_a_default_route_with_several_next_hops_are_uplinks() {
    on_node(|mut node, _| {
        let [wire, switch] = ["wire0", "switch0"].map(|name| index(&mut node, name));
        for link in [wire, switch] {
            node.set_up(link, true).expect("up");
        }
        node.add_default_over(&[wire, switch], 254).expect("added");
        let uplink = |link, is_main| Uplink { link, is_main };
        let main = [uplink(wire, true), uplink(switch, true)];
        assert_eq!(node.uplinks().expect("uplinks"), main);
        node.add_default_over(&[switch], 100).expect("added");
        let all = node.uplinks().expect("uplinks");
        assert!(all.contains(&uplink(switch, false)), "{all:?}");
    });
}

#[test]
fn a_change_is_reported() {
    on_node(|mut node, _| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        runtime.block_on(async {
            let mut changes = Changes::watch().expect("watched");
            let wire = index(&mut node, "wire0");
            node.set_mtu(wire, 1400).expect("changed");
            let next = tokio::time::timeout(Duration::from_secs(60), changes.next());
            next.await.expect("in time").expect("a change");
        });
    });
}

#[test]
fn texts_of_hardware_addresses_are_read() {
    let mac = [2, 0, 0xab, 0, 0, 0xff];
    assert_eq!(mac_text(&mac), "02:00:ab:00:00:ff");
    assert_eq!(parse_mac("02:00:ab:00:00:ff").as_deref(), Some(&mac[..]));
    for bad in ["", "02:", "02:zz", "02:100"] {
        assert_eq!(parse_mac(bad), None, "{bad:?}");
    }
}
