//! Tests with real network namespaces: what a pod can do to an interface that was moved into it.

use std::fs::File;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::super::attach::attach;
use super::super::harness::{Node, Space, names, on_node, recorded};
use super::super::held::Held;
use super::super::plan::{Location, Namespace};
use super::*;

/// Returns the interface that is in a pod to the node under `name`, as the kernel does with hardware.
fn come_back(pod: &Space, index: u32, name: &str) {
    let node = File::open("/proc/thread-self/ns/net").expect("a namespace");
    pod.netlink()
        .move_to(index, name, &node)
        .expect("moved back");
}

fn release(node: &Node, planned: &Planned, uid: &str) -> Result<(), Failure> {
    restore(planned, uid, &node.plans(), std::slice::from_ref(planned))
}

/// What the hook records first.
fn begun() -> Location {
    let namespace = File::open("/proc/thread-self/ns/net").expect("a namespace");
    Location {
        namespace: Namespace::of(&namespace).expect("a namespace"),
        index: None,
    }
}

/// What is restored.
fn state(link: &Link) -> (String, u32, bool, String, Vec<String>, Vec<u8>, bool) {
    (
        link.name.clone(),
        link.mtu,
        link.up,
        link.alias.clone(),
        link.alternative_names.clone(),
        link.mac.clone(),
        link.promiscuous,
    )
}

#[test]
fn the_interface_itself_is_moved_and_comes_back_as_it_was() {
    on_node(|node| {
        let parameters = json!({"mode": "host-device", "interfaceName": "moved0", "mtu": 1300});
        let wire = node.index("wire0");
        node.netlink.set_alias(wire, "rack 7").expect("set");
        node.netlink
            .set_alternative_name(wire, "wire-of-rack-7", true)
            .expect("added");
        let before = node.found();
        for steps in 0..3 {
            let uid = format!("u{steps}");
            let planned = node.plan(&uid, parameters.clone(), &["10.9.0.1/24"]);
            let pod = Space::new().expect("a namespace");
            let mut inside = pod.netlink();
            // Killed before the first step, after it, or not killed.
            if steps == 1 {
                let location = begun();
                node.plans()
                    .write_location(&uid, &planned.key, &location)
                    .expect("recorded");
                node.netlink.set_up(wire, false).expect("down");
            }
            if steps == 2 {
                let outcome = node.attach(&uid, &planned, &pod).expect("attached");
                assert_eq!(outcome.interface_name, "moved0");
                assert_eq!(outcome.ips, ["10.9.0.1/24"]);
                let moved = inside.link("moved0").expect("a link");
                assert_eq!(moved.mtu, 1300);
                assert_eq!(names(&mut node.netlink), ["switch0"]);
                come_back(&pod, moved.index, "dev7");
            }
            release(node, &planned, &uid).expect("restored");
            release(node, &planned, &uid).expect("twice is once");
            let after = node.found();
            assert_eq!(after.addresses, before.addresses, "{steps}");
            assert_eq!(after.device.name, before.device.name, "{steps}");
            assert_eq!(state(&after.link), state(&before.link), "{steps}");
        }
    });
}

#[test]
fn regression_a_pod_that_changes_alias_and_address_does_not_keep_the_interface() {
    on_node(|node| {
        let before = node.found();
        let planned = node.plan("u1", json!({"interfaceName": "moved0"}), &[]);
        let pod = Space::new().expect("a namespace");
        node.attach("u1", &planned, &pod).expect("attached");
        let mut inside = pod.netlink();
        let moved = inside.link("moved0").expect("a link").index;
        inside.set_up(moved, false).expect("down");
        inside
            .set_mac(moved, vec![2, 6, 6, 6, 6, 6])
            .expect("changed");
        inside
            .set_alias(moved, "net.allot.dev u2 wire1 wire1")
            .expect("changed");
        inside.set_mtu(moved, 1280).expect("changed");
        inside
            .set_alternative_name(moved, "wire9", true)
            .expect("changed");
        inside.rename(moved, "wire1").expect("renamed");
        // Not even while it is in the pod does another container's hook miss it.
        let again = node.attach("u1", &planned, &pod).expect("completed");
        assert_eq!(again.interface_name, "wire1");
        come_back(&pod, moved, "wire1");
        release(node, &planned, "u1").expect("restored");
        let after = node.found();
        assert_eq!(state(&after.link), state(&before.link));
        assert_eq!(after.addresses, before.addresses);
    });
}

