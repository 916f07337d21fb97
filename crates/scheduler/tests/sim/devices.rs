//! What drivers and administrators do to devices: taints, and making them ready.

use rand::Rng;
use serde_json::{Value, json};

use super::api::{at, id};
use super::cluster::{DEVICES, NODES, SimulatedCluster};

pub const DRIVER: &str = "sim.example.com";
/// The driver of devices that several claims share, how much memory one has, and what a claim gets that does not say.
pub const SHARES: &str = "shares.example.com";
pub const MEMORY: i64 = 4;
pub const SHARE: i64 = 1;
/// The driver of partitions, how much a chip has for them, and theirs: the digit is the size.
pub const PARTS: &str = "parts.example.com";
pub const CHIP: i64 = 4;
pub const PARTITIONS: [&str; 5] = ["p1a", "p1b", "p2a", "p2b", "p4"];

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

/// The only slice of a node's whole devices.
pub fn slice(node: &str, devices: Vec<Value>) -> Value {
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices});
    json!({"metadata": {"name": format!("slice-{node}")}, "spec": spec})
}

/// The slices of a node's other devices: one that is shared, and a chip with partitions. On the first node the shared one
/// has to be made ready first.
pub fn parts(node: &str) -> [Value; 3] {
    let slice = |driver: &str, name: &str, count: u32, content: Value| {
        let pool = json!({"name": node, "generation": 1, "resourceSliceCount": count});
        let mut spec = json!({"driver": driver, "nodeName": node, "pool": pool});
        if let (Some(spec), Value::Object(content)) = (spec.as_object_mut(), content) {
            spec.extend(content);
        }
        json!({"metadata": {"name": format!("{name}-{node}")}, "spec": spec})
    };
    let policy = json!({"default": SHARE.to_string(), "validRange": {"min": "1", "step": "1"}});
    let memory = json!({"value": MEMORY.to_string(), "requestPolicy": policy});
    let mut shared = json!({
        "name": format!("{node}-s"), "allowMultipleAllocations": true, "capacity": {"memory": memory},
    });
    if node == "n0" {
        shared["bindingConditions"] = json!([READY]);
        shared["bindingFailureConditions"] = json!([BROKEN]);
    }
    let partitions = PARTITIONS.map(|partition| {
        let size: i64 = partition[1..2].parse().expect("a digit");
        let memory = json!({"memory": {"value": size.to_string()}});
        json!({
            "name": format!("{node}-{partition}"),
            "attributes": {"size": {"int": size}},
            "consumesCounters": [{"counterSet": "chip", "counters": memory}],
        })
    });
    let chip = json!({"name": "chip", "counters": {"memory": {"value": CHIP.to_string()}}});
    [
        slice(SHARES, "shares", 1, json!({"devices": [shared]})),
        slice(PARTS, "chips", 2, json!({"sharedCounters": [chip]})),
        slice(PARTS, "parts", 2, json!({"devices": partitions})),
    ]
}

impl SimulatedCluster {
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
                    let mut report = json!({"driver": r["driver"], "pool": r["pool"], "device": r["device"], "conditions": [condition]});
                    if r["shareID"].is_string() {
                        report["shareID"] = r["shareID"].clone();
                    }
                    report
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
