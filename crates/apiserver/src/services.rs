//! What the server gives to services: addresses of the cluster's range and ports of the nodes.
//!
//! The addresses and ports of a service are [reserved](Reserved) until it is stored, so that none is allocated twice
//! while webhooks run; the objects of kind IPAddress, which show the allocation, follow the services.

mod families;
mod ports;
mod ranges;
mod reserved;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use allot_apimachinery::Status;
use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::gvk::GroupKind;
use allot_store::{Error as StoreError, ListOptions, Write};
use serde_json::{Value, json};

use crate::config::ServiceAddresses;
use crate::error::{ApiError, Result};
use crate::object::{self, meta, text};
use crate::own_objects::{self, ensure};
use crate::state::ServerState;
use crate::storage;

const SERVICES: &str = "services";
const ADDRESSES: &str = "networking.k8s.io/ipaddresses";
const CIDRS: &str = "networking.k8s.io/servicecidrs";
/// Labels of an IPAddress that follows a service.
const MANAGED_BY: (&str, &str) = ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io");
/// `clusterIP` of a headless service.
const HEADLESS: &str = "None";
/// Random picks before every possibility is tried in turn.
const PICKS: usize = 64;

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
    families::set_defaults(service, old)?;
    let alone = pending.alone().await;
    let others = others(core, pending, service).await?;
    let had_address = old.is_some_and(|old| kind(old) != "ExternalName");
    if kind(service) != "ExternalName" && !had_address {
        give_address(core, service, &others, dry_run).await?;
    }
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

async fn give_address(
    core: &ServerState,
    service: &mut Value,
    others: &[Value],
    dry_run: bool,
) -> Result<()> {
    let named = list(service, "clusterIPs");
    let named = named
        .first()
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if named == HEADLESS {
        return Ok(());
    }
    let mut taken: BTreeSet<String> = others.iter().flat_map(addresses).collect();
    let page = core.backend.list(ADDRESSES, ListOptions::default()).await?;
    taken.extend(page.entries.iter().map(|entry| entry.key.to_string()));
    let ranges = ranges::current(core).await?;
    if named.is_empty() {
        let mut found = ranges.iter().filter_map(|range| free(range, &taken));
        let address = found.next().ok_or_else(|| {
            ApiError::from(Status::internal(
                "failed to allocate a serviceIP: range is full",
            ))
        })?;
        let address = address.to_string();
        service["spec"]["clusterIPs"] = json!([address]);
        service["spec"]["clusterIP"] = address.into();
        return Ok(());
    }
    let inside = match named.parse() {
        Ok(IpAddr::V4(address)) => ranges
            .iter()
            .any(|range| range.usable().contains(&address.to_bits())),
        _ => false,
    };
    let why = if inside && taken.contains(&named) && !dry_run {
        "provided IP is already allocated".to_owned()
    } else if inside {
        return Ok(());
    } else if dry_run {
        let range = core.config.service_addresses;
        format!(
            "the provided IP ({named}) is not in the valid range. The range of valid IPs is {range}"
        )
    } else {
        "the provided network does not match the current range".to_owned()
    };
    let detail = format!("failed to allocate IP {named}: {why}");
    let at = Path::new("spec").child("clusterIPs");
    Err(invalid(
        service,
        ErrorList::from([Error::invalid(&at, &service["spec"]["clusterIPs"], detail)]),
    ))
}

/// An address of a range that is not taken.
fn free(range: &ServiceAddresses, taken: &BTreeSet<String>) -> Option<Ipv4Addr> {
    let usable = range.usable();
    // The lower end is for addresses that users choose.
    let size = usable.end() - usable.start() + 1;
    let reserved = if size > 16 {
        (size / 16).clamp(16, 256)
    } else {
        0
    };
    let upper = usable.start() + reserved..=*usable.end();
    let found = pick(upper, usable, |number| {
        taken.contains(&Ipv4Addr::from_bits(number).to_string())
    });
    found.map(Ipv4Addr::from_bits)
}

/// A number that is not taken: at random in the preferred range first, then in order anywhere.
fn pick(
    preferred: std::ops::RangeInclusive<u32>,
    all: std::ops::RangeInclusive<u32>,
    taken: impl Fn(u32) -> bool,
) -> Option<u32> {
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
    let had: BTreeSet<String> = before.map(addresses).unwrap_or_default();
    let has: BTreeSet<String> = after.map(addresses).unwrap_or_default();
    if let Some(service) = after {
        for address in has.difference(&had) {
            show_address(core, address, service).await?;
        }
    }
    for address in had.difference(&has) {
        remove(core, ADDRESSES, address).await?;
    }
    if let (Some(gone), None) = (before, after) {
        remove(core, "endpoints", &key(gone)).await?;
    }
    Ok(())
}

/// Brings what an interrupted process left behind in order, and shows the range of addresses.
pub(crate) async fn start(core: &ServerState) -> Result<()> {
    let range = core.config.service_addresses.to_string();
    let now = object::now();
    let applied = own_objects::applied_condition(
        "networking.k8s.io/v1",
        "kubernetes-service-cidr-controller",
        "Ready",
        &["lastTransitionTime", "message", "status", "type"],
    );
    let cidr = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": ranges::DEFAULT, "managedFields": [applied]},
        "spec": {"cidrs": [range]},
        "status": {"conditions": [{
            "type": "Ready", "status": "True", "lastTransitionTime": now, "reason": "",
            "message": "Kubernetes default Service CIDR is ready",
        }]},
    });
    let known = core.backend.get(CIDRS, ranges::DEFAULT).await?;
    let known = known.and_then(|entry| serde_json::from_slice::<Value>(&entry.value).ok());
    if known.is_none_or(|known| known["spec"] != cidr["spec"]) {
        remove(core, CIDRS, ranges::DEFAULT).await?;
        ensure(
            &*core.backend,
            CIDRS,
            ranges::DEFAULT,
            cidr,
            own_objects::SERVER,
        )
        .await?;
    }
    let services = core.backend.list(SERVICES, ListOptions::default()).await?;
    let services = services.entries.iter();
    let services: Vec<Value> = services
        .filter_map(|entry| serde_json::from_slice(&entry.value).ok())
        .collect();
    let used: BTreeSet<String> = services.iter().flat_map(addresses).collect();
    for entry in core
        .backend
        .list(ADDRESSES, ListOptions::default())
        .await?
        .entries
    {
        let shown: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        if shown["metadata"]["labels"][MANAGED_BY.0] == MANAGED_BY.1 && !used.contains(&*entry.key)
        {
            remove(core, ADDRESSES, &entry.key).await?;
        }
    }
    for service in &services {
        for address in addresses(service) {
            show_address(core, &address, service).await?;
        }
    }
    Ok(())
}

async fn show_address(core: &ServerState, address: &str, service: &Value) -> Result<()> {
    let family = if address.contains(':') {
        "IPv6"
    } else {
        "IPv4"
    };
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

/// The addresses of a service.
fn addresses(service: &Value) -> BTreeSet<String> {
    let named = list(service, "clusterIPs").iter().filter_map(Value::as_str);
    named
        .chain([text(service, &["spec", "clusterIP"])])
        .filter(|address| !address.is_empty() && *address != HEADLESS)
        .map(str::to_owned)
        .collect()
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
