//! Autoscalers in `autoscaling/v1`: it has only the CPU target; the rest is in annotations, so that nothing is lost
//! between the versions.

use serde_json::{Map, Value, json};

use crate::object::{child_mut, metadata_mut};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// What an autoscaler without metrics aims at, in percent.
const DEFAULT_UTILIZATION: i64 = 80;

/// From v2 to v1 or back.
pub(crate) fn convert(object: &mut Value, from: &str, to: &str) {
    match (from, to) {
        ("v2", "v1") => to_v1(object),
        ("v1", "v2") => to_v2(object),
        _ => {}
    }
}

fn to_v1(object: &mut Value) {
    let mut kept = take_annotations(object);
    kept.clear();
    let mut metrics = take_list(object, "spec", "metrics");
    let target = |metric: &Value| {
        let percent = &metric["resource"]["target"]["averageUtilization"];
        let cpu = metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
        percent.as_i64().filter(|_| cpu)
    };
    if let Some(percent) = metrics.iter().find_map(target) {
        child_mut(object, "spec")
            .insert("targetCPUUtilizationPercentage".to_owned(), percent.into());
    }
    metrics.retain(|metric| target(metric).is_none());
    if !metrics.is_empty() {
        keep(
            &mut kept,
            METRICS,
            &metrics.iter().map(|it| flat(it, "target")).collect(),
        );
    }
    let behavior = object["spec"]
        .as_object_mut()
        .and_then(|spec| spec.remove("behavior"));
    if let Some(behavior) = behavior.filter(Value::is_object) {
        keep(&mut kept, BEHAVIOR, &capitalised(&behavior));
    }
    let current = take_list(object, "status", "currentMetrics");
    let cpu = current
        .iter()
        .find(|metric| metric["resource"]["name"] == "cpu");
    if let Some(percent) =
        cpu.and_then(|cpu| cpu["resource"]["current"]["averageUtilization"].as_i64())
    {
        let percent = percent.into();
        child_mut(object, "status").insert("currentCPUUtilizationPercentage".to_owned(), percent);
    }
    if !current.is_empty() {
        keep(
            &mut kept,
            CURRENT_METRICS,
            &current.iter().map(|it| flat(it, "current")).collect(),
        );
    }
    // Fields that v1 always writes.
    for key in ["currentReplicas", "desiredReplicas"] {
        child_mut(object, "status").entry(key).or_insert(json!(0));
    }
    let conditions = take_list(object, "status", "conditions");
    if !conditions.is_empty() {
        keep(&mut kept, CONDITIONS, &conditions.into());
    }
    if !kept.is_empty() {
        metadata_mut(object);
        child_mut(&mut object["metadata"], "annotations").append(&mut kept);
    }
}

