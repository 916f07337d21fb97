//! Restores an interface that was moved into a pod. The kernel returns hardware to the node when the pod's namespace is
//! gone, as the pod left it; virtual interfaces are removed with the namespace.
//!
//! A pod with `NET_ADMIN` can return it with any name, alternative names, alias and hardware address, also those of another
//! interface. It is found by its identity and gets everything back that was recorded before it was moved.

use allot_driver::Failure;
use allot_netlink::{Link, Netlink, mac_text, parse_mac};

use super::parameters::Mode;
use super::plan::{Planned, Plans};

#[cfg(test)]
mod tests;

/// Restores the original state of a device's interface, regardless of how many steps of the hook completed. `held` are
/// the interfaces of all claims that are moved into pods: one of them may have returned under the name of this one.
///
/// # Errors
/// The interface is still in the pod's namespace, or the kernel rejects a change.
pub(super) fn restore(
    planned: &Planned,
    uid: &str,
    plans: &Plans,
    held: &[Planned],
) -> Result<(), Failure> {
    if planned.config.mode != Mode::HostDevice {
        return Ok(());
    }
    let mut node = Netlink::here()?;
    let links = node.links()?;
    let (parent, original) = (&planned.parent, &planned.original);
    let Some(link) = planned.identity.find(&links)? else {
        let exists = original.hardware.as_ref().is_some_and(|it| it.exists());
        return match exists {
            false => Ok(()),
            true => Err(format!(
                "interface {parent} has not come back from the pod's network namespace yet"
            )
            .into()),
        };
    };
    // Without a location no hook touched it, and what an administrator changed since stays.
    let is_touched = plans.is_located(uid, &planned.key)?;
    if !is_touched && link.name == *parent && mac_text(&link.mac) == planned.parent_mac {
        return Ok(());
    }
    let index = link.index;
    for name in &link.alternative_names {
        if !original.alternative_names.contains(name) {
            node.set_alternative_name(index, name, false)?;
        }
    }
    restore_name(&mut node, planned, link, &links, held)?;
    for name in &original.alternative_names {
        if link.alternative_names.contains(name) {
            continue;
        }
        match free_name(&mut node, name, link, &links, held)? {
            None => node.set_alternative_name(index, name, true)?,
            // An interface of the node: it keeps the name, and the claim does not wait for that.
            Some(other) => {
                tracing::warn!(
                    interface = parent,
                    name,
                    other,
                    "the alternative name is used by another interface"
                );
            }
        }
    }
    if mac_text(&link.mac) != planned.parent_mac
        && let Some(mac) = parse_mac(&planned.parent_mac)
    {
        node.set_up(index, false)?;
        node.set_mac(index, mac)?;
    }
    if link.mtu != original.mtu {
        node.set_mtu(index, original.mtu)?;
    }
    if link.promiscuous && !original.promiscuous {
        node.clear_promiscuous(index)?;
    }
    if link.alias != original.alias {
        node.set_alias(index, &original.alias)?;
    }
    for address in &original.addresses {
        node.add_address(index, &(*address).into())?;
    }
    node.set_up(index, original.up)?;
    tracing::info!(interface = parent, "is back on the node");
    Ok(())
}

/// Gives a link its name back.
fn restore_name(
    node: &mut Netlink,
    planned: &Planned,
    link: &Link,
    links: &[Link],
    held: &[Planned],
) -> Result<(), Failure> {
    let name = &planned.parent;
    if link.name == *name {
        return Ok(());
    }
    if free_name(node, name, link, links, held)?.is_some() {
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

/// Takes a recorded name of `link` from the interface that a pod gave it to. One that is called so gets an interim name.
/// Returns the name of an interface that keeps it.
fn free_name(
    node: &mut Netlink,
    name: &str,
    link: &Link,
    links: &[Link],
    held: &[Planned],
) -> Result<Option<String>, Failure> {
    let Some(other) = links
        .iter()
        .filter(|it| it.index != link.index)
        .find(|it| has_name(it, name))
    else {
        return Ok(None);
    };
    if !is_from_pod(other, name, held) {
        return Ok(Some(other.name.clone()));
    }
    match other.name == name {
        true => {
            node.set_up(other.index, false)?;
            node.rename(other.index, &format!("al-{}", other.index))?;
        }
        false => node.set_alternative_name(other.index, name, false)?,
    }
    Ok(None)
}

fn has_name(link: &Link, name: &str) -> bool {
    link.name == name || link.alternative_names.iter().any(|it| it == name)
}

/// Whether a pod gave this name to a link: one that came back from it and had other names before, or one that it created on top
/// of such an interface.
fn is_from_pod(link: &Link, name: &str, held: &[Planned]) -> bool {
    let had_name = |owner: &Planned| {
        owner.parent == name || owner.original.alternative_names.iter().any(|it| it == name)
    };
    match held.iter().find(|it| it.identity.is(link)) {
        Some(owner) => !had_name(owner),
        None => held.iter().any(|it| it.identity.carries(link)),
    }
}
