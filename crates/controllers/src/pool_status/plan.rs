//! Counting devices per pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use k8s_openapi::api::resource::v1alpha3::{
    ResourcePoolStatusRequest, ResourcePoolStatusRequestSpec,
};
use serde_json::{Value, json};

use crate::controller::clock::rfc3339;

#[cfg(test)]
mod tests;

/// How long answered requests are kept.
const KEEP_ANSWERED: SignedDuration = SignedDuration::from_hours(1);
/// How long unanswered requests are kept.
const KEEP_PENDING: SignedDuration = SignedDuration::from_hours(24);
/// Default limit of pools in an answer.
const DEFAULT_LIMIT: i32 = 100;
/// Longest `validationError` in bytes.
const MAX_ERROR: usize = 256;

/// When the request is to be deleted.
pub(super) fn expires(request: &ResourcePoolStatusRequest, now: Timestamp) -> Timestamp {
    let created = request
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(now, |t| t.0);
    match &request.status {
        None => created + KEEP_PENDING,
        Some(status) => {
            let conditions = status.conditions.iter().flatten();
            let last = conditions.map(|c| c.last_transition_time.0).max();
            last.unwrap_or(created) + KEEP_ANSWERED
        }
    }
}

/// The status to write, and how many pools in it are incomplete.
#[derive(Debug)]
pub(super) struct Answer {
    pub status: Value,
    pub incomplete: usize,
}

#[derive(Default)]
struct Pool {
    generation: i64,
    expected: i64,
    slices: i64,
    devices: usize,
    nodes: BTreeSet<Option<String>>,
    allocated: usize,
}

/// Counts the devices of the pools that the request selects.
pub(super) fn answer(
    spec: &ResourcePoolStatusRequestSpec,
    slices: &[Arc<ResourceSlice>],
    claims: &[Arc<ResourceClaim>],
    now: Timestamp,
) -> Answer {
    let wanted = |driver: &str, pool: &str| {
        driver == spec.driver && spec.pool_name.as_deref().is_none_or(|p| p == pool)
    };
    let mut pools: BTreeMap<&str, Pool> = BTreeMap::new();
    for slice in slices
        .iter()
        .map(|s| &s.spec)
        .filter(|s| wanted(&s.driver, &s.pool.name))
    {
        let pool = pools.entry(&slice.pool.name).or_default();
        if slice.pool.generation < pool.generation {
            continue;
        }
        if slice.pool.generation > pool.generation {
            *pool = Pool {
                generation: slice.pool.generation,
                ..Pool::default()
            };
        }
        pool.expected = slice.pool.resource_slice_count;
        pool.slices += 1;
        pool.devices += slice.devices.as_ref().map_or(0, Vec::len);
        pool.nodes.insert(slice.node_name.clone());
    }
    let results = claims
        .iter()
        .filter_map(|c| c.status.as_ref()?.allocation.as_ref()?.devices.as_ref())
        .flat_map(|d| d.results.iter().flatten());
    for result in results.filter(|r| wanted(&r.driver, &r.pool)) {
        if let Some(pool) = pools.get_mut(result.pool.as_str()) {
            pool.allocated += 1;
        }
    }
    let total = pools.len();
    let limit = usize::try_from(spec.limit.unwrap_or(DEFAULT_LIMIT)).unwrap_or(usize::MAX);
    let mut incomplete = 0;
    let listed: Vec<Value> = pools
        .iter()
        .take(limit)
        .map(|(name, pool)| {
            let mut entry = json!({
                "driver": spec.driver,
                "poolName": name,
                "generation": pool.generation,
            });
            if pool.slices != pool.expected {
                incomplete += 1;
                let mut error = format!(
                    "pool {}/{name} is incomplete: observed {}/{} slices at generation {}",
                    spec.driver, pool.slices, pool.expected, pool.generation
                );
                error.truncate(MAX_ERROR);
                entry["validationError"] = json!(error);
                return entry;
            }
            entry["resourceSliceCount"] = json!(pool.slices);
            entry["totalDevices"] = json!(pool.devices);
            entry["allocatedDevices"] = json!(pool.allocated);
            entry["unavailableDevices"] = json!(0);
            entry["availableDevices"] = json!(pool.devices.saturating_sub(pool.allocated));
            let mut nodes = pool.nodes.iter();
            if let (Some(Some(node)), None) = (nodes.next(), nodes.next()) {
                entry["nodeName"] = json!(node);
            }
            entry
        })
        .collect();
    let suffix = if incomplete > 0 {
        format!(" ({incomplete} incomplete)")
    } else {
        String::new()
    };
    let status = json!({
        "poolCount": total,
        "pools": listed,
        "conditions": [{
            "type": "Complete",
            "status": "True",
            "reason": "CalculationComplete",
            "message": format!("Calculated status for {total} pools{suffix}"),
            "lastTransitionTime": rfc3339(now),
        }],
    });
    Answer { status, incomplete }
}