#[test]
fn regression_a_pod_can_not_make_the_driver_take_another_interface() {
    on_node(|node| {
        node.add_wire("wire1", "switch1");
        let planned = node.plan("u1", json!({"interfaceName": "moved0"}), &[]);
        let other = node.plan_of("wire1", "u2", json!({}), &[]);
        let before = node.all_found();
        let pod = Space::new().expect("a namespace");
        node.attach("u1", &planned, &pod).expect("attached");
        // The interface of the pod comes back as the one of another claim, to which that one is not moved yet.
        let mut inside = pod.netlink();
        let moved = inside.link("moved0").expect("a link").index;
        inside.set_up(moved, false).expect("down");
        let mac = parse_mac(&other.parent_mac).expect("an address");
        inside.set_mac(moved, mac).expect("changed");
        inside
            .set_alias(moved, "net.allot.dev u2 wire1 wire1")
            .expect("changed");
        let wire1 = node.index("wire1");
        node.netlink.set_up(wire1, false).expect("down");
        node.netlink.rename(wire1, "renamed1").expect("renamed");
        come_back(&pod, moved, "wire1");

        // It is published as it was before, and not for the other claim.
        let held = Held::default();
        held.set("u1", std::slice::from_ref(&planned));
        let published = held.complete(node.all_found());
        let of_first: Vec<_> = published.iter().filter(|it| it.name == "wire0").collect();
        assert_eq!(of_first, [&planned.published]);
        assert!(
            published.iter().all(|it| it.name != "wire1"),
            "{published:?}"
        );

        // The other claim gets its own one.
        let second = Space::new().expect("a namespace");
        let outcome = node.attach("u2", &other, &second).expect("attached");
        let got = second
            .netlink()
            .link(&outcome.interface_name)
            .expect("a link");
        assert_eq!(got.lower, Some(node.index("switch1")));

        // Both are restored, although each has the name of the other one.
        let mut away = second.netlink();
        away.set_up(got.index, false).expect("down");
        away.rename(got.index, "wire0").expect("renamed");
        come_back(&second, got.index, "wire0");
        let both = [planned.clone(), other.clone()];
        restore(&planned, "u1", &node.plans(), &both).expect("restored");
        restore(&other, "u2", &node.plans(), &both).expect("restored");
        let after = node.all_found();
        let states = |found: &[super::super::inventory::Found]| -> Vec<_> {
            found
                .iter()
                .map(|it| (state(&it.link), it.link.lower))
                .collect()
        };
        assert_eq!(states(&after), states(&before));
    });
}

#[test]
fn regression_an_alternative_name_does_not_keep_another_interface_from_its_name() {
    on_node(|node| {
        node.add_wire("wire1", "switch1");
        let both = [
            node.plan("u1", json!({"interfaceName": "moved0"}), &[]),
            node.plan_of("wire1", "u2", json!({"interfaceName": "moved1"}), &[]),
        ];
        let pods = [
            Space::new().expect("a namespace"),
            Space::new().expect("another"),
        ];
        let mut moved = Vec::new();
        for (planned, (pod, uid)) in both.iter().zip(pods.iter().zip(["u1", "u2"])) {
            let outcome = node.attach(uid, planned, pod).expect("attached");
            let mut inside = pod.netlink();
            let index = inside.link(&outcome.interface_name).expect("a link").index;
            if uid == "u1" {
                inside
                    .set_alternative_name(index, "wire1", true)
                    .expect("added");
            }
            inside.set_up(index, false).expect("down");
            moved.push((pod, index, outcome.interface_name));
        }
        for (pod, index, name) in moved {
            come_back(pod, index, &name);
        }
        restore(&both[1], "u2", &node.plans(), &both).expect("restored");
        restore(&both[0], "u1", &node.plans(), &both).expect("restored");
        assert_eq!(
            names(&mut node.netlink),
            ["switch0", "switch1", "wire0", "wire1"]
        );
        // An interface of the node is not renamed.
        let wire1 = node.index("wire1");
        node.netlink.set_up(wire1, false).expect("down");
        node.netlink.rename(wire1, "away1").expect("renamed");
        node.add_wire("wire1", "switch2");
        let location = begun();
        node.plans()
            .write_location("u2", &both[1].key, &location)
            .expect("recorded");
        let refused = restore(&both[1], "u2", &node.plans(), &both).expect_err("taken");
        assert!(
            refused
                .to_string()
                .contains("can not be called wire1 again"),
            "{refused}"
        );
    });
}

