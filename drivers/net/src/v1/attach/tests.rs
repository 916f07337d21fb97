//! Tests with real network namespaces for a node and its pods. They need root; otherwise they report that they are skipped.

use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

use allot_driver::ClaimRef;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

use super::super::give_back;
use super::super::inventory::{Found, Selection, discover};
use super::super::parameters::{API_VERSION, InterfaceConfig, KIND};
use super::super::plan::{Original, key};
use super::*;

/// A process in its own network namespace. It ends when the value is dropped.
struct Space(Child);

impl Space {
    fn new() -> Option<Self> {
        // Writes a line when the namespace exists, then waits for the end of its input.
        let child = Command::new("unshare")
            .args(["-n", "sh", "-c", "echo; read wait"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.ok()?;
        let mut line = [0];
        let said = child.stdout.as_mut().map(|out| out.read_exact(&mut line));
        matches!(said, Some(Ok(()))).then(|| Self(child))
    }

    fn file(&self) -> File {
        File::open(format!("/proc/{}/ns/net", self.0.id())).expect("a namespace")
    }

    fn netlink(&self) -> Netlink {
        Netlink::inside(&self.file()).expect("a socket")
    }

    fn state(&self) -> String {
        json!({"ociVersion": "1.2.0", "id": "c", "status": "creating", "pid": self.0.id(), "bundle": "/"})
            .to_string()
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A node with an interface `wire0`, which is up and in 10.9.0.0/24; its peer is `switch0`.
struct Node {
    // Keeps the namespace alive for the duration of the test.
    _space: Space,
    netlink: Netlink,
    plans: tempfile::TempDir,
}

/// Runs a test on a thread in the network namespace of a node.
fn on_node(test: impl FnOnce(&mut Node) + Send + 'static) {
    let Some(space) = Space::new() else {
        eprintln!("skipped: network namespaces are not permitted here");
        return;
    };
    let thread = std::thread::spawn(move || {
        let file = space.file();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("in the namespace");
        let mut netlink = Netlink::here().expect("a socket");
        netlink.make_pair("wire0", "switch0").expect("made");
        for name in ["wire0", "switch0"] {
            let link = netlink.link(name).expect("a link");
            netlink.set_up(link.index, true).expect("up");
        }
        let wire = netlink.link("wire0").expect("a link").index;
        let address = "10.9.0.1/24".parse().expect("an address");
        netlink.add_address(wire, address).expect("added");
        let mut node = Node {
            netlink,
            plans: tempfile::tempdir().expect("a directory"),
            _space: space,
        };
        test(&mut node);
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

impl Node {
    fn found(&self) -> Found {
        let selection = Selection {
            patterns: vec!["wire*".to_owned()],
            ..Selection::default()
        };
        let mut found = discover(&selection).expect("interfaces");
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    fn plans(&self) -> Plans {
        Plans::new(self.plans.path())
    }

    /// Plans `wire0` for a claim with these parameters and addresses.
    fn plan(&self, uid: &str, mut parameters: Value, addresses: &[&str]) -> Planned {
        parameters["apiVersion"] = API_VERSION.into();
        parameters["kind"] = KIND.into();
        let found = self.found();
        let addresses = addresses.iter().map(|it| it.parse().expect("an address"));
        let planned = Planned {
            key: key(&found.device.name, None),
            pool: "n".to_owned(),
            device: found.device.name.clone(),
            share_id: None,
            parent: found.link.name.clone(),
            parent_mac: mac_text(&found.link.mac),
            config: InterfaceConfig::parse(&parameters).expect("parameters"),
            addresses: addresses.collect(),
            original: Original {
                alias: found.link.alias.clone(),
                mtu: found.link.mtu,
                up: found.link.up,
                addresses: found.addresses.clone(),
                hardware: None,
            },
            published: found.device,
        };
        let plan = Plan {
            claim: ClaimRef {
                namespace: "ns".to_owned(),
                name: uid.to_owned(),
                uid: uid.to_owned(),
            },
            interfaces: vec![planned.clone()],
        };
        self.plans().write(&plan).expect("written");
        planned
    }

    fn attach(&self, uid: &str, planned: &Planned, pod: &Space) -> Result<Outcome, String> {
        let plans = self.plans();
        attach(&plans.file(uid), &planned.key, pod.state().as_bytes())?;
        let outcome = plans.outcome(uid, &planned.key).expect("read");
        Ok(outcome.expect("an outcome"))
    }
}

/// Names of the links in a namespace, without the loopback interface.
fn names(netlink: &mut Netlink) -> Vec<String> {
    let links = netlink.links().expect("links").into_iter();
    let mut names: Vec<String> = links
        .map(|it| it.name)
        .filter(|it| it != "lo" && !it.starts_with("sit") && !it.starts_with("tunl"))
        .collect();
    names.sort();
    names
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
        let to = |text: &str| Some(text.parse::<IpNet>().expect("a network"));
        assert!(
            routes.contains(&(link.index, to("10.20.0.0/16"))),
            "{routes:?}"
        );
        assert!(routes.contains(&(link.index, None)), "{routes:?}");
        // The hook for another container of the pod.
        let again = node.attach("u1", &planned, &pod).expect("still attached");
        assert_eq!(again, outcome, "the outcome keeps its time");
        assert_eq!(names(&mut inside), ["data0"]);
        // No interface was created on the node.
        assert_eq!(names(&mut node.netlink), ["switch0", "wire0"]);
        give_back::restore(&planned, "u1").expect("given back");
    });
}

#[test]
fn an_interface_that_was_begun_is_completed() {
    on_node(|node| {
        // Number of steps completed before the hook is killed: create, set the alias, rename, add addresses.
        for steps in 0..5 {
            let uid = format!("u{steps}");
            let planned = node.plan(&uid, json!({"mode": "macvlan"}), &["10.9.0.8/24"]);
            let pod = Space::new().expect("a namespace");
            let mut inside = pod.netlink();
            if steps > 0 {
                bring(&planned, &uid, &pod.file()).expect("made");
            }
            if let Some(link) = inside.link(&planned.interim_name(&uid)) {
                if steps > 1 {
                    inside
                        .set_alias(link.index, &planned.alias(&uid))
                        .expect("marked");
                }
                if steps > 2 {
                    inside.rename(link.index, "net1").expect("renamed");
                }
                if steps > 3 {
                    inside
                        .add_address(link.index, planned.addresses[0])
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
        // Another claim can use the same parent.
        let other = node.plan("u2", json!({"mode": "macvlan"}), &[]);
        node.attach("u2", &other, &second).expect("attached");
    });
}

#[test]
fn the_interface_itself_is_moved_and_comes_back_as_it_was() {
    on_node(|node| {
        let parameters = json!({"mode": "host-device", "interfaceName": "moved0", "mtu": 1300});
        let before = node.found();
        for steps in 0..4 {
            let uid = format!("u{steps}");
            let planned = node.plan(&uid, parameters.clone(), &["10.9.0.1/24"]);
            let pod = Space::new().expect("a namespace");
            let mut inside = pod.netlink();
            match steps {
                // Killed before the first step, or after the alias was set.
                0 => {}
                1 => {
                    let wire = before.link.index;
                    let alias = planned.alias(&uid);
                    node.netlink.set_up(wire, false).expect("down");
                    node.netlink.set_alias(wire, &alias).expect("marked");
                }
                // Killed after the move into the pod, or not killed.
                2 => bring(&planned, &uid, &pod.file()).expect("moved"),
                _ => {
                    let outcome = node.attach(&uid, &planned, &pod).expect("attached");
                    assert_eq!(outcome.interface_name, "moved0");
                    assert_eq!(outcome.ips, ["10.9.0.1/24"]);
                    assert_eq!(inside.link("moved0").expect("a link").mtu, 1300);
                }
            }
            // As the kernel returns hardware when a namespace ends, under another name if its own is already in use.
            let ours = inside.links().expect("links").into_iter();
            let mut ours = ours.filter(|it| it.alias == planned.alias(&uid));
            if let Some(link) = ours.next_back() {
                assert_eq!(names(&mut node.netlink), ["switch0"]);
                let node_file = File::open("/proc/thread-self/ns/net").expect("a namespace");
                inside
                    .move_to(link.index, "dev7", &node_file)
                    .expect("moved back");
            }
            give_back::restore(&planned, &uid).expect("given back");
            give_back::restore(&planned, &uid).expect("twice is once");
            let after = node.found();
            assert_eq!(after.addresses, before.addresses, "{steps}");
            assert_eq!(after.device.name, before.device.name, "{steps}");
            let of = |it: &Link| {
                (
                    it.name.clone(),
                    it.mtu,
                    it.up,
                    it.alias.clone(),
                    it.mac.clone(),
                )
            };
            assert_eq!(of(&after.link), of(&before.link), "{steps}");
        }
    });
}

#[test]
fn an_interface_in_a_pod_is_waited_for_unless_it_went_with_it() {
    on_node(|node| {
        let mut planned = node.plan("u1", json!({}), &[]);
        let pod = Space::new().expect("a namespace");
        node.attach("u1", &planned, &pod).expect("attached");
        // A virtual interface is removed with the namespace.
        give_back::restore(&planned, "u1").expect("nothing to wait for");
        // A hardware interface returns to the node.
        planned.original.hardware = Some("/sys".into());
        let waits = give_back::restore(&planned, "u1").expect_err("not yet");
        assert!(waits.to_string().contains("has not come back"), "{waits}");
    });
}

#[test]
fn interfaces_of_unknown_claims_get_their_names_back() {
    on_node(|node| {
        let planned = node.plan("lost", json!({}), &[]);
        let wire = node.netlink.link("wire0").expect("a link").index;
        node.netlink.set_up(wire, false).expect("down");
        node.netlink
            .set_alias(wire, &planned.alias("lost"))
            .expect("marked");
        node.netlink.rename(wire, "dev3").expect("renamed");
        let known = std::collections::BTreeSet::from(["lost"]);
        give_back::restore_unknown(&known).expect("left alone");
        assert_eq!(names(&mut node.netlink), ["dev3", "switch0"]);
        give_back::restore_unknown(&std::collections::BTreeSet::new()).expect("put back");
        assert_eq!(names(&mut node.netlink), ["switch0", "wire0"]);
        assert_eq!(node.netlink.link("wire0").expect("a link").alias, "");
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
        // Another interface now has the name.
        let mut other = planned.clone();
        other.parent_mac = "02:00:00:00:00:01".to_owned();
        let refused = bring(&other, "u1", &pod.file()).expect_err("another one");
        assert!(
            refused.contains("is another one than that of the claim"),
            "{refused}"
        );
        // The name is already in use in the pod.
        let first = node.plan("u2", json!({"mode": "macvlan", "interfaceName": "x"}), &[]);
        let second = node.plan("u3", json!({"mode": "macvlan", "interfaceName": "x"}), &[]);
        node.attach("u2", &first, &pod).expect("attached");
        let refused = node.attach("u3", &second, &pod).expect_err("taken");
        assert_eq!(refused, "the pod has an interface x already");
        // The claim was unprepared.
        node.plans().remove_plan("u2").expect("removed");
        let gone = node.attach("u2", &first, &pod).expect_err("gone");
        assert!(gone.contains("u2.plan.json"), "{gone}");
    });
}
