//! The OCI hook (`createRuntime`) that a container runtime runs after creating a container's namespaces and before starting
//! its program: creates the planned interface in the pod's network namespace, or moves it there.
//!
//! The hook can be killed at any step and runs for every container of the pod: an existing interface is found by its
//! identity and by what the hook recorded about it, never by what the pod can set, and completed. Virtual interfaces are created in the pod's namespace, never on the node, so
//! that they are removed with the pod. The kernel prevents two pods from having the same interface: it rejects a second
//! interface with the same hardware address, VLAN ID or IP address on one parent.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use allot_netlink::{IpVlanMode, Kind, Link, MacVlanMode, Netlink, mac_text};
use jiff::Timestamp;
use serde::Deserialize;

use super::identity::recorded;
use super::parameters::{IpvlanMode, MacvlanMode, Mode};
use super::plan::{Location, Namespace, Outcome, Plan, Planned, Plans};

#[cfg(test)]
mod tests;

/// Maximum size of the container state, which is normally a few hundred bytes.
const STATE: u64 = 1 << 20;
/// Maximum number of interfaces in a pod.
const INTERFACES: u32 = 1024;

/// The container state passed by the runtime.
#[derive(Debug, Deserialize)]
struct State {
    pid: i32,
}

fn step<T>(what: impl FnOnce() -> String, result: io::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{}: {error}", what()))
}

/// Attaches a device of the plan in `plan_file` to the container whose state is read from `state`, and records the
/// outcome.
///
/// # Errors
/// The reason for which the container must not start.
pub fn attach(plan_file: &Path, key: &str, state: impl Read) -> Result<(), String> {
    let mut text = Vec::new();
    step(
        || "the container's state".into(),
        state.take(STATE).read_to_end(&mut text),
    )?;
    let state: State = serde_json::from_slice(&text)
        .map_err(|error| format!("the container's state on standard input: {error}"))?;
    if state.pid <= 0 {
        return Err("the container has no process".into());
    }
    let path = format!("/proc/{}/ns/net", state.pid);
    let namespace = step(|| path.clone(), File::open(&path))?;
    // The lock prevents two hooks from running concurrently for one claim, and the plan from being removed during a run.
    let file = step(|| plan_file.display().to_string(), File::open(plan_file))?;
    let locked = rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive);
    step(
        || plan_file.display().to_string(),
        locked.map_err(io::Error::from),
    )?;
    let metadata = step(|| plan_file.display().to_string(), file.metadata())?;
    let is_current =
        |now: std::fs::Metadata| (now.dev(), now.ino()) == (metadata.dev(), metadata.ino());
    if !std::fs::metadata(plan_file).is_ok_and(is_current) {
        return Err("the claim was released meanwhile".into());
    }
    let plan: Plan = serde_json::from_reader(&file)
        .map_err(|error| format!("{}: {error}", plan_file.display()))?;
    let planned = plan.interfaces.iter().find(|it| it.key == key);
    let planned = planned.ok_or_else(|| format!("claim {} has no device {key}", plan.claim))?;
    let plans = Plans::new(plan_file.parent().unwrap_or(Path::new("/")));
    let uid = &plan.claim.uid;
    let made = is_own(&namespace).and_then(|()| ensure(planned, uid, &namespace, &plans));
    let outcome = match &made {
        Ok(outcome) => outcome.clone(),
        Err(error) => Outcome {
            at: Timestamp::now(),
            error: Some(error.clone()),
            interface_name: String::new(),
            hardware_address: String::new(),
            ips: Vec::new(),
        },
    };
    let before = plans.outcome(uid, key).ok().flatten();
    let same = before.is_some_and(|before| {
        let at = before.at;
        before
            == Outcome {
                at,
                ..outcome.clone()
            }
    });
    if !same {
        step(
            || "write the outcome".into(),
            plans.write_outcome(uid, key, &outcome),
        )?;
    }
    made.map(drop)
}

/// Checks that a namespace differs from that of this process, which is the node's.
fn is_own(namespace: &File) -> Result<(), String> {
    let of_pod = step(|| "network namespace".into(), namespace.metadata())?;
    let of_node = step(
        || "network namespace".into(),
        std::fs::metadata("/proc/thread-self/ns/net"),
    )?;
    match (of_pod.dev(), of_pod.ino()) == (of_node.dev(), of_node.ino()) {
        true => Err(
            "the container is in the network of the node: an interface of a claim needs a pod with a network of its own, \
             without hostNetwork"
                .into(),
        ),
        false => Ok(()),
    }
}

