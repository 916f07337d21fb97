//! Interfaces of the node that are moved into the network of a pod, because a device of a container names them
//! (`netDevices` of CDI and of the OCI runtime specification, version 1.3).
//!
//! libcontainer can move them as well. It is done here because containers restart, and several containers of a pod share a
//! device: then the interface has been moved before, which an OCI runtime reports as missing. Besides, libcontainer sets an
//! interface down before it reads its addresses, by which the kernel removes those of IPv6, and leaves an interface in the
//! pod under its old name if the new one is taken.
//!
//! An interface is recorded before it is moved, with its addresses, and the record is changed when the interface is
//! complete: an agent that is killed in between is followed by one that completes it. As the specification requires,
//! nothing moves an interface back. When the network of the pod ends the kernel returns hardware to the node, under the
//! name that it had in the pod, and removes virtual interfaces.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use allot_cdi::NetDevice;
use allot_netlink::{Address, Link, Netlink};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::error::PathError;
use crate::spec;

#[cfg(test)]
mod tests;

/// Longest name of an interface (`IFNAMSIZ` without the final NUL).
const LONGEST: usize = 15;
/// Part of a name that stands for the first free number.
const NUMBER: &str = "%d";

/// One container at a time: an interface can be wanted by two pods, and a name by two containers of a pod.
static TURN: Mutex<()> = Mutex::new(());

/// Why interfaces are not moved into the network of a pod.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MoveError {
    /// The kernel permits no such name.
    #[error("{0:?} is not a valid name of a network interface")]
    Name(String),
    /// Two interfaces would have one name.
    #[error("network interfaces {0:?} and {1:?} would both be named {2:?} in the pod")]
    SameName(String, String, String),
    /// One interface would have two names.
    #[error("network interface {0:?} would be named {1:?} and {2:?} in the pod")]
    TwoNames(String, String, String),
    /// It does not exist, or is in another network namespace.
    #[error("there is no network interface {0:?} on this node")]
    Missing(String),
    /// The node needs it.
    #[error("network interface {name:?} cannot be moved into the pod: {reason}")]
    Needed {
        /// The interface.
        name: String,
        /// What the node needs it for.
        reason: String,
    },
    /// Another interface in the pod has the name.
    #[error("the network of the pod already has an interface {0:?}")]
    Taken(String),
    /// The kernel refuses a step.
    #[error("network interface {name:?}: {step}: {source}")]
    Step {
        /// The interface.
        name: String,
        /// The step.
        step: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A network namespace cannot be opened or queried.
    #[error("network of the pod: {0}")]
    Namespace(#[from] io::Error),
    /// What has been moved cannot be read or recorded.
    #[error(transparent)]
    Record(#[from] PathError),
}

/// An interface that is moved, or has been.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Moved {
    /// The namespace that it is moved to, by the number of its file.
    namespace: u64,
    device: NetDevice,
    /// Its name in the pod: that of the device, with the number that was free.
    name: String,
    mac: Vec<u8>,
    addresses: Vec<Address>,
    /// Its index in the pod, once it has its name and addresses and was set up. What becomes of it then is up to the pod.
    complete: Option<u32>,
}

impl Moved {
    fn find<'a>(&self, inside: &'a [Link]) -> Option<&'a Link> {
        if let Some(index) = self.complete {
            return inside.iter().find(|link| link.index == index);
        }
        let names = [&self.name, &self.device.host_interface_name];
        let mut found = names.into_iter().filter_map(|name| named(inside, name));
        found.find(|link| link.mac == self.mac)
    }
}

/// Checks what does not depend on the machine: names that are valid, and no two interfaces with one name.
///
/// # Errors
/// The first interface at fault.
pub(crate) fn check(wanted: &[NetDevice]) -> Result<(), MoveError> {
    let (mut by_name, mut by_host) = (BTreeMap::new(), BTreeMap::new());
    for NetDevice {
        host_interface_name: host,
        name,
    } in wanted
    {
        let number = name.matches('%').count();
        let is_valid = is_valid(name) && (number == 0 || number == name.matches(NUMBER).count());
        if !is_valid || number > 1 {
            return Err(MoveError::Name(name.clone()));
        }
        if !is_valid_host(host) {
            return Err(MoveError::Name(host.clone()));
        }
        if host == "lo" {
            let reason = "it is the loopback interface";
            return Err(needed(host, reason));
        }
        if let Some(other) = by_host.insert(host, name).filter(|other| *other != name) {
            let names = [host, other, name].map(String::clone);
            let [host, other, name] = names;
            return Err(MoveError::TwoNames(host, other, name));
        }
        let other = by_name.insert(name, host).filter(|other| *other != host);
        if let Some(other) = other.filter(|_| number == 0) {
            let names = [other, host, name].map(String::clone);
            let [other, host, name] = names;
            return Err(MoveError::SameName(other, host, name));
        }
    }
    Ok(())
}

/// The kernel's rule for new names (`dev_valid_name`).
fn is_valid(name: &str) -> bool {
    let forbidden = |c: char| matches!(c, '/' | ':' | '\0') || c.is_whitespace();
    !matches!(name, "" | "." | "..") && name.len() <= LONGEST && !name.contains(forbidden)
}

fn is_valid_host(name: &str) -> bool {
    is_valid(name) && !name.contains('%')
}

