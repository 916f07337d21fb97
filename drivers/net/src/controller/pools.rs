//! Sets the IP family and the number of addresses of every SpiderIPPool, for `kubectl get`.
//!
//! The IPAM plugin on the nodes allocates addresses; its counts are not changed.

use allot_reflector::{Observed, everything, reflect};
use ipnet::IpNet;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::sync::CancellationToken;

use super::known::{Known, collection, typed};
use crate::objects::ip_pools;
use crate::ranges;

/// Runs until `shutdown`; passes observed pools to `known` as well.
pub(super) async fn count(client: Client, known: &Known, shutdown: CancellationToken) {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ip_pools());
    let (sender, mut seen) = unbounded_channel();
    let all = collection(client, &ip_pools());
    let watch = reflect::<DynamicObject, _>(all, everything, shutdown, move |observed| {
        known.pools.see(&observed, typed);
        sender.send(observed).is_ok()
    });
    let write = async move {
        while let Some(observed) = seen.recv().await {
            let pools = match observed {
                Observed::Listed { items, .. } => items,
                Observed::Applied(pool) => vec![*pool],
                Observed::Deleted(_) => Vec::new(),
            };
            for pool in pools {
                tell(&api, &pool).await;
            }
        }
    };
    tokio::join!(watch, write);
}

/// Writes missing fields; every change of the pool leads here again.
async fn tell(api: &Api<DynamicObject>, pool: &DynamicObject) {
    let (name, params) = (pool.name_any(), PatchParams::default());
    let (spec, status) = missing(&pool.data);
    let mut results = Vec::new();
    if let Some(patch) = spec {
        results.push(api.patch(&name, &params, &Patch::Merge(&patch)).await);
    }
    if let Some(patch) = status {
        results.push(
            api.patch_status(&name, &params, &Patch::Merge(&patch))
                .await,
        );
    }
    for error in results.into_iter().filter_map(Result::err) {
        tracing::warn!(pool = name, %error, "cannot be counted");
    }
}

/// The missing fields of spec and status.
fn missing(pool: &Value) -> (Option<Value>, Option<Value>) {
    let (spec, status) = (&pool["spec"], &pool["status"]);
    let subnet: Option<IpNet> = spec["subnet"].as_str().and_then(|s| s.parse().ok());
    let version = subnet.map(|subnet| if subnet.addr().is_ipv4() { 4 } else { 6 });
    let family = version.filter(|version| spec["ipVersion"] != *version);
    let count = |field: &str| {
        let ranges = spec[field].as_array().into_iter().flatten();
        ranges::count(ranges.filter_map(Value::as_str))
    };
    let total = count("ips").saturating_sub(count("excludeIPs"));
    let total = i64::try_from(total).unwrap_or(i64::MAX);
    let mut counts = serde_json::Map::new();
    if status["totalIPCount"] != total {
        counts.insert("totalIPCount".to_owned(), json!(total));
    }
    if status["allocatedIPCount"].is_null() {
        counts.insert("allocatedIPCount".to_owned(), json!(0));
    }
    (
        family.map(|version| json!({"spec": {"ipVersion": version}})),
        (!counts.is_empty()).then(|| json!({"status": counts})),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_written() {
        let mut pool = json!({"spec": {"subnet": "fd00::/64", "ips": ["fd00::1-fd00::a"], "excludeIPs": ["fd00::2"]}});
        let (spec, status) = missing(&pool);
        assert_eq!(spec, Some(json!({"spec": {"ipVersion": 6}})));
        let counts = json!({"totalIPCount": 9, "allocatedIPCount": 0});
        assert_eq!(status, Some(json!({"status": counts})));
        pool["spec"]["ipVersion"] = json!(6);
        pool["status"] = json!({"totalIPCount": 9, "allocatedIPCount": 3});
        assert_eq!(missing(&pool), (None, None));
    }
}