/// The links of the pod and of the node, among which a device's interface is found.
struct Links {
    pod: Vec<Link>,
    node: Vec<Link>,
}

impl Links {
    /// Finds the interface in the pod. `index` is the recorded one.
    fn find(
        &self,
        planned: &Planned,
        index: Option<u32>,
        interim: &str,
    ) -> Result<Option<&Link>, String> {
        let identity = &planned.identity;
        let kind = match planned.config.mode {
            Mode::HostDevice => {
                let found = identity.find_in_pod(&self.pod, &self.node, index, interim);
                return found.map_err(|error| error.to_string());
            }
            Mode::Macvlan => "macvlan",
            Mode::Ipvlan => "ipvlan",
            Mode::Vlan => "vlan",
        };
        let Some(parent) = self.parent(planned)? else {
            return Ok(None);
        };
        let on_it = self.pod.iter().filter(|it| {
            it.kind.as_deref() == Some(kind)
                && it.lower == Some(parent.index)
                && it.lower_is_elsewhere
        });
        Ok(recorded(on_it, index, interim))
    }

    /// The device's interface on the node.
    fn parent(&self, planned: &Planned) -> Result<Option<&Link>, String> {
        planned
            .identity
            .find(&self.node)
            .map_err(|error| error.to_string())
    }
}

/// Creates the interface, or completes an existing one.
fn ensure(
    planned: &Planned,
    uid: &str,
    namespace: &File,
    plans: &Plans,
) -> Result<Outcome, String> {
    let mut pod = step(
        || "network namespace of the pod".into(),
        Netlink::inside(namespace),
    )?;
    let mut node = step(|| "network of the node".into(), Netlink::here())?;
    let interim = planned.interim_name(uid);
    let mut location = Location {
        namespace: step(|| "network namespace".into(), Namespace::of(namespace))?,
        index: None,
    };
    let index = plans.index(uid, &planned.key, &location.namespace);
    let index = step(|| "location".into(), index)?;
    let mut links = Links {
        pod: step(|| "links of the pod".into(), pod.links())?,
        node: step(|| "links of the node".into(), node.links())?,
    };
    if links.find(planned, index, &interim)?.is_none() {
        // Recorded before the first change, so that the driver knows that there is something to restore.
        step(
            || "record the location".into(),
            plans.write_location(uid, &planned.key, &location),
        )?;
        let parent = links.parent(planned)?.ok_or_else(|| {
            format!(
                "interface {} is not on the node; it may be gone, or in the network of another pod of the claim",
                planned.parent
            )
        })?;
        create_or_move(&mut node, planned, uid, parent, namespace)?;
        links.pod = step(|| "links of the pod".into(), pod.links())?;
        links.node = step(|| "links of the node".into(), node.links())?;
    }
    let link = links
        .find(planned, index, &interim)?
        .ok_or("the interface that was created is not there")?;
    if index != Some(link.index) {
        location.index = Some(link.index);
        step(
            || "record the location".into(),
            plans.write_location(uid, &planned.key, &location),
        )?;
    }
    let mut name = link.name.clone();
    if name == interim {
        name = choose_name(planned, &links.pod)?;
        step(|| format!("set {name} down"), pod.set_up(link.index, false))?;
        step(
            || format!("rename to {name}"),
            pod.rename(link.index, &name),
        )?;
    }
    if let Some(mtu) = planned.config.mtu.filter(|mtu| *mtu != link.mtu) {
        step(|| format!("MTU {mtu}"), pod.set_mtu(link.index, mtu))?;
    }
    for address in &planned.addresses {
        let added = pod.add_address(link.index, &(*address).into());
        step(|| format!("address {address}"), in_use(added))?;
    }
    step(
        || format!("set {name} up"),
        in_use(pod.set_up(link.index, true)),
    )?;
    if let Some(loopback) = links.pod.iter().find(|it| it.name == "lo" && !it.up) {
        step(|| "set lo up".into(), pod.set_up(loopback.index, true))?;
    }
    // The pod may change its routes between its containers.
    let before = plans.outcome(uid, &planned.key).ok().flatten();
    let complete = index.is_some() && before.is_some_and(|it| it.error.is_none());
    for route in &planned.config.routes {
        let added = match pod.add_route(link.index, route.destination, route.gateway) {
            Err(error) if complete && error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            added => added,
        };
        step(|| format!("route to {}", route.destination), added)?;
    }
    let after = step(|| "links of the pod".into(), pod.links())?;
    let after = after.into_iter().find(|it| it.index == link.index);
    let link = after.ok_or("the interface is not there any more")?;
    let addresses = step(|| "addresses of the pod".into(), pod.addresses())?;
    let own = addresses.into_iter().filter(|it| it.link == link.index);
    Ok(Outcome {
        at: Timestamp::now(),
        error: None,
        interface_name: link.name,
        hardware_address: mac_text(&link.mac),
        ips: own
            .filter_map(|it| it.address.network())
            .map(|network| network.to_string())
            .collect(),
    })
}