/// The claim was never unprepared: an interface of the node has the alternative name.
#[test]
fn regression_a_used_alternative_name_does_not_block_the_release() {
    on_node(|node| {
        let wire = node.index("wire0");
        node.netlink
            .set_alternative_name(wire, "rack-7", true)
            .expect("added");
        let planned = node.plan("u1", json!({"interfaceName": "moved0"}), &[]);
        let pod = Space::new().expect("a namespace");
        node.attach("u1", &planned, &pod).expect("attached");
        let mut inside = pod.netlink();
        let moved = inside.link("moved0").expect("a link").index;
        inside
            .set_alternative_name(moved, "rack-7", false)
            .expect("removed");
        inside.set_up(moved, false).expect("down");
        node.add_wire("wire1", "switch1");
        let other = node.index("wire1");
        node.netlink
            .set_alternative_name(other, "rack-7", true)
            .expect("added");
        come_back(&pod, moved, "dev7");
        release(node, &planned, "u1").expect("restored");
        let link = node.netlink.link("wire0").expect("a link");
        assert_eq!((link.up, link.alternative_names), (true, Vec::new()));
        let other = node.netlink.link("wire1").expect("a link");
        assert_eq!(other.alternative_names, ["rack-7"]);
    });
}

/// A partition that a pod created on an InfiniBand interface comes back with it, also under its name.
#[test]
fn regression_names_that_a_pod_gave_are_taken_back() {
    let port = |index: u32, name: &str, device: &str, lower: Option<u32>| Link {
        index,
        name: name.to_owned(),
        lower,
        hardware: Some((device.to_owned(), "pci".to_owned())),
        ..Link::default()
    };
    let mut second = port(3, "ib1", "0000:18:00.0", None);
    second.alternative_names = vec!["rack-8".to_owned()];
    let first = port(2, "ib0", "0000:17:00.0", None);
    let held = [&first, &second].map(|it| recorded(it, "host-device"));
    let check = |link: Link, name: &str, expected: bool| {
        assert_eq!(is_from_pod(&link, name, &held), expected, "{link:?} {name}");
    };
    // A partition on either of them has a name of the other one.
    check(port(9, "ib0", "0000:17:00.0", Some(2)), "ib0", true);
    check(port(9, "ib0", "0000:18:00.0", Some(3)), "ib0", true);
    check(port(9, "rack-8", "0000:17:00.0", Some(2)), "rack-8", true);
    // The interfaces came back with each other's names.
    check(port(4, "rack-8", "0000:17:00.0", None), "rack-8", true);
    check(port(5, "ib0", "0000:18:00.0", None), "ib0", true);
    check(second.clone(), "rack-8", false);
    // Of the node: other hardware, partitions of it, and links without hardware.
    check(port(6, "ib0", "0000:19:00.0", None), "ib0", false);
    check(port(7, "ib0", "0000:19:00.0", Some(6)), "ib0", false);
    let link = Link {
        name: "ib0".to_owned(),
        ..Link::default()
    };
    check(link, "ib0", false);
}

