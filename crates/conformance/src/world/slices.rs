//! What the driver publishes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::World;
use crate::case::{Stop, fail};

pub(crate) const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// A device that is published.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceRef {
    pub(crate) pool: String,
    pub(crate) name: String,
    /// Several claims can have it at once, each with a share.
    pub(crate) shared: bool,
    /// Of a shared device: amounts of its capacity that a share can have, by name. The first is that of a claim.
    pub(crate) amounts: Vec<BTreeMap<String, String>>,
}

/// The smallest, the default and the largest amounts that a share of a device can have.
fn amounts(device: &Value) -> Vec<BTreeMap<String, String>> {
    let capacity = device["capacity"].as_object();
    let choose = |which: &[&str]| -> BTreeMap<String, String> {
        let amount = |(name, capacity): (&String, &Value)| {
            let found = which
                .iter()
                .find_map(|path| capacity.pointer(path)?.as_str());
            let amount = found.or(capacity["value"].as_str())?;
            Some((name.clone(), amount.to_owned()))
        };
        capacity.into_iter().flatten().filter_map(amount).collect()
    };
    let default = "/requestPolicy/default";
    let mut amounts = vec![
        choose(&[
            "/requestPolicy/validRange/min",
            "/requestPolicy/validValues/0",
            default,
        ]),
        choose(&[default]),
        choose(&["/requestPolicy/validRange/max"]),
    ];
    amounts.dedup();
    amounts
}

/// A number of a JSON object, 0 when it is missing.
pub(crate) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl World {
    /// The driver's slices for this node, or for several nodes.
    pub(crate) async fn slices(&self) -> Result<Vec<Value>, Stop> {
        let list = self
            .api
            .get(&format!(
                "{SLICES}?fieldSelector=spec.driver%3D{}",
                self.driver
            ))
            .await;
        let list = list.or_else(|error| fail(error.to_string()))?;
        let node = self.options.node.as_str();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let ours = |slice: &Value| {
            slice["spec"]["nodeName"]
                .as_str()
                .is_none_or(|name| name == node)
        };
        Ok(items.into_iter().filter(ours).collect())
    }

    /// Waits until every pool is complete, and returns the devices.
    pub(crate) async fn published(&self) -> Result<Vec<DeviceRef>, Stop> {
        let last = parking_lot::Mutex::new("no ResourceSlice".to_owned());
        let found = self
            .until("publishing", || async {
                let reason = match self.slices().await {
                    Ok(slices) => match complete(&slices) {
                        Ok(()) => return Some(slices),
                        Err(reason) => reason,
                    },
                    Err(Stop::Fail(reason) | Stop::Skip(reason)) => reason,
                };
                *last.lock() = reason;
                None
            })
            .await;
        let Ok(slices) = found else {
            return fail(format!(
                "the driver did not publish complete pools within {:?}: {}",
                self.timeout(),
                last.lock()
            ));
        };
        let mut devices = Vec::new();
        for slice in &slices {
            for device in slice["spec"]["devices"].as_array().into_iter().flatten() {
                let shared = device["allowMultipleAllocations"]
                    .as_bool()
                    .unwrap_or(false);
                devices.push(DeviceRef {
                    pool: text(&slice["spec"]["pool"]["name"]).to_owned(),
                    name: text(&device["name"]).to_owned(),
                    shared,
                    amounts: if shared { amounts(device) } else { Vec::new() },
                });
            }
        }
        // Devices that are allocated exclusively are the most conclusive.
        devices.sort_by_key(|device| device.shared);
        Ok(devices)
    }
}

/// Why a set of slices is not all that its pools have.
pub(crate) fn complete(slices: &[Value]) -> Result<(), String> {
    if slices.is_empty() {
        return Err("no ResourceSlice".to_owned());
    }
    let mut pools: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for slice in slices {
        let pool = &slice["spec"]["pool"];
        pools.entry(text(&pool["name"])).or_default().push(pool);
    }
    for (name, pools) in pools {
        let newest = pools
            .iter()
            .map(|pool| number(&pool["generation"]))
            .max()
            .unwrap_or(0);
        if let Some(old) = pools
            .iter()
            .find(|pool| number(&pool["generation"]) != newest)
        {
            let old = number(&old["generation"]);
            return Err(format!(
                "pool {name:?} has slices of generation {old} beside {newest}"
            ));
        }
        let count = i64::try_from(pools.len()).unwrap_or(i64::MAX);
        if let Some(pool) = pools
            .iter()
            .find(|pool| number(&pool["resourceSliceCount"]) != count)
        {
            let said = number(&pool["resourceSliceCount"]);
            return Err(format!("pool {name:?} has {count} slices and says {said}"));
        }
    }
    Ok(())
}
