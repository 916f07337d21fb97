//! Whether the networks of a pod are to be had on a node: the rule behind the driver's answers to the scheduler.
//!
//! A node is suitable when every interface that the networks build on exists and is up, when an enabled pool with free
//! addresses is for pod and node, and when the subnet of such a pool is one of the interface's.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::labels;
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::interfaces::Interface;
use crate::objects::{IpPool, IpPoolSpec, MultusConfigSpec, NetworkName, PoolNames};
use crate::ranges::count;

/// Labels of an object.
pub type LabelMap = BTreeMap<String, String>;

/// The requests of a pod.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Its networks.
    pub networks: Vec<(NetworkName, MultusConfigSpec)>,
    /// Pools that its addresses must come from; those for the networks when empty.
    pub pools: Vec<String>,
    /// All networks must support RDMA.
    pub rdma: bool,
    /// Namespace of the pod.
    pub namespace: String,
    /// Labels of that namespace.
    pub namespace_labels: LabelMap,
    /// Labels of the pod.
    pub labels: LabelMap,
}

/// A node as far as it matters.
#[derive(Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: LabelMap,
    /// The reported interfaces; the error says that there are none, or why they are invalid.
    pub interfaces: Result<Vec<Interface>, String>,
}

/// An address that a network needs, and the pools that have one for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// The network.
    pub network: NetworkName,
    /// Names of the pools, and how many addresses each has left.
    pub pools: Vec<(String, u128)>,
}

/// Returns why a node is unsuitable; otherwise, which addresses are needed.
///
/// # Errors
/// The first reason, in words.
pub fn check(wanted: &Wanted, pools: &[IpPool], node: &Node) -> Result<Vec<Demand>, String> {
    let mut demands = Vec::new();
    if wanted.networks.is_empty() {
        return Ok(demands);
    }
    let interfaces = node.interfaces.as_ref().map_err(Clone::clone)?;
    for (name, config) in &wanted.networks {
        let mut masters = Vec::new();
        for master in config.masters() {
            let found = interfaces.iter().find(|i| i.name == master);
            let found = found.ok_or_else(|| format!("network {name}: no interface {master}"))?;
            if !found.up {
                return Err(format!("network {name}: interface {master} is down"));
            }
            if (wanted.rdma || config.link().is_some_and(|l| l.enable_rdma == Some(true)))
                && !found.rdma
            {
                return Err(format!("network {name}: interface {master} has no RDMA"));
            }
            masters.push(found);
        }
        demands.extend(check_pools(wanted, name, config, &masters, pools, node)?);
    }
    Ok(demands)
}

/// Whether there are addresses for all of them at the same time.
///
/// # Errors
/// The network that gets none, and its pools, in words.
pub fn together(demands: &[Demand]) -> Result<(), String> {
    let mut given: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, demand) in demands.iter().enumerate() {
        if !give(demands, index, &mut given, &mut BTreeSet::new()) {
            let pools: Vec<&str> = demand.pools.iter().map(|(name, _)| &**name).collect();
            return Err(format!(
                "network {}: the pod's networks need more addresses than {} {} left",
                demand.network,
                pools.join(" and "),
                if pools.len() == 1 { "has" } else { "have" },
            ));
        }
    }
    Ok(())
}

/// Assigns an address to a demand, if necessary by reassigning another demand's.
fn give<'a>(
    demands: &'a [Demand],
    index: usize,
    given: &mut BTreeMap<&'a str, Vec<usize>>,
    tried: &mut BTreeSet<&'a str>,
) -> bool {
    for (pool, free) in &demands[index].pools {
        if !tried.insert(pool) {
            continue;
        }
        let holders = given.entry(pool).or_default().clone();
        if (holders.len() as u128) < *free {
            given.entry(pool).or_default().push(index);
            return true;
        }
        let moved = holders
            .into_iter()
            .find(|h| give(demands, *h, given, tried));
        if let Some(moved) = moved {
            let holders = given.entry(pool).or_default();
            holders.retain(|h| *h != moved);
            holders.push(index);
            return true;
        }
    }
    false
}

fn check_pools(
    wanted: &Wanted,
    network: &NetworkName,
    config: &MultusConfigSpec,
    masters: &[&Interface],
    pools: &[IpPool],
    node: &Node,
) -> Result<Vec<Demand>, String> {
    let mut demands = Vec::new();
    if config.disable_ipam == Some(true) {
        return Ok(demands);
    }
    let candidates = candidates(wanted, network, config, pools)?;
    // An interface gets an address of every family for which there is a pool.
    let is_v6 = |pool: &&IpPool| pool.spec.subnet.contains(':');
    let (v6, v4): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_v6);
    for family in [v4, v6].into_iter().filter(|pools| !pools.is_empty()) {
        let (mut suitable, mut refused) = (Vec::new(), String::new());
        for pool in family {
            let name = pool.metadata.name.as_deref().unwrap_or_default();
            let free = serves(wanted, network, pool, node)
                .and_then(|free| reaches(config, masters, pool).map(|()| free));
            match free {
                Ok(free) => suitable.push((name.to_owned(), free)),
                Err(why) => refused = format!("network {network}: pool {name} {why}"),
            }
        }
        if suitable.is_empty() {
            return Err(refused);
        }
        demands.push(Demand {
            network: network.clone(),
            pools: suitable,
        });
    }
    Ok(demands)
}