#[test]
fn an_interface_in_a_pod_is_waited_for_unless_it_went_with_it() {
    on_node(|node| {
        let mut planned = node.plan("u1", json!({}), &[]);
        let pod = Space::new().expect("a namespace");
        node.attach("u1", &planned, &pod).expect("attached");
        // A virtual interface is removed with the namespace.
        release(node, &planned, "u1").expect("nothing to wait for");
        // A hardware interface returns to the node.
        planned.original.hardware = Some("/sys".into());
        let waits = release(node, &planned, "u1").expect_err("not yet");
        assert!(waits.to_string().contains("has not come back"), "{waits}");
    });
}

#[test]
fn what_no_hook_touched_stays_as_an_administrator_left_it() {
    on_node(|node| {
        let planned = node.plan("u1", json!({}), &[]);
        let wire = node.index("wire0");
        node.netlink.set_mtu(wire, 1400).expect("changed");
        release(node, &planned, "u1").expect("nothing to restore");
        assert_eq!(node.found().link.mtu, 1400);
    });
}

/// Environment variable with the plan that [`hook_of_a_killed_run`] attaches.
const PLAN: &str = "ALLOT_TEST_PLAN";

/// Not a test by itself: the hook program that is killed by the next test, in a process of its own.
#[test]
fn hook_of_a_killed_run() {
    let Ok(plan) = std::env::var(PLAN) else {
        return;
    };
    let (plan, key) = plan.split_once('|').expect("a plan and a device");
    attach(std::path::Path::new(plan), key, std::io::stdin()).expect("attached");
}

/// The hook is killed at random times, and the pod ends or its next container starts: the interface is never lost. Random:
/// `ALLOT_NETWORK_KILLS=200` is the number of runs.
#[test]
fn no_interface_is_lost_when_hooks_are_killed() {
    let runs = std::env::var("ALLOT_NETWORK_KILLS")
        .ok()
        .and_then(|it| it.parse().ok());
    on_node(move |node| {
        let mut random = StdRng::seed_from_u64(28);
        let before = node.found();
        let (mut killed, mut moved) = (0, 0);
        for run in 0..runs.unwrap_or(20) {
            let uid = format!("u{run}");
            let planned = node.plan(
                &uid,
                json!({"interfaceName": "moved0", "mtu": 1400}),
                &["10.9.0.1/24"],
            );
            let pod = Space::new().expect("a namespace");
            let mut hook = hook(node, &planned, &uid);
            let mut state = hook.stdin.take().expect("a pipe");
            state.write_all(pod.state().as_bytes()).expect("written");
            drop(state);
            std::thread::sleep(Duration::from_micros(random.random_range(0..40_000)));
            hook.kill().expect("killed");
            let ended = hook.wait().expect("an end");
            killed += u32::from(!ended.success());
            if random.random_bool(0.3) {
                let outcome = node.attach(&uid, &planned, &pod).expect("completed");
                assert_eq!(outcome.ips, ["10.9.0.1/24"], "run {run}");
            }
            let links = pod.netlink().links().expect("links");
            let switch = node.index("switch0");
            if let Some(inside) = links.iter().find(|it| it.lower == Some(switch)) {
                moved += 1;
                pod.netlink().set_up(inside.index, false).expect("down");
                come_back(&pod, inside.index, "dev7");
            }
            node.plans().begin_release(&uid).expect("begun");
            release(node, &planned, &uid).expect("restored");
            node.plans().end_release(&uid).expect("ended");
            let after = node.found();
            assert_eq!(state_of(&after), state_of(&before), "run {run}");
        }
        let files = std::fs::read_dir(node.plans().directory()).expect("files");
        assert_eq!(files.count(), 0);
        eprintln!("{killed} hooks killed, {moved} interfaces moved");
    });
}

/// Name, settings and addresses.
fn state_of(found: &super::super::inventory::Found) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        state(&found.link),
        found.addresses.clone(),
        found.device.name.clone(),
    )
}

/// Starts the hook in the node's namespace, in which this thread is.
fn hook(node: &Node, planned: &Planned, uid: &str) -> Child {
    let plan = format!("{}|{}", node.plans().file(uid).display(), planned.key);
    let program = std::env::current_exe().expect("this program");
    Command::new(program)
        .args([
            "--exact",
            "v1::release::tests::hook_of_a_killed_run",
            "--nocapture",
        ])
        .env(PLAN, plan)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started")
}
