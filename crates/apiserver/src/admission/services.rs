//! Addresses and ports of services.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::error::{ApiError, Result};
use crate::object::text;
use crate::server::Core;

/// First two bytes of the addresses that services get.
const NETWORK: (u8, u8) = (10, 96);
/// Ports that are opened on nodes.
const NODE_PORTS: std::ops::Range<u16> = 30000..32768;
/// Random picks before every possibility is tried in turn.
const PICKS: usize = 64;

/// Gives a new service an address and node ports unless it names them.
pub(super) async fn allocate(core: &Core, service: &mut Value) -> Result<()> {
    let kind = text(service, &["spec", "type"]).to_owned();
    if kind == "ExternalName" {
        return Ok(());
    }
    let page = core
        .backend
        .list("services", allot_store::ListOptions::default())
        .await?;
    let services: Vec<Value> = page
        .entries
        .iter()
        .filter_map(|entry| serde_json::from_slice(&entry.value).ok())
        .collect();
    let mut address = text(service, &["spec", "clusterIP"]).to_owned();
    if address.is_empty() {
        let taken: BTreeSet<&str> = services
            .iter()
            .map(|it| text(it, &["spec", "clusterIP"]))
            .collect();
        address = pick(
            |number: u16| {
                format!(
                    "{}.{}.{}.{}",
                    NETWORK.0,
                    NETWORK.1,
                    number >> 8,
                    number & 0xff
                )
            },
            1..0xffff,
            |it| taken.contains(it.as_str()),
        )
        .ok_or_else(|| ApiError::unknown("failed to allocate a serviceIP: range is full"))?;
        service["spec"]["clusterIP"] = address.as_str().into();
    }
    if service["spec"]["clusterIPs"]
        .as_array()
        .is_none_or(Vec::is_empty)
    {
        service["spec"]["clusterIPs"] = json!([address]);
    }
    if service["spec"]["ipFamilies"]
        .as_array()
        .is_none_or(Vec::is_empty)
    {
        service["spec"]["ipFamilies"] = json!(["IPv4"]);
    }
    if text(service, &["spec", "ipFamilyPolicy"]).is_empty() {
        service["spec"]["ipFamilyPolicy"] = "SingleStack".into();
    }
    let wants_ports = kind == "NodePort"
        || (kind == "LoadBalancer" && service["spec"]["allocateLoadBalancerNodePorts"] != false);
    if wants_ports {
        let ports = |service: &Value| -> Vec<u16> {
            let list = service["spec"]["ports"].as_array().into_iter().flatten();
            list.filter_map(|port| u16::try_from(port["nodePort"].as_u64()?).ok())
                .collect()
        };
        let mut taken: BTreeSet<u16> = services.iter().flat_map(ports).collect();
        taken.extend(ports(service));
        for port in service["spec"]["ports"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            if port["nodePort"].as_u64().unwrap_or(0) == 0 {
                let free = pick(|port| port, NODE_PORTS, |port| taken.contains(port)).ok_or_else(
                    || ApiError::unknown("failed to allocate a nodePort: range is full"),
                )?;
                taken.insert(free);
                port["nodePort"] = free.into();
            }
        }
    }
    Ok(())
}

/// Something that is not taken: at random first, then in order.
fn pick<T>(
    make: impl Fn(u16) -> T,
    range: std::ops::Range<u16>,
    taken: impl Fn(&T) -> bool,
) -> Option<T> {
    (0..PICKS)
        .map(|_| rand::random_range(range.clone()))
        .chain(range.clone())
        .map(make)
        .find(|candidate| !taken(candidate))
}
