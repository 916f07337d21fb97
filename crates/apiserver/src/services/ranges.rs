//! The ranges that services get addresses from: those of the ServiceCIDRs.

use allot_store::ListOptions;
use serde_json::Value;

use super::CIDRS;
use crate::config::ServiceAddresses;
use crate::error::Result;
use crate::object::strings;
use crate::state::ServerState;

/// The ServiceCIDR of the server's own range.
pub(super) const DEFAULT: &str = "kubernetes";

/// The ranges that are in use, the server's own first; a range that is about to be deleted gives no addresses any more.
pub(super) async fn current(core: &ServerState) -> Result<Vec<ServiceAddresses>> {
    let own = core.config.service_addresses;
    let page = core.backend.list(CIDRS, ListOptions::default()).await?;
    let mut ranges = Vec::new();
    if page.entries.iter().all(|entry| &*entry.key != DEFAULT) {
        ranges.push(own);
    }
    for entry in &page.entries {
        // What the store holds was written by this server as JSON.
        let cidr: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        if is_ready(&cidr) {
            // Those of IPv6 have no use: services have addresses of IPv4 here.
            let networks = strings(&cidr["spec"]["cidrs"]);
            ranges.extend(
                networks
                    .iter()
                    .filter_map(|it| it.parse::<ServiceAddresses>().ok()),
            );
        }
    }
    ranges.sort_by_key(|range| *range != own);
    ranges.dedup();
    Ok(ranges)
}

/// Whether a ServiceCIDR gives addresses. One without a condition does: its controller may not run.
fn is_ready(cidr: &Value) -> bool {
    let conditions = cidr["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    cidr["metadata"]["deletionTimestamp"].is_null()
        && conditions
            .find(|it| it["type"] == "Ready")
            .is_none_or(|it| it["status"] == "True")
}
