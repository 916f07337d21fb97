//! Real network namespaces for a node and its pods. They need root; otherwise tests report that they are skipped.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

use allot_driver::ClaimRef;
use allot_netlink::{Link, Netlink, mac_text};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

use super::attach::attach;
use super::identity::Identity;
use super::inventory::{Found, Selection, discover};
use super::parameters::{API_VERSION, InterfaceConfig, KIND};
use super::plan::{Original, Outcome, Plan, Planned, Plans, key};

/// A process in its own network namespace. It ends when the value is dropped.
pub(super) struct Space(Child);

impl Space {
    pub(super) fn new() -> Option<Self> {
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

    pub(super) fn file(&self) -> File {
        File::open(format!("/proc/{}/ns/net", self.0.id())).expect("a namespace")
    }

    pub(super) fn netlink(&self) -> Netlink {
        Netlink::inside(&self.file()).expect("a socket")
    }

    pub(super) fn state(&self) -> String {
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

/// A node with an interface `wire0`, which is up and in 10.9.0.0/24; its peer is `switch0`. `wire1` and `switch1` are added by
/// [`Node::add_wire`].
pub(super) struct Node {
    // Keeps the namespace alive for the duration of the test.
    _space: Space,
    pub(super) netlink: Netlink,
    plans: tempfile::TempDir,
}

/// Runs a test on a thread in the network namespace of a node.
pub(super) fn on_node(test: impl FnOnce(&mut Node) + Send + 'static) {
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
        let address: ipnet::IpNet = "10.9.0.1/24".parse().expect("an address");
        netlink.add_address(wire, &address.into()).expect("added");
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
    /// Adds another pair.
    pub(super) fn add_wire(&mut self, name: &str, peer: &str) {
        self.netlink.make_pair(name, peer).expect("made");
        for name in [name, peer] {
            let index = self.index(name);
            self.netlink.set_up(index, true).expect("up");
        }
    }

    /// Index of the interface with this name.
    pub(super) fn index(&mut self, name: &str) -> u32 {
        self.netlink.link(name).expect("a link").index
    }

    /// All interfaces of the node whose names begin with `wire`, as the inventory finds them.
    pub(super) fn all_found(&self) -> Vec<Found> {
        let selection = Selection {
            patterns: vec!["wire*".to_owned()],
            ..Selection::default()
        };
        discover(&selection).expect("interfaces")
    }

    pub(super) fn found(&self) -> Found {
        let mut found = self.all_found();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    pub(super) fn plans(&self) -> Plans {
        Plans::new(self.plans.path())
    }

    /// Plans `wire0` for a claim with these parameters and addresses.
    pub(super) fn plan(&self, uid: &str, parameters: Value, addresses: &[&str]) -> Planned {
        self.plan_of("wire0", uid, parameters, addresses)
    }

    /// Plans an interface for a claim with these parameters and addresses.
    pub(super) fn plan_of(
        &self,
        name: &str,
        uid: &str,
        mut parameters: Value,
        addresses: &[&str],
    ) -> Planned {
        parameters["apiVersion"] = API_VERSION.into();
        parameters["kind"] = KIND.into();
        let mut found = self.all_found().into_iter();
        let found = found.find(|it| it.link.name == name).expect("an interface");
        let addresses = addresses.iter().map(|it| it.parse().expect("an address"));
        let planned = Planned {
            key: key(&found.device.name, None),
            pool: "n".to_owned(),
            device: found.device.name.clone(),
            share_id: None,
            parent: found.link.name.clone(),
            parent_mac: mac_text(&found.link.mac),
            identity: found.identity.clone(),
            config: InterfaceConfig::parse(&parameters).expect("parameters"),
            pools: std::collections::BTreeSet::new(),
            addresses: addresses.collect(),
            original: Original::of(&found.link, &found.addresses, None),
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

    pub(super) fn attach(
        &self,
        uid: &str,
        planned: &Planned,
        pod: &Space,
    ) -> Result<Outcome, String> {
        let plans = self.plans();
        attach(&plans.file(uid), &planned.key, pod.state().as_bytes())?;
        let outcome = plans.outcome(uid, &planned.key).expect("read");
        Ok(outcome.expect("an outcome"))
    }
}

/// The plan of an interface that only exists as a record.
pub(super) fn recorded(link: &Link, mode: &str) -> Planned {
    let parameters = json!({"apiVersion": API_VERSION, "kind": KIND, "mode": mode});
    Planned {
        key: link.name.clone(),
        pool: "n".to_owned(),
        device: link.name.clone(),
        share_id: None,
        parent: link.name.clone(),
        parent_mac: mac_text(&link.mac),
        identity: Identity::of(link, &[]),
        config: InterfaceConfig::parse(&parameters).expect("parameters"),
        pools: std::collections::BTreeSet::new(),
        addresses: Vec::new(),
        original: Original::of(link, &[], None),
        published: k8s_openapi::api::resource::v1::Device::default(),
    }
}

/// Names of the links in a namespace, without the loopback interface.
pub(super) fn names(netlink: &mut Netlink) -> Vec<String> {
    let links = netlink.links().expect("links").into_iter();
    let mut names: Vec<String> = links
        .map(|it| it.name)
        .filter(|it| it != "lo" && !it.starts_with("sit") && !it.starts_with("tunl"))
        .collect();
    names.sort();
    names
}
