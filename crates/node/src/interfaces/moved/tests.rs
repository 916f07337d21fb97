//! Real network namespaces for a node and a pod. They need root; otherwise a line says that a test is skipped.

use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use super::super::Socket;
use super::*;

fn device(host: &str, name: &str) -> NetDevice {
    NetDevice {
        host_interface_name: host.to_owned(),
        name: name.to_owned(),
    }
}

fn address(text: &str) -> Address {
    let network: ipnet::IpNet = text.parse().expect("an address");
    network.into()
}

/// The network namespace of a new thread, which has ended.
fn namespace() -> Option<File> {
    let made = std::thread::spawn(|| {
        enter_new()
            .ok()
            .map(|()| File::open("/proc/thread-self/ns/net").expect("a namespace"))
    });
    made.join().expect("a namespace")
}

/// Has this thread leave the network of the others.
fn enter_new() -> io::Result<()> {
    // SAFETY: takes an integer; the flag concerns this thread alone, and no memory or descriptors.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A node with an interface `wire0`, whose peer is `switch0`, and a pod.
struct Networks {
    node: Netlink,
    namespace: File,
    directory: tempfile::TempDir,
}

impl Networks {
    fn pod(&self) -> Netlink {
        Netlink::inside(&self.namespace).expect("a socket")
    }

    fn record(&self) -> PathBuf {
        self.directory.path().join("interfaces.json")
    }

    fn move_in(&self, wanted: &[NetDevice]) -> Result<(), String> {
        let path = format!("/proc/self/fd/{}", self.namespace.as_raw_fd());
        let moved = move_into(Path::new(&path), &self.record(), wanted);
        moved.map_err(|error| error.to_string())
    }

    fn link(&mut self, name: &str) -> Link {
        let links = self.node.links().expect("links");
        named(&links, name).expect(name).clone()
    }

    fn add(&mut self, name: &str, address: &Address) {
        let index = self.link(name).index;
        self.node.add_address(index, address).expect("an address");
    }

    /// Names of the interfaces of the pod.
    fn inside(&self) -> Vec<String> {
        let links = self.pod().links().expect("links");
        let names = links.into_iter().map(|link| link.name);
        let mut names: Vec<String> = names.filter(|name| name != "lo").collect();
        names.sort();
        names
    }

    fn addresses(&self, name: &str) -> Vec<Address> {
        let mut pod = self.pod();
        let links = pod.links().expect("links");
        let index = named(&links, name).expect(name).index;
        kept(&mut pod, index).expect("addresses")
    }
}

/// Runs a test on a thread in the network of the node.
fn on_node(test: impl FnOnce(Networks) + Send + 'static) {
    let thread = std::thread::spawn(move || {
        let (Some(namespace), Ok(())) = (namespace(), enter_new()) else {
            eprintln!("skipped: network namespaces are not permitted here");
            return;
        };
        let mut node = Netlink::here().expect("a socket");
        node.make_pair("wire0", "switch0").expect("a pair");
        test(Networks {
            node,
            namespace,
            directory: tempfile::tempdir().expect("a directory"),
        });
    });
    thread.join().expect("the test passes");
}

#[test]
fn attacks_by_names_are_refused() {
    let check = |wanted: &[NetDevice], expected: &str| {
        let error = check(wanted).expect_err(expected).to_string();
        assert_eq!(error, expected);
    };
    for name in [
        "",
        ".",
        "..",
        "a/b",
        "/",
        "a\0",
        "a b",
        "a\n",
        "a:b",
        "0123456789abcdef",
        "a%b",
        "%s",
        "%d%d",
        "%%d",
    ] {
        let expected = format!("{name:?} is not a valid name of a network interface");
        check(&[device("eth0", name)], &expected);
        check(&[device(name, "net1")], &expected);
    }
    let number = r#""eth%d" is not a valid name of a network interface"#;
    check(&[device("eth%d", "net1")], number);
    let loopback =
        r#"network interface "lo" cannot be moved into the pod: it is the loopback interface"#;
    check(&[device("lo", "net1")], loopback);
    check(
        &[device("eth0", "net1"), device("eth1", "net1")],
        r#"network interfaces "eth0" and "eth1" would both be named "net1" in the pod"#,
    );
    check(
        &[device("eth0", "net1"), device("eth0", "net2")],
        r#"network interface "eth0" would be named "net1" and "net2" in the pod"#,
    );
    super::check(&[
        device("0123456789abcde", "eth0"),
        // Two devices with the same edits.
        device("eth1", "net1"),
        device("eth1", "net1"),
        device("eth2", "net%d"),
        device("eth3", "net%d"),
    ])
    .expect("valid names");
}

#[test]
fn interfaces_the_node_needs_stay() {
    on_node(|mut networks| {
        let check = |networks: &Networks, host: &str, expected: &str| {
            let refused = networks.move_in(&[device(host, "net1")]);
            assert_eq!(refused.expect_err(expected), expected);
            assert!(networks.inside().is_empty());
        };
        check(
            &networks,
            "eth0",
            r#"there is no network interface "eth0" on this node"#,
        );
        let port = networks.link("switch0").index;
        let socket = Socket::open().expect("a socket");
        socket.add_bridge("bridge0").expect("a bridge");
        let bridge = networks.link("bridge0").index;
        networks.node.add_port(bridge, port).expect("a port");
        check(
            &networks,
            "switch0",
            r#"network interface "switch0" cannot be moved into the pod: it is part of bridge0"#,
        );
        let wire = networks.link("wire0").index;
        networks.node.set_up(wire, true).expect("up");
        networks
            .node
            .add_default_over(&[wire], 254)
            .expect("a route");
        let uplink = r#"network interface "wire0" cannot be moved into the pod: a default route of the node uses it"#;
        check(&networks, "wire0", uplink);
        // The kernel moves none.
        let error = networks.move_in(&[device("bridge0", "net1")]);
        let error = error.expect_err("a bridge");
        assert!(error.contains("moving it into the pod"), "{error}");
        assert!(networks.inside().is_empty());
        networks.link("bridge0");
    });
}

#[test]
fn interfaces_are_moved_with_their_addresses() {
    on_node(|mut networks| {
        let with_peer = Address {
            peer: Some("198.51.100.2".parse().expect("an address")),
            ..address("198.51.100.1/32")
        };
        let addresses = [
            address("192.0.2.7/24"),
            with_peer,
            // The kernel removes it when the interface is set down.
            address("2001:db8::7/64"),
        ];
        let wire = networks.link("wire0").index;
        networks.node.set_up(wire, true).expect("up");
        for address in &addresses {
            networks.add("wire0", address);
        }
        let wanted = [device("wire0", "net1"), device("switch0", "net%d")];
        networks.move_in(&wanted).expect("moved");
        assert_eq!(networks.inside(), ["net0", "net1"]);
        let moved = networks.addresses("net1");
        assert_eq!(moved.len(), addresses.len(), "{moved:?}");
        for address in &addresses {
            assert!(moved.contains(address), "{moved:?}");
        }
        let links = networks.node.links().expect("links");
        assert!(named(&links, "wire0").is_none() && named(&links, "switch0").is_none());
    });
}

/// A container that restarts, and another one of the pod with the same device.
#[test]
fn interfaces_in_the_pod_are_not_moved_again() {
    on_node(|networks| {
        let wanted = [device("wire0", "net1")];
        networks.move_in(&wanted).expect("moved");
        networks.move_in(&wanted).expect("there already");
        // What the pod does with it is its own matter.
        let mut pod = networks.pod();
        let index = named(&pod.links().expect("links"), "net1")
            .expect("moved")
            .index;
        pod.rename(index, "mine").expect("renamed");
        networks.move_in(&wanted).expect("there already");
        assert_eq!(networks.inside(), ["mine"]);
        // Another pod does not get it.
        std::fs::remove_file(networks.record()).expect("a record");
        let missing = networks.move_in(&wanted).expect_err("no such interface");
        assert_eq!(
            missing,
            r#"there is no network interface "wire0" on this node"#
        );
    });
}

#[test]
fn names_that_are_taken_in_the_pod_are_refused() {
    on_node(|networks| {
        networks.pod().make_pair("net1", "net2").expect("a pair");
        let taken = networks.move_in(&[device("wire0", "net1")]);
        let expected = r#"the network of the pod already has an interface "net1""#;
        assert_eq!(taken.expect_err("taken"), expected);
        assert_eq!(networks.inside(), ["net1", "net2"]);
        networks
            .move_in(&[device("wire0", "net%d")])
            .expect("a free number");
        assert_eq!(networks.inside(), ["net0", "net1", "net2"]);
    });
}

/// Kills of the agent: after the record, after the move, and after a move that the kernel did under the old name.
#[test]
fn an_interface_whose_agent_was_killed_is_completed() {
    for name in [None, Some("net1"), Some("wire0")] {
        on_node(move |mut networks| {
            let address = address("2001:db8::7/64");
            networks.add("wire0", &address);
            let link = networks.link("wire0");
            let moved = Moved {
                namespace: networks.namespace.metadata().expect("a file").ino(),
                device: device("wire0", "net1"),
                name: "net1".to_owned(),
                mac: link.mac,
                addresses: vec![address.clone()],
                complete: None,
            };
            spec::write(&networks.record(), &vec![moved]).expect("a record");
            if let Some(name) = name {
                let moved = networks.node.move_to(link.index, name, &networks.namespace);
                moved.expect("moved");
            }
            networks
                .move_in(&[device("wire0", "net1")])
                .expect("completed");
            assert_eq!(networks.inside(), ["net1"], "{name:?}");
            assert_eq!(networks.addresses("net1"), [address], "{name:?}");
        });
    }
}

/// After a restart of the machine the record would be of another namespace, in which other interfaces have its indexes.
#[test]
fn records_of_another_namespace_count_for_nothing() {
    on_node(|mut networks| {
        let wanted = [device("wire0", "net1")];
        networks.move_in(&wanted).expect("moved");
        networks.namespace = namespace().expect("a namespace");
        networks.pod().make_pair("eth0", "eth1").expect("a pair");
        networks.move_in(&wanted).expect_err("not there");
        assert_eq!(networks.inside(), ["eth0", "eth1"]);
        std::fs::write(networks.record(), "[").expect("a file");
        let damaged = networks.move_in(&wanted).expect_err("damaged");
        assert!(damaged.contains("interfaces.json"), "{damaged}");
    });
}
