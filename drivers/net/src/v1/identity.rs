//! The identity of an interface: what a pod cannot change, even with `NET_ADMIN` in its network namespace.
//!
//! Name, alias, hardware address, MTU and addresses of an interface in a pod belong to the pod, and it can give other
//! interfaces those of this one. The driver therefore records the identity in its own files before the interface is moved,
//! and finds it by nothing else: hardware by its device on the bus, a veth by its peer, which stays on the node, and
//! others by their index on the node, to which they do not return.

use allot_driver::boot_id;
use allot_netlink::{Link, mac_text};
use serde::{Deserialize, Serialize};

/// The identity of an interface of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Identity {
    /// A port of a hardware device.
    Hardware {
        /// The bus, such as `pci`.
        bus: String,
        /// Name of the device on the bus.
        name: String,
        /// Whether the interface refers to a lower one. A pod can create such interfaces on some hardware (InfiniBand
        /// partitions), and they return to the node as well.
        stacked: bool,
        /// Whether the device had no other such interface. Otherwise the following fields distinguish them.
        only: bool,
        /// The permanent hardware address, which is stored in the device.
        permanent_address: String,
        /// Name of the physical port.
        port: String,
    },
    /// A link without hardware.
    Virtual {
        /// Link kind: `veth`, `dummy`, …
        kind: Option<String>,
        /// The boot in which `index` and `peer` are valid.
        boot: String,
        /// Index on the node.
        index: u32,
        /// Index of the other end of a veth pair, if it is on the node.
        peer: Option<u32>,
        /// Name, for another boot.
        name: String,
        /// Hardware address, for another boot.
        mac: String,
    },
}

/// Several interfaces have one identity.
#[derive(Debug, thiserror::Error)]
#[error("interfaces {0} and {1} cannot be told apart")]
pub struct Ambiguous(String, String);

/// The boot for a record; empty if the kernel does not say which one it is.
pub(super) fn boot() -> String {
    boot_id().unwrap_or_default().to_owned()
}

/// Whether something was recorded in the current boot. Without an ID, it is not known to be.
pub(super) fn is_this_boot(recorded: &str) -> bool {
    is_boot(recorded, boot_id())
}

fn is_boot(recorded: &str, current: Option<&str>) -> bool {
    current.is_some_and(|current| current == recorded)
}

impl Identity {
    /// The identity of `link`, one of the node's `links`.
    pub fn of(link: &Link, links: &[Link]) -> Self {
        let Some((name, bus)) = &link.hardware else {
            let is_pair = link.kind.as_deref() == Some("veth") && !link.lower_is_elsewhere;
            return Self::Virtual {
                kind: link.kind.clone(),
                boot: boot(),
                index: link.index,
                peer: link.lower.filter(|_| is_pair),
                name: link.name.clone(),
                mac: mac_text(&link.mac),
            };
        };
        let stacked = link.lower.is_some();
        let same = |it: &&Link| it.hardware == link.hardware && it.lower.is_some() == stacked;
        Self::Hardware {
            bus: bus.clone(),
            name: name.clone(),
            stacked,
            only: links.iter().filter(same).count() <= 1,
            permanent_address: mac_text(&link.permanent_mac),
            port: link.port.clone(),
        }
    }

    /// Whether the identity holds in every namespace, so that neither a name nor a recorded index is needed to find the
    /// interface in a pod.
    pub fn is_global(&self) -> bool {
        matches!(
            self,
            Self::Hardware { .. } | Self::Virtual { peer: Some(_), .. }
        )
    }

    /// Whether a link on the node is this interface.
    pub fn is(&self, link: &Link) -> bool {
        match self {
            Self::Hardware { .. } => self.is_port(link),
            Self::Virtual {
                kind,
                boot: recorded,
                index,
                peer,
                name,
                mac,
            } => {
                link.hardware.is_none()
                    && link.kind == *kind
                    && match peer {
                        _ if !is_this_boot(recorded) => {
                            link.name == *name && mac_text(&link.mac) == *mac
                        }
                        Some(peer) => link.lower == Some(*peer) && !link.lower_is_elsewhere,
                        None => link.index == *index,
                    }
            }
        }
    }

    /// Whether a link on the node was created on top of this interface, as a pod that has it can do (an InfiniBand partition).
    pub fn carries(&self, link: &Link) -> bool {
        let Self::Hardware {
            bus,
            name,
            stacked: false,
            ..
        } = self
        else {
            return false;
        };
        let device = link.hardware.as_ref();
        link.lower.is_some() && device.is_some_and(|(own, its)| own == name && its == bus)
    }

    /// Whether a link in the namespace of a pod may be this interface; `node` has the links of the node. If the identity is
    /// not global, only the kind of the link is compared.
    fn is_in_pod(&self, link: &Link, node: &[Link]) -> bool {
        match self {
            Self::Hardware { .. } => self.is_port(link),
            Self::Virtual { kind, peer, .. } => {
                link.hardware.is_none()
                    && link.kind == *kind
                    && peer.is_none_or(|peer| {
                        // Both ends refer to each other. The one on the node is beyond the pod's control.
                        let other = node.iter().find(|it| it.index == peer);
                        link.lower == Some(peer)
                            && link.lower_is_elsewhere
                            && other.is_some_and(|it| {
                                it.lower == Some(link.index) && it.lower_is_elsewhere
                            })
                    })
            }
        }
    }

