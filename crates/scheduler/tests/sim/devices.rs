//! What drivers and administrators do to devices: taints, and making them ready.

use rand::Rng;
use serde_json::{Value, json};

use super::api::{at, id};
use super::world::{DEVICES, DRIVER, NODES, World};

/// What a device needs before its pod is bound, and what says that it never will be ready.
const READY: &str = "ready";
const BROKEN: &str = "broken";

/// A device of a node; the last one has to be made ready first.
pub fn device(node: &str, number: usize) -> Value {
    let mut device = json!({"name": format!("{node}-{number}")});
    if number + 1 == DEVICES {
        device["bindingConditions"] = json!([READY]);
        device["bindingFailureConditions"] = json!([BROKEN]);
    }
    device
}

impl World {
    /// Drivers report about devices that have to be made ready. Sometimes they fail, sometimes they take long; not any
    /// more once everything has to settle.
    pub fn make_ready(&mut self, settling: bool) {
        for mut claim in self.api.all("resourceclaims") {
            let results = claim["status"]["allocation"]["devices"]["results"].as_array();
            let waiting: Vec<Value> = results
                .into_iter()
                .flatten()
                .filter(|r| r["bindingConditions"].is_array())
                .cloned()
                .collect();
            if waiting.is_empty() || !claim["status"]["devices"].is_null() {
                continue;
            }
            let outcome = match self.rng.random_range(0..20) {
                _ if settling => READY,
                0..3 => READY,
                3 => BROKEN,
                _ => continue,
            };
            let reports: Vec<Value> = waiting
                .iter()
                .map(|r| {
                    let condition = json!({
                        "type": outcome, "status": "True", "reason": "Simulated", "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    });
                    json!({"driver": r["driver"], "pool": r["pool"], "device": r["device"], "conditions": [condition]})
                })
                .collect();
            claim["status"]["devices"] = reports.into();
            let _ = self.api.put(at("resourceclaims", &claim), claim);
        }
    }

    fn effect(&mut self) -> &'static str {
        ["NoExecute", "NoSchedule"][self.rng.random_range(0..2)]
    }

    /// A driver taints a device, or takes its taint away.
    pub fn toggle_taint(&mut self) {
        let (node, device) = (
            self.rng.random_range(0..NODES),
            self.rng.random_range(0..DEVICES),
        );
        let at = id("resourceslices", "", &format!("slice-n{node}"));
        let Some(mut slice) = self.api.get(&at) else {
            return;
        };
        let effect = self.effect();
        let device = &mut slice["spec"]["devices"][device];
        device["taints"] = match &device["taints"] {
            Value::Null => {
                json!([{"key": "bad", "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}])
            }
            _ => Value::Null,
        };
        if let Some(device) = device.as_object_mut() {
            device.retain(|_, v| !v.is_null());
        }
        let _ = self.api.put(at, slice);
    }

    /// An administrator taints a device by a rule, or takes the rule back.
    pub fn toggle_rule(&mut self) {
        let at = id("devicetaintrules", "", "rule");
        if self.api.delete(&at, None).is_ok() {
            return;
        }
        let node = self.rng.random_range(0..NODES);
        let effect = self.effect();
        let selector = json!({"driver": DRIVER, "device": format!("n{node}-0")});
        let taint = json!({"key": "rule", "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"});
        let spec = json!({"deviceSelector": selector, "taint": taint});
        let _ = self.api.create(
            "devicetaintrules",
            json!({"metadata": {"name": "rule"}, "spec": spec}),
        );
    }
}
