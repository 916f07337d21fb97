//! Restores an interface that was moved into a pod. The kernel returns hardware to the node when the pod's namespace is
//! gone, under the name it had in the pod; virtual interfaces are removed with the namespace.

use std::collections::BTreeSet;

use allot_driver::Failure;

use super::netlink::{Link, Netlink, mac_text};
use super::parameters::Mode;
use super::plan::{Planned, read_alias};

/// Restores the original state of a device's interface, regardless of how many steps of the hook completed.
///
/// # Errors
/// The interface is still in the pod's namespace, or the kernel rejects a change.
pub(super) fn restore(planned: &Planned, uid: &str) -> Result<(), Failure> {
    if planned.config.mode != Mode::HostDevice {
        return Ok(());
    }
    let mut node = Netlink::here()?;
    let links = node.links()?;
    let alias = planned.alias(uid);
    let (parent, original) = (&planned.parent, &planned.original);
    let Some(link) = links.iter().find(|it| it.alias == alias) else {
        let same = |it: &&Link| it.name == *parent && mac_text(&it.mac) == planned.parent_mac;
        let is_there = links.iter().find(same).is_some();
        let exists = original.hardware.as_ref().is_some_and(|it| it.exists());
        return match is_there || !exists {
            // The interface was not changed, is already restored, or was virtual and was removed with the namespace.
            true => Ok(()),
            false => Err(format!(
                "interface {parent} has not come back from the pod's network namespace yet"
            )
            .into()),
        };
    };
    rename_back(&mut node, link, &links, parent)?;
    if link.mtu != original.mtu {
        node.set_mtu(link.index, original.mtu)?;
    }
    for address in &original.addresses {
        node.add_address(link.index, *address)?;
    }
    node.set_up(link.index, original.up)?;
    // The alias is reset last: until then a retry can find the interface.
    node.set_alias(link.index, &original.alias)?;
    tracing::info!(interface = parent, "is back on the node");
    Ok(())
}

/// Restores the names of interfaces whose claims are unknown because the checkpoint was lost.
///
/// # Errors
/// An error from the kernel.
pub(super) fn restore_unknown(known: &BTreeSet<&str>) -> Result<(), Failure> {
    let mut node = Netlink::here()?;
    let links = node.links()?;
    for link in &links {
        let Some((_, _, name)) = read_alias(&link.alias).filter(|(uid, ..)| !known.contains(uid))
        else {
            continue;
        };
        rename_back(&mut node, link, &links, name)?;
        node.set_up(link.index, true)?;
        node.set_alias(link.index, "")?;
        tracing::warn!(
            interface = name,
            "belonged to a claim that is not known any more"
        );
    }
    Ok(())
}

fn rename_back(node: &mut Netlink, link: &Link, links: &[Link], name: &str) -> Result<(), Failure> {
    if link.name == name {
        return Ok(());
    }
    if links.iter().any(|it| it.name == name) {
        return Err(format!(
            "interface {} can not be called {name} again: another one is",
            link.name
        )
        .into());
    }
    node.set_up(link.index, false)?;
    node.rename(link.index, name)?;
    Ok(())
}
