//! Failures in the ResourceSlices of simulated nodes, which no driver publishes. A slice records the devices that were
//! unplugged, so that they can be plugged in again.

use std::collections::BTreeMap;

use allot_driver::FAILURE_TAINT;
use allot_node::UNHEALTHY;
use anyhow::Context as _;
use serde_json::{Map, Value, json};

/// Annotation of a slice: the devices that were unplugged, as a JSON list with the place and the object of each.
const UNPLUGGED: &str = "allot.dev/unplugged";

/// The members of a map that differ, as a merge patch.
pub(super) fn changed(before: &Value, after: &Value) -> Value {
    let empty = Map::new();
    let before = before.as_object().unwrap_or(&empty);
    let after = after.as_object().unwrap_or(&empty);
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let new = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(value));
    let new = new.map(|(key, value)| (key.clone(), value.clone()));
    gone.chain(new).collect::<Map<_, _>>().into()
}

/// Where a slice has a device.
pub(super) fn place(slice: &Value, device: &str) -> Option<usize> {
    let devices = slice["spec"]["devices"].as_array()?;
    devices.iter().position(|known| known["name"] == device)
}

/// Sets or removes the taint of a failure; whether there was one.
pub(super) fn set_taint(slice: &mut Value, at: usize, effect: Option<&str>) -> bool {
    let device = &mut slice["spec"]["devices"][at];
    let mut taints = device["taints"].as_array().cloned().unwrap_or_default();
    let before = taints.len();
    taints.retain(|taint| taint["key"] != FAILURE_TAINT);
    let had = taints.len() < before;
    if let Some(effect) = effect {
        taints.push(json!({"key": FAILURE_TAINT, "value": "true", "effect": effect}));
    }
    match device.as_object_mut() {
        Some(members) if taints.is_empty() => drop(members.remove("taints")),
        Some(members) => drop(members.insert("taints".into(), taints.into())),
        None => {}
    }
    had
}

/// Reads a JSON value from an annotation.
fn annotation<T: serde::de::DeserializeOwned + Default>(
    slice: &Value,
    name: &str,
) -> anyhow::Result<T> {
    match slice["metadata"]["annotations"][name].as_str() {
        None => Ok(T::default()),
        Some(text) => {
            serde_json::from_str(text).with_context(|| format!("cannot read annotation {name}"))
        }
    }
}

/// Writes an annotation, or a label, or removes it.
fn set(slice: &mut Value, map: &str, name: &str, value: Option<String>) {
    if !slice["metadata"][map].is_object() {
        slice["metadata"][map] = json!({});
    }
    if let Some(members) = slice["metadata"][map].as_object_mut() {
        match value {
            Some(value) => drop(members.insert(name.to_owned(), value.into())),
            None => drop(members.remove(name)),
        }
    }
}

/// Sets or removes the message of an unhealthy device; whether that changed something.
pub(super) fn set_unhealthy(
    slice: &mut Value,
    device: &str,
    message: Option<&str>,
) -> anyhow::Result<bool> {
    let mut devices: BTreeMap<String, String> = annotation(slice, UNHEALTHY)?;
    let before = devices.clone();
    match message {
        Some(message) => drop(devices.insert(device.to_owned(), message.to_owned())),
        None => drop(devices.remove(device)),
    }
    let text = match devices.is_empty() {
        true => None,
        false => Some(serde_json::to_string(&devices)?),
    };
    set(
        slice,
        "labels",
        UNHEALTHY,
        text.as_ref().map(|_| "true".to_owned()),
    );
    set(slice, "annotations", UNHEALTHY, text);
    Ok(devices != before)
}

/// Removes a device from its slice, and records it.
pub(super) fn unplug(slice: &mut Value, at: usize) -> anyhow::Result<bool> {
    let mut unplugged: Vec<Value> = annotation(slice, UNPLUGGED)?;
    let devices = slice["spec"]["devices"].as_array_mut();
    let device = devices.context("the slice has no devices")?.remove(at);
    unplugged.push(json!({"at": at, "device": device}));
    set(
        slice,
        "annotations",
        UNPLUGGED,
        Some(serde_json::to_string(&unplugged)?),
    );
    Ok(true)
}

