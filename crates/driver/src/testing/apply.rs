//! What a driver needs of server-side apply.

use std::collections::{BTreeMap, BTreeSet};

use allot_schema::json_patch::merge;
use serde_json::{Value, json};

use super::objects::Key;

/// The keys of the list `status.devices` of a ResourceClaim.
const KEYS: [&str; 4] = ["driver", "pool", "device", "shareID"];

/// Identifies an entry of `status.devices`.
type DeviceKey = [String; 4];

fn key(device: &Value) -> DeviceKey {
    KEYS.map(|field| device[field].as_str().unwrap_or_default().to_owned())
}

/// Which entries of `status.devices` field managers applied.
#[derive(Debug, Clone, Default)]
pub(super) struct Owned(BTreeMap<Key, BTreeMap<String, BTreeSet<DeviceKey>>>);

impl Owned {
    /// Applies a configuration. In `status.devices` entries of other managers stay, and those that this manager applied before
    /// and no longer has are removed; all else is merged, without an owner.
    pub(super) fn apply(&mut self, object: &mut Value, patch: &Value, at: &Key, manager: &str) {
        let mut patch = patch.clone();
        let status = patch.get_mut("status").and_then(Value::as_object_mut);
        let devices = status.and_then(|status| status.remove("devices"));
        merge(object, &patch);
        if at.resource.resource != "resourceclaims" {
            if let Some(devices) = devices {
                object["status"]["devices"] = devices;
            }
            return;
        }
        let devices = devices.unwrap_or_else(|| json!([]));
        let wanted = devices.as_array().cloned().unwrap_or_default();
        let keys: BTreeSet<DeviceKey> = wanted.iter().map(key).collect();
        let managers = self.0.entry(at.clone()).or_default();
        let before = managers.insert(manager.to_owned(), keys.clone());
        let before = before.unwrap_or_default();
        let is_kept = |device: &&Value| {
            let key = key(device);
            !keys.contains(&key) && !before.contains(&key)
        };
        let stored = object["status"]["devices"].as_array();
        let kept = stored.into_iter().flatten().filter(is_kept);
        let all: Vec<Value> = kept.cloned().chain(wanted).collect();
        if let (true, Some(status)) = (all.is_empty(), object["status"].as_object_mut()) {
            status.remove("devices");
            return;
        }
        object["status"]["devices"] = json!(all);
    }

    pub(super) fn forget(&mut self, at: &Key) {
        self.0.remove(at);
    }
}