/// The candidate pools: those that the claim or the pod names, else those that the network names, else those for the
/// network or for all.
///
/// Spiderpool uses pools for the network only when they are the default as well; then the example of its own
/// documentation has no pool at all.
fn candidates<'a>(
    wanted: &Wanted,
    network: &NetworkName,
    config: &MultusConfigSpec,
    pools: &'a [IpPool],
) -> Result<Vec<&'a IpPool>, String> {
    let own = config.pools().map(PoolNames::all).unwrap_or_default();
    let named = [&wanted.pools, &own].into_iter().find(|n| !n.is_empty());
    if let Some(names) = named {
        let find = |name: &String| {
            let found = pools
                .iter()
                .find(|p| p.metadata.name.as_ref() == Some(name));
            found.ok_or_else(|| format!("there is no SpiderIPPool {name}"))
        };
        return names.iter().map(find).collect();
    }
    let suits = |pool: &&IpPool| {
        let spec = &pool.spec;
        is_for(&spec.multus_name, network) || spec.default && spec.multus_name.is_empty()
    };
    Ok(pools.iter().filter(suits).collect())
}

fn is_for(names: &[String], network: &NetworkName) -> bool {
    names
        .iter()
        .any(|name| NetworkName::read(name, crate::SYSTEM_NAMESPACE) == *network)
}

/// How many addresses a pool has left for this pod on this node: at least one.
fn serves(
    wanted: &Wanted,
    network: &NetworkName,
    pool: &IpPool,
    node: &Node,
) -> Result<u128, String> {
    let spec = &pool.spec;
    let ending = pool.metadata.deletion_timestamp.is_some();
    if !spec.multus_name.is_empty() && !is_for(&spec.multus_name, network) {
        return Err("is for other networks".to_owned());
    }
    is_for_pod(wanted, spec, ending, node)?;
    let taken = pool.status.as_ref().and_then(|s| s.allocated_ip_count);
    let taken = u128::try_from(taken.unwrap_or(0)).unwrap_or(0);
    let all = count(spec.ips.iter().map(String::as_str));
    let excluded = count(spec.exclude_ips.iter().map(String::as_str));
    match all.saturating_sub(excluded).saturating_sub(taken) {
        0 => Err("has no free address".to_owned()),
        free => Ok(free),
    }
}

/// Whether a pool that is not for certain networks gives addresses to a pod on a node.
pub(crate) fn is_for_pod(
    wanted: &Wanted,
    spec: &IpPoolSpec,
    ending: bool,
    node: &Node,
) -> Result<(), String> {
    if spec.disable || ending {
        return Err("is disabled".to_owned());
    }
    // A list of names replaces the affinity.
    let for_node = match spec.node_name.is_empty() {
        true => selects(spec.node_affinity.as_ref(), &node.labels)?,
        false => spec.node_name.contains(&node.name),
    };
    if !for_node {
        return Err("is for other nodes".to_owned());
    }
    let for_namespace = match spec.namespace_name.is_empty() {
        true => selects(spec.namespace_affinity.as_ref(), &wanted.namespace_labels)?,
        false => spec.namespace_name.contains(&wanted.namespace),
    };
    if !for_namespace {
        return Err("is for other namespaces".to_owned());
    }
    if !selects(spec.pod_affinity.as_ref(), &wanted.labels)? {
        return Err("is for other pods".to_owned());
    }
    Ok(())
}

fn selects(selector: Option<&LabelSelector>, of: &LabelMap) -> Result<bool, String> {
    let Some(selector) = selector else {
        return Ok(true);
    };
    let value = serde_json::to_value(selector).map_err(|e| e.to_string())?;
    let selector = labels::LabelSelector::from_json(&value).and_then(|s| s.to_selector());
    let selector = selector.map_err(|e| format!("has a bad selector: {e}"))?;
    Ok(selector.matches(of))
}

/// Whether the subnet of a pool is on one of the interfaces. A VLAN is another network than its interface's, and an
/// interface without an address of the family is inconclusive.
fn reaches(config: &MultusConfigSpec, masters: &[&Interface], pool: &IpPool) -> Result<(), String> {
    let text = &pool.spec.subnet;
    let subnet: IpNet = text
        .parse()
        .map_err(|_| format!("has a bad subnet {text:?}"))?;
    let tagged = config.link().is_some_and(|l| {
        l.vlan_id.is_some_and(|id| id != 0) || l.master.len() > 1 || l.bond.is_some()
    });
    let same_family = |n: &IpNet| n.addr().is_ipv4() == subnet.addr().is_ipv4();
    let networks = masters.iter().flat_map(|m| m.networks());
    let networks: Vec<IpNet> = networks.filter(same_family).collect();
    let overlaps = |n: &IpNet| n.contains(&subnet.network()) || subnet.contains(&n.network());
    if tagged || networks.is_empty() || networks.iter().any(overlaps) {
        return Ok(());
    }
    let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
    Err(format!(
        "is of subnet {subnet}, the interface is in {}",
        networks.join(", ")
    ))
}

#[cfg(test)]
mod tests;
