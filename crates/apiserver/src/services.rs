//! What the server gives to services: addresses of the cluster's range and ports of the nodes.
//!
//! The addresses and ports of a service are [reserved](Reserved) until it is stored, so that none is allocated twice
//! while webhooks run; the objects of kind IPAddress, which show the allocation, follow the services.

mod addresses;
mod families;
mod ports;
mod ranges;
mod reach;
mod reserved;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use allot_apimachinery::field::ErrorList;
use allot_apimachinery::gvk::GroupKind;
use allot_apimachinery::{IpFamily, Status};
use allot_store::{Error as StoreError, ListOptions, Write};
use serde_json::{Value, json};

use crate::error::{ApiError, Result};
use crate::object::{meta, text};
use crate::own_objects::{self, ensure};
use crate::state::ServerState;
use crate::storage;
use crate::validate::ip;

const SERVICES: &str = "services";
const ADDRESSES: &str = "networking.k8s.io/ipaddresses";
const CIDRS: &str = "networking.k8s.io/servicecidrs";
/// Labels of an IPAddress that follows a service.
const MANAGED_BY: (&str, &str) = ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io");
/// `clusterIP` of a headless service.
const HEADLESS: &str = "None";
/// Random picks before every possibility is tried in turn.
const PICKS: usize = 64;

pub(crate) use reach::is_host;
pub(crate) use reserved::{Pending, Reserved};

/// Allocates the addresses and ports that a new or changed service needs and does not name, and rejects those of other
/// services. They are reserved until the result is dropped, which must be after the service is stored.
pub(crate) async fn allocate(
    core: &ServerState,
    pending: &Pending,
    service: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<Reserved> {
    if old.is_none() {
        // Clients from before there were two addresses name one.
        let address = text(service, &["spec", "clusterIP"]).to_owned();
        if !address.is_empty() && list(service, "clusterIPs").is_empty() {
            service["spec"]["clusterIPs"] = json!([address]);
        }
    }
    if kind(service) == "ExternalName" {
        drop_internal_policy(service);
    }
    families::set_defaults(&core.config.service_addresses, service, old)?;
    let alone = pending.alone().await;
    let others = others(core, pending, service).await?;
    addresses::give(core, service, old, &others, dry_run).await?;
    ports::give(&core.config.node_ports, service, old, &others)?;
    Ok(pending.reserve(&alone, service, dry_run))
}

/// A service of type ExternalName has no traffic inside of the cluster: upstream removes the policy for it. An invalid
/// one is left for validation.
fn drop_internal_policy(service: &mut Value) {
    const POLICY: &str = "internalTrafficPolicy";
    if let Some(Value::Object(spec)) = service.get_mut("spec")
        && spec
            .get(POLICY)
            .is_some_and(|it| it == "Cluster" || it == "Local")
    {
        spec.remove(POLICY);
    }
}

/// All services but this one, those included that are about to be stored.
async fn others(core: &ServerState, pending: &Pending, service: &Value) -> Result<Vec<Value>> {
    // These come first: one that is stored in between would be missed otherwise.
    let mut others = pending.pending(service);
    let page = core.backend.list(SERVICES, ListOptions::default()).await?;
    let own = key(service);
    let entries = page.entries.iter().filter(|entry| *entry.key != *own);
    // What the store holds was written by this server as JSON.
    others.extend(entries.filter_map(|entry| serde_json::from_slice::<Value>(&entry.value).ok()));
    Ok(others)
}

/// The key of a service in the store.
fn key(service: &Value) -> String {
    format!("{}/{}", meta(service, "namespace"), meta(service, "name"))
}

/// How many numbers at the lower end of a range of `size` are left to users, who choose them: a part of the range within
/// upstream's bounds. The server picks them when no other number is free.
fn static_band(size: u128, part: u128, most: u128) -> u128 {
    const LEAST: u128 = 16;
    match size {
        ..=LEAST => 0,
        size => (size / part).clamp(LEAST, most),
    }
}

/// A number that is not taken: at random in the preferred range first, then in order anywhere. That ends after as many
/// tries as there are taken numbers, however large the range is.
fn pick(
    preferred: RangeInclusive<u128>,
    all: RangeInclusive<u128>,
    taken: impl Fn(u128) -> bool,
) -> Option<u128> {
    let picks = if preferred.is_empty() { 0 } else { PICKS };
    (0..picks)
        .map(|_| rand::random_range(preferred.clone()))
        .chain(preferred.clone())
        .chain(all)
        .find(|candidate| !taken(*candidate))
}

/// Updates the IPAddress objects to a changed service; deletes the endpoints of a deleted one.
pub(crate) async fn follow(
    core: &ServerState,
    before: Option<&Value>,
    after: Option<&Value>,
) -> Result<()> {
    let had: BTreeSet<IpAddr> = before.map(addresses).unwrap_or_default();
    let has: BTreeSet<IpAddr> = after.map(addresses).unwrap_or_default();
    if let Some(service) = after {
        for address in has.difference(&had) {
            show_address(core, *address, service).await?;
        }
    }
    for address in had.difference(&has) {
        remove(core, ADDRESSES, &address.to_string()).await?;
    }
    if let (Some(gone), None) = (before, after) {
        remove(core, "endpoints", &key(gone)).await?;
    }
    Ok(())
}

/// Brings what an interrupted process left behind in order, and shows the ranges of addresses.
pub(crate) async fn start(core: &Arc<ServerState>) -> Result<()> {
    let mut told = ranges::Told::default();
    ranges::sync_default(core, &mut told).await?;
    ranges::keep_default(core.clone(), told);
    let services = core.backend.list(SERVICES, ListOptions::default()).await?;
    let services = services.entries.iter();
    let services: Vec<Value> = services
        .filter_map(|entry| serde_json::from_slice(&entry.value).ok())
        .collect();
    let used: BTreeSet<IpAddr> = services.iter().flat_map(addresses).collect();
    for entry in core
        .backend
        .list(ADDRESSES, ListOptions::default())
        .await?
        .entries
    {
        let shown: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        let is_used = entry.key.parse().is_ok_and(|ip| used.contains(&ip));
        if shown["metadata"]["labels"][MANAGED_BY.0] == MANAGED_BY.1 && !is_used {
            remove(core, ADDRESSES, &entry.key).await?;
        }
    }
    for service in &services {
        for address in addresses(service) {
            show_address(core, address, service).await?;
        }
    }
    Ok(())
}

async fn show_address(core: &ServerState, address: IpAddr, service: &Value) -> Result<()> {
    let (address, family) = (address.to_string(), IpFamily::of(address).name());
    let shown = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {
            "name": address,
            "labels": {"ipaddress.kubernetes.io/ip-family": family, MANAGED_BY.0: MANAGED_BY.1},
        },
        "spec": {"parentRef": {
            "resource": "services",
            "namespace": meta(service, "namespace"), "name": meta(service, "name"),
        }},
    });
    ensure(
        &*core.backend,
        ADDRESSES,
        address,
        shown,
        own_objects::SERVER,
    )
    .await
}