fn to_v2(object: &mut Value) {
    let kept = take_annotations(object);
    let read = |key: &str| -> Option<Value> { serde_json::from_str(kept.get(key)?.as_str()?).ok() };
    let list = |key: &str| match read(key) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    let mut metrics: Vec<Value> = list(METRICS)
        .iter()
        .map(|it| nested(it, "target"))
        .collect();
    let spec = child_mut(object, "spec");
    let percent = spec
        .remove("targetCPUUtilizationPercentage")
        .and_then(|it| it.as_i64());
    let percent = percent.or(metrics.is_empty().then_some(DEFAULT_UTILIZATION));
    if let Some(percent) = percent {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        metrics.push(json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
    }
    spec.insert("metrics".to_owned(), metrics.into());
    if let Some(behavior) = read(BEHAVIOR).filter(Value::is_object) {
        spec.insert("behavior".to_owned(), uncapitalised(&behavior));
    }
    let Some(Value::Object(status)) = object.get_mut("status") else {
        return;
    };
    let percent = status.remove("currentCPUUtilizationPercentage");
    let mut current: Vec<Value> = list(CURRENT_METRICS)
        .iter()
        .map(|it| nested(it, "current"))
        .collect();
    if let Some(percent) = percent.filter(|_| current.is_empty()) {
        let value = json!({"averageUtilization": percent});
        current.push(json!({"type": "Resource", "resource": {"name": "cpu", "current": value}}));
    }
    if !current.is_empty() {
        status.insert("currentMetrics".to_owned(), current.into());
    }
    if let Some(conditions) = read(CONDITIONS) {
        status.insert("conditions".to_owned(), conditions);
    }
}

/// The annotations with fields that v1 does not have; annotations of that name from clients are dropped with them.
fn take_annotations(object: &mut Value) -> Map<String, Value> {
    let mut taken = Map::new();
    let metadata = metadata_mut(object);
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else {
        return taken;
    };
    for key in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR] {
        if let Some(value) = annotations.remove(key) {
            taken.insert(key.to_owned(), value);
        }
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    taken
}

fn take_list(object: &mut Value, part: &str, key: &str) -> Vec<Value> {
    let part = object.get_mut(part).and_then(Value::as_object_mut);
    match part.and_then(|part| part.remove(key)) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

fn keep(kept: &mut Map<String, Value>, key: &str, value: &Value) {
    let mut text = String::new();
    write(&mut text, value);
    kept.insert(key.to_owned(), text.into());
}

/// The members of annotations in the order of upstream's structs; others follow by name.
const ORDER: &str = "ScaleUp ScaleDown StabilizationWindowSeconds SelectPolicy Policies Tolerance Type Value \
                     PeriodSeconds type status lastTransitionTime reason message object pods resource \
                     containerResource external target kind name apiVersion metricName metricSelector targetValue \
                     currentValue targetAverageUtilization targetAverageValue currentAverageUtilization \
                     currentAverageValue selector averageValue container";

fn write(out: &mut String, value: &Value) {
    match value {
        Value::Object(map) => {
            let place = |key: &str| {
                ORDER
                    .split(' ')
                    .position(|known| known == key)
                    .unwrap_or(usize::MAX)
            };
            let mut members: Vec<_> = map.iter().collect();
            members.sort_by_key(|(key, _)| place(key));
            for (index, (key, value)) in members.into_iter().enumerate() {
                out.push(if index == 0 { '{' } else { ',' });
                out.push_str(&json!(key).to_string());
                out.push(':');
                write(out, value);
            }
            out.push_str(if map.is_empty() { "{}" } else { "}" });
        }
        Value::Array(list) => {
            out.push('[');
            for (index, value) in list.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(out, value);
            }
            out.push(']');
        }
        other => out.push_str(&other.to_string()),
    }
}

/// The member of a metric that its type names.
const SOURCES: [&str; 5] = [
    "resource",
    "containerResource",
    "pods",
    "object",
    "external",
];

/// A metric as v1 writes it: `targetAverageValue` in place of `target: {averageValue}`.
fn flat(metric: &Value, what: &str) -> Value {
    let mut flat = metric.clone();
    for source in SOURCES {
        let Some(Value::Object(map)) = flat.get_mut(source) else {
            continue;
        };
        let amounts = map.remove(what).unwrap_or_default();
        if let Some(Value::Object(identity)) = map.remove("metric") {
            let selector = if source == "external" {
                "metricSelector"
            } else {
                "selector"
            };
            for (key, value) in identity {
                let key = if key == "name" {
                    "metricName"
                } else {
                    selector
                };
                map.insert(key.to_owned(), value);
            }
        }
        if let Some(described) = map.remove("describedObject") {
            map.insert("target".to_owned(), described);
        }
        for (key, name) in names(what, source) {
            if !amounts[key].is_null() {
                map.insert(name.to_owned(), amounts[key].clone());
            }
        }
    }
    flat
}

/// The reverse of [`flat`].
fn nested(metric: &Value, what: &str) -> Value {
    let mut metric = metric.clone();
    for source in SOURCES {
        let Some(Value::Object(map)) = metric.get_mut(source) else {
            continue;
        };
        let described = if source == "object" {
            map.remove("target")
        } else {
            None
        };
        let mut amounts = Map::new();
        for (key, name) in names(what, source) {
            if let Some(value) = map.remove(name) {
                amounts.insert(key.to_owned(), value);
            }
        }
        if what == "target" {
            let kind = ["averageUtilization", "averageValue", "value"]
                .iter()
                .zip(["Utilization", "AverageValue", "Value"])
                .find(|(key, _)| amounts.contains_key(**key));
            if let Some((_, kind)) = kind {
                amounts.insert("type".to_owned(), kind.into());
            }
        }
        map.insert(what.to_owned(), amounts.into());
        if let Some(described) = described {
            map.insert("describedObject".to_owned(), described);
        }
        if let Some(name) = map.remove("metricName") {
            let mut identity = json!({"name": name});
            for key in ["selector", "metricSelector"] {
                if let Some(selector) = map.remove(key) {
                    identity["selector"] = selector;
                }
            }
            map.insert("metric".to_owned(), identity);
        }
    }
    metric
}

/// The names of amounts in v2 and v1.
fn names(what: &str, source: &str) -> [(&'static str, &'static str); 3] {
    match (what, source) {
        ("target", "object") => [
            ("averageUtilization", "targetAverageUtilization"),
            ("averageValue", "averageValue"),
            ("value", "targetValue"),
        ],
        ("target", _) => [
            ("averageUtilization", "targetAverageUtilization"),
            ("averageValue", "targetAverageValue"),
            ("value", "targetValue"),
        ],
        (_, "object") => [
            ("averageUtilization", "currentAverageUtilization"),
            ("averageValue", "averageValue"),
            ("value", "currentValue"),
        ],
        _ => [
            ("averageUtilization", "currentAverageUtilization"),
            ("averageValue", "currentAverageValue"),
            ("value", "currentValue"),
        ],
    }
}

/// Upstream writes the behavior as its internal type prints, with capital letters and empty fields.
fn capitalised(behavior: &Value) -> Value {
    let rules = |rules: &Value| {
        if !rules.is_object() {
            return Value::Null;
        }
        let policies = rules["policies"].as_array().into_iter().flatten().map(|policy| {
            json!({"Type": policy["type"], "Value": policy["value"], "PeriodSeconds": policy["periodSeconds"]})
        });
        json!({
            "StabilizationWindowSeconds": rules["stabilizationWindowSeconds"],
            "SelectPolicy": rules["selectPolicy"],
            "Policies": policies.collect::<Vec<_>>(),
            "Tolerance": rules["tolerance"],
        })
    };
    json!({"ScaleUp": rules(&behavior["scaleUp"]), "ScaleDown": rules(&behavior["scaleDown"])})
}

/// The reverse of [`capitalised`].
fn uncapitalised(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            let lower = |key: &str| {
                let mut chars = key.chars();
                let first = chars.next().map(|c| c.to_ascii_lowercase());
                first.into_iter().chain(chars).collect::<String>()
            };
            kept.map(|(key, value)| (lower(key), uncapitalised(value)))
                .collect()
        }
        Value::Array(list) => list.iter().map(uncapitalised).collect(),
        other => other.clone(),
    }
}