    fn is_port(&self, link: &Link) -> bool {
        let Self::Hardware {
            bus,
            name,
            stacked,
            only,
            permanent_address,
            port,
        } = self
        else {
            return false;
        };
        let device = link.hardware.as_ref();
        device.is_some_and(|(own, own_bus)| own == name && own_bus == bus)
            && link.lower.is_some() == *stacked
            && (*only
                || (mac_text(&link.permanent_mac) == *permanent_address && link.port == *port))
    }

    /// Finds the interface among the links of the node.
    ///
    /// # Errors
    /// Several links have this identity.
    pub fn find<'a>(&self, links: &'a [Link]) -> Result<Option<&'a Link>, Ambiguous> {
        one(links.iter().filter(|it| self.is(it)))
    }

    /// Finds the interface among the links of a pod: by its identity if that is global, otherwise by the index that was
    /// recorded, or by the interim name.
    ///
    /// # Errors
    /// Several links have this identity.
    pub fn find_in_pod<'a>(
        &self,
        links: &'a [Link],
        node: &[Link],
        index: Option<u32>,
        interim: &str,
    ) -> Result<Option<&'a Link>, Ambiguous> {
        let ours = links.iter().filter(|it| self.is_in_pod(it, node));
        match self.is_global() {
            true => one(ours),
            false => Ok(recorded(ours, index, interim)),
        }
    }
}

/// Of several links the one with the recorded index, or with the interim name.
pub(super) fn recorded<'a>(
    links: impl Iterator<Item = &'a Link> + Clone,
    index: Option<u32>,
    interim: &str,
) -> Option<&'a Link> {
    let mut by_index = links.clone().filter(|it| Some(it.index) == index);
    by_index
        .next()
        .or_else(|| links.clone().find(|it| it.name == interim))
}

fn one<'a>(mut links: impl Iterator<Item = &'a Link>) -> Result<Option<&'a Link>, Ambiguous> {
    match (links.next(), links.next()) {
        (Some(one), Some(other)) => Err(Ambiguous(one.name.clone(), other.name.clone())),
        (found, _) => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(index: u32, name: &str) -> Link {
        Link {
            index,
            name: name.to_owned(),
            hardware: Some(("0000:17:00.0".to_owned(), "pci".to_owned())),
            permanent_mac: vec![2, 0, 0, 0, 0, u8::try_from(index).unwrap_or_default()],
            ..Link::default()
        }
    }

    #[test]
    fn hardware_is_found_whatever_a_pod_calls_it() {
        let before = port(2, "eth1");
        let identity = Identity::of(&before, std::slice::from_ref(&before));
        // The pod changed everything that it can, and created an InfiniBand partition on it.
        let mut after = port(9, "eth2");
        after.mac = vec![2, 6, 6, 6, 6, 6];
        after.alias = "eth3".to_owned();
        let mut partition = port(10, "eth1");
        partition.lower = Some(9);
        // Another card has the name and hardware address that this one had.
        let mut other = port(3, "eth1");
        other.mac.clone_from(&before.mac);
        other.hardware = Some(("0000:18:00.0".to_owned(), "pci".to_owned()));
        let links = [partition, other, after];
        let found = identity.find(&links).expect("one").expect("found");
        assert_eq!(found.index, 9);
        assert!(identity.find(&links[..2]).expect("none").is_none());
    }

    #[test]
    fn ports_of_one_device_are_told_apart() {
        let ports = [port(2, "eth1"), port(3, "eth2")];
        let identity = Identity::of(&ports[1], &ports);
        assert_eq!(identity.find(&ports).expect("one"), Some(&ports[1]));
        assert_eq!(
            identity.find(&ports[..1]).expect("none"),
            None,
            "the other port is not it"
        );
        let twins = [port(3, "a"), port(3, "b")];
        let refused = identity.find(&twins).expect_err("ambiguous");
        assert_eq!(
            refused.to_string(),
            "interfaces a and b cannot be told apart"
        );
    }

    #[test]
    fn another_boot_has_other_indexes() {
        let bond = |index: u32, name: &str| Link {
            index,
            name: name.to_owned(),
            kind: Some("bond".to_owned()),
            ..Link::default()
        };
        let mut identity = Identity::of(&bond(5, "bond0"), &[]);
        assert!(identity.is(&bond(5, "renamed")) && !identity.is(&bond(6, "bond0")));
        let Identity::Virtual { boot, .. } = &mut identity else {
            panic!("a bond has no hardware");
        };
        "an earlier one".clone_into(boot);
        assert!(identity.is(&bond(6, "bond0")) && !identity.is(&bond(5, "bond1")));
    }

    /// On a machine without a boot ID, no reboot was noticed: the empty ID was equal to itself.
    #[test]
    fn regression_an_unknown_boot_is_never_the_current_one() {
        assert!(is_boot("a", Some("a")) && !is_boot("a", Some("b")));
        assert!(!is_boot("", None) && !is_boot("a", None) && !is_boot("", Some("a")));
    }

    #[test]
    fn an_identity_is_read_back_from_its_record() {
        for link in [port(2, "eth1"), Link::default()] {
            let identity = Identity::of(&link, &[]);
            let text = serde_json::to_string(&identity).expect("JSON");
            let again: Identity = serde_json::from_str(&text).expect("read");
            assert_eq!(again, identity);
        }
    }
}