/// Reverts the failure of one device or of all, and returns their names.
pub(super) fn back(slice: &mut Value, only: Option<&str>) -> anyhow::Result<Vec<String>> {
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let mut restored = Vec::new();
    let unplugged: Vec<Value> = annotation(slice, UNPLUGGED)?;
    let (mut left, mut again) = (Vec::new(), Vec::new());
    for entry in unplugged {
        match wanted(entry["device"]["name"].as_str().unwrap_or_default()) {
            true => again.push(entry),
            false => left.push(entry),
        }
    }
    // The one removed last is restored first, so that each finds its position.
    for entry in again.iter().rev() {
        let at = entry["at"].as_u64().unwrap_or(0) as usize;
        if !slice["spec"]["devices"].is_array() {
            slice["spec"]["devices"] = json!([]);
        }
        if let Some(devices) = slice["spec"]["devices"].as_array_mut() {
            devices.insert(at.min(devices.len()), entry["device"].clone());
        }
        restored.push(
            entry["device"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        );
    }
    if !again.is_empty() {
        let text = match left.is_empty() {
            true => None,
            false => Some(serde_json::to_string(&left)?),
        };
        set(slice, "annotations", UNPLUGGED, text);
    }
    let devices = slice["spec"]["devices"].as_array();
    let names: Vec<String> = devices
        .into_iter()
        .flatten()
        .filter_map(|device| device["name"].as_str().map(str::to_owned))
        .collect();
    for (at, name) in names.iter().enumerate().filter(|(_, name)| wanted(name)) {
        let tainted = set_taint(slice, at, None);
        let unhealthy = set_unhealthy(slice, name, None)?;
        if (tainted || unhealthy) && !restored.contains(name) {
            restored.push(name.clone());
        }
    }
    Ok(restored)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice() -> Value {
        json!({
            "metadata": {"name": "s", "labels": {"a": "b"}},
            "spec": {"devices": [
                {"name": "gpu-0"},
                {"name": "gpu-1", "taints": [{"key": "other", "effect": "NoSchedule"}]},
                {"name": "gpu-2"},
            ]},
        })
    }

    #[test]
    fn what_was_done_is_taken_back() {
        let mut changed = slice();
        set_taint(&mut changed, 1, Some("NoExecute"));
        set_taint(&mut changed, 1, Some("NoSchedule"));
        assert_eq!(
            changed["spec"]["devices"][1]["taints"]
                .as_array()
                .map(Vec::len),
            Some(2)
        );
        set_unhealthy(&mut changed, "gpu-1", Some("hot")).unwrap();
        assert_eq!(
            changed["metadata"]["annotations"][UNHEALTHY],
            "{\"gpu-1\":\"hot\"}"
        );
        unplug(&mut changed, 0).unwrap();
        unplug(&mut changed, 1).unwrap();
        assert_eq!(place(&changed, "gpu-1"), Some(0));
        assert_eq!(changed["spec"]["devices"].as_array().map(Vec::len), Some(1));

        let mut one = changed.clone();
        assert_eq!(back(&mut one, Some("gpu-2")).unwrap(), ["gpu-2"]);
        assert_eq!(place(&one, "gpu-2"), Some(1));
        assert_eq!(back(&mut one, Some("gpu-7")).unwrap(), Vec::<String>::new());

        let restored = back(&mut changed, None).unwrap();
        assert_eq!(restored.len(), 3, "{restored:?}");
        assert_eq!(changed["spec"], slice()["spec"]);
        assert_eq!(changed["metadata"]["labels"], slice()["metadata"]["labels"]);
        assert_eq!(changed["metadata"]["annotations"], json!({}));
    }
}