fn needed(name: &str, reason: &str) -> MoveError {
    MoveError::Needed {
        name: name.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Moves interfaces of the node into the network namespace of a pod, unless they are there already. `record` is the file with
/// those that were moved for the pod. Blocks, while the kernel or another call is at work.
///
/// # Errors
/// The first interface that is not moved; those before it are in the pod, and stay there for the next attempt.
pub(crate) fn move_into(
    namespace: &Path,
    record: &Path,
    wanted: &[NetDevice],
) -> Result<(), MoveError> {
    check(wanted)?;
    let _turn = TURN.lock();
    let file = File::open(namespace)?;
    let mut moves = Moves {
        number: file.metadata()?.ino(),
        node: Netlink::here()?,
        pod: Netlink::inside(&file)?,
        namespace: file,
        moved: read(record)?,
    };
    // Of a namespace that is gone, or of another one that an NRI plugin has named.
    let number = moves.number;
    moves.moved.retain(|it| it.namespace == number);
    for device in wanted {
        moves.ensure(device, record)?;
    }
    Ok(())
}

fn read(record: &Path) -> Result<Vec<Moved>, PathError> {
    match spec::read(record) {
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// The moves into one namespace.
struct Moves {
    namespace: File,
    number: u64,
    node: Netlink,
    pod: Netlink,
    moved: Vec<Moved>,
}

impl Moves {
    fn ensure(&mut self, device: &NetDevice, record: &Path) -> Result<(), MoveError> {
        let inside = self.pod.links()?;
        if let Some(at) = self.moved.iter().position(|it| it.device == *device) {
            match self.moved[at].find(&inside) {
                Some(_) if self.moved[at].complete.is_some() => return Ok(()),
                Some(link) => return self.complete(at, link, record),
                // It was never moved, or the pod has removed it: there may be a new one.
                None => drop(self.moved.remove(at)),
            }
        }
        let link = self.find(&device.host_interface_name)?;
        let name = free(&device.name, &inside);
        if named(&inside, &name).is_some() {
            return Err(MoveError::Taken(name));
        }
        let addresses = kept(&mut self.node, link.index);
        let at = self.moved.len();
        self.moved.push(Moved {
            namespace: self.number,
            device: device.clone(),
            name: name.clone(),
            mac: link.mac.clone(),
            addresses: addresses.map_err(step(&link.name, "reading its addresses"))?,
            complete: None,
        });
        spec::write(record, &self.moved)?;
        let moved = self.node.move_to(link.index, &name, &self.namespace);
        moved.map_err(step(&link.name, "moving it into the pod"))?;
        let inside = self.pod.links()?;
        match self.moved[at].find(&inside) {
            Some(link) => self.complete(at, link, record),
            None => Err(MoveError::Missing(link.name)),
        }
    }

    /// The interface of the node, if the node can do without it.
    fn find(&mut self, name: &str) -> Result<Link, MoveError> {
        let links = self.node.links()?;
        let link = named(&links, name).ok_or_else(|| MoveError::Missing(name.to_owned()))?;
        if link.is_loopback {
            return Err(needed(name, "it is the loopback interface"));
        }
        let by_index = |index: u32| links.iter().find(|link| link.index == index);
        if let Some(controller) = link.controller {
            let controller = by_index(controller).map_or("another one", |it| it.name.as_str());
            return Err(needed(name, &format!("it is part of {controller}")));
        }
        for uplink in self.node.uplinks()? {
            let mut below = Some(uplink.link);
            // Links are on top of each other; the peers of a pair name each other.
            for _ in 0..links.len() {
                match below.and_then(by_index) {
                    Some(found) if found.index == link.index => {
                        return Err(needed(name, "a default route of the node uses it"));
                    }
                    found => below = found.and_then(lower),
                }
            }
        }
        Ok(link.clone())
    }

    /// Gives an interface that is in the pod its name and its addresses, and sets it up.
    fn complete(&mut self, at: usize, link: &Link, record: &Path) -> Result<(), MoveError> {
        let (moved, pod) = (&mut self.moved[at], &mut self.pod);
        if link.name != moved.name {
            let renamed = pod.rename(link.index, &moved.name);
            renamed.map_err(step(&link.name, "renaming it in the pod"))?;
        }
        for address in &moved.addresses {
            let added = pod.add_address(link.index, address);
            added.map_err(step(&moved.name, "giving it its addresses in the pod"))?;
        }
        let up = pod.set_up(link.index, true);
        up.map_err(step(&moved.name, "setting it up in the pod"))?;
        moved.complete = Some(link.index);
        spec::write(record, &self.moved)?;
        Ok(())
    }
}

fn step(name: &str, step: &'static str) -> impl FnOnce(io::Error) -> MoveError {
    move |source| MoveError::Step {
        name: name.to_owned(),
        step,
        source,
    }
}

/// The addresses of a link that stay with it when it is moved.
fn kept(node: &mut Netlink, link: u32) -> io::Result<Vec<Address>> {
    let all = node.addresses()?.into_iter();
    let kept = all.filter(|it| it.link == link && it.is_permanent);
    Ok(kept.map(|it| it.address).collect())
}

/// The link below another one, or its peer, in the same namespace.
fn lower(link: &Link) -> Option<u32> {
    link.lower.filter(|_| !link.lower_is_elsewhere)
}

fn named<'a>(links: &'a [Link], name: &str) -> Option<&'a Link> {
    links.iter().find(|link| link.name == name)
}

/// A name with the first number that is free in its place, if it has one.
fn free(template: &str, inside: &[Link]) -> String {
    let names = (0..=inside.len()).map(|number| template.replace(NUMBER, &number.to_string()));
    let mut free = names.filter(|name| named(inside, name).is_none());
    free.next().unwrap_or_else(|| template.to_owned())
}