/// Removes an object if it is there.
async fn remove(core: &ServerState, collection: &str, key: &str) -> Result<()> {
    while let Some(entry) = core.backend.get(collection, key).await? {
        let last: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        let write = Write::delete(collection, key, entry.revision, storage::draft(&last));
        match core.backend.commit(write).await {
            Ok(_) | Err(StoreError::NotFound) => break,
            Err(StoreError::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The addresses of a service. One that was written in an unusual way is the same address.
fn addresses(service: &Value) -> BTreeSet<IpAddr> {
    let named = list(service, "clusterIPs").iter().filter_map(Value::as_str);
    named
        .chain([text(service, &["spec", "clusterIP"])])
        .filter_map(|address| Some(ip::sloppy(address)?.to_canonical()))
        .collect()
}

/// The family of a name that validation has accepted.
fn family_named(name: &Value) -> IpFamily {
    let named = name.as_str().and_then(IpFamily::named);
    named.unwrap_or(IpFamily::V4)
}

/// A service without an address of its own.
fn is_headless(service: &Value) -> bool {
    list(service, "clusterIPs")
        .first()
        .is_some_and(|it| it == HEADLESS)
}

fn kind(service: &Value) -> &str {
    service["spec"]["type"].as_str().unwrap_or("ClusterIP")
}

fn list<'a>(service: &'a Value, key: &str) -> &'a [Value] {
    service["spec"][key].as_array().map_or(&[], Vec::as_slice)
}

fn invalid(service: &Value, errors: ErrorList) -> ApiError {
    Status::invalid(
        &GroupKind::new("", "Service"),
        meta(service, "name"),
        &errors,
    )
    .into()
}