/// Adds an explanation to `EADDRINUSE`.
fn in_use(result: io::Result<()>) -> io::Result<()> {
    result.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => io::Error::other(
            "another pod has this interface of the claim, or another one with its address on the same device",
        ),
        _ => error,
    })
}

/// Creates the link on top of `link`, the device's interface on the node, in the pod's namespace, or moves `link` there, under
/// its interim name.
fn create_or_move(
    node: &mut Netlink,
    planned: &Planned,
    uid: &str,
    link: &Link,
    namespace: &File,
) -> Result<(), String> {
    let (parent, config) = (&link.name, &planned.config);
    let interim = planned.interim_name(uid);
    let kind = match config.mode {
        Mode::HostDevice => {
            step(
                || format!("set {parent} down"),
                node.set_up(link.index, false),
            )?;
            return step(
                || format!("move {parent} to the pod"),
                node.move_to(link.index, &interim, namespace),
            );
        }
        Mode::Macvlan => {
            let mode = match config.macvlan_mode.unwrap_or_default() {
                MacvlanMode::Bridge => MacVlanMode::Bridge,
                MacvlanMode::Private => MacVlanMode::Private,
                MacvlanMode::Vepa => MacVlanMode::Vepa,
            };
            Kind::MacVlan(mode, planned.mac(uid))
        }
        Mode::Ipvlan => Kind::IpVlan(match config.ipvlan_mode.unwrap_or_default() {
            IpvlanMode::L2 => IpVlanMode::L2,
            IpvlanMode::L3 => IpVlanMode::L3,
            IpvlanMode::L3s => IpVlanMode::L3S,
        }),
        Mode::Vlan => Kind::Vlan(config.vlan_id.ok_or("a VLAN without a tag")?),
    };
    let made = node.make(&interim, link.index, &kind, namespace);
    step(
        || format!("make an interface on {parent}"),
        made.map_err(|error| match error.raw_os_error() {
            Some(libc_errno::EOPNOTSUPP) => io::Error::other(format!(
                "the node's kernel has no interfaces of this kind ({error})"
            )),
            Some(libc_errno::EEXIST) => {
                io::Error::other("there is one with this tag already, perhaps in another pod")
            }
            _ => error,
        }),
    )
}

/// Error numbers without a constant in the standard library.
mod libc_errno {
    pub(super) const EEXIST: i32 = 17;
    pub(super) const EOPNOTSUPP: i32 = 95;
}

/// The name in the pod: the requested one, for `host-device` the name on the node if free, or the first free `netN`.
fn choose_name(planned: &Planned, links: &[Link]) -> Result<String, String> {
    let taken = |name: &str| links.iter().any(|it| it.name == name);
    if let Some(name) = &planned.config.interface_name {
        return match taken(name) {
            true => Err(format!("the pod has an interface {name} already")),
            false => Ok(name.clone()),
        };
    }
    if planned.config.mode == Mode::HostDevice && !taken(&planned.parent) {
        return Ok(planned.parent.clone());
    }
    (1..INTERFACES)
        .map(|number| format!("net{number}"))
        .find(|name| !taken(name))
        .ok_or_else(|| "the pod has too many interfaces".to_owned())
}
