//! From a model to the objects of one node.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::Error;
use crate::expression::{Scope, evaluate};
use crate::format::{CountersModel, DeviceModel, Model, PoolModel, SliceModel};
use crate::template;

/// Most devices of a slice whose devices have taints or take counters. Every device can get a taint.
const DEVICES_OF_SLICE: usize = 64;
/// Most sets of counters of a slice.
const SETS_OF_SLICE: usize = 8;
/// Most devices of a node.
const DEVICES_OF_NODE: usize = 16_384;
/// Most rounds of the loops of one slice or device.
const ROUNDS: usize = 16_384;

/// What a node has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Expanded {
    /// Labels of the Node.
    pub labels: BTreeMap<String, String>,
    /// Capacity of the Node that differs from the usual one.
    pub capacity: BTreeMap<String, String>,
    /// What its drivers publish.
    pub slices: Vec<Slice>,
}

/// A ResourceSlice of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    /// Name of the object.
    pub name: String,
    /// The driver.
    pub driver: String,
    /// The node, and with it the pool.
    pub node: String,
    /// How many slices the pool has.
    pub of: usize,
    /// Devices as in `resource.k8s.io/v1`.
    pub devices: Vec<Value>,
    /// Counters of the pool's devices; a slice has devices or counters.
    pub counters: Vec<Value>,
}

impl Slice {
    /// The object, of `resource.k8s.io/v1`. With a UID it is owned by that Node and deleted with it.
    pub fn object(&self, node_uid: Option<&str>) -> Value {
        let mut spec = json!({
            "driver": self.driver,
            "nodeName": self.node,
            "pool": {"name": self.node, "generation": 1, "resourceSliceCount": self.of},
        });
        if self.counters.is_empty() {
            spec["devices"] = self.devices.clone().into();
        } else {
            spec["sharedCounters"] = self.counters.clone().into();
        }
        let mut object = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": self.name},
            "spec": spec,
        });
        if let Some(uid) = node_uid {
            object["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid, "controller": true,
            }]);
        }
        object
    }
}

/// Labels and capacity of a Node.
pub type NodeParts = (BTreeMap<String, String>, BTreeMap<String, String>);

/// An error that gets its place from the outside in.
type Failed = (String, String);

fn at<T>(place: impl Into<String>, result: Result<T, String>) -> Result<T, Failed> {
    result.map_err(|reason| (place.into(), reason))
}

fn within<T>(place: &str, result: Result<T, Failed>) -> Result<T, Failed> {
    result.map_err(|(inner, reason)| match inner.is_empty() {
        true => (place.to_owned(), reason),
        false => (format!("{place}.{inner}"), reason),
    })
}

impl Model {
    /// What a node of this model has. `index` counts the nodes of a fleet that are alike.
    ///
    /// # Errors
    /// An expression has no value. A model that was parsed expands for every name and index up to 4999.
    pub fn expand(&self, node: &str, index: usize) -> Result<Expanded, Error> {
        let expanded = self.try_expand(node, index);
        expanded.map_err(|(place, reason)| Error::Value { place, reason })
    }

    /// Labels and capacity alone.
    ///
    /// # Errors
    /// See [`Model::expand`].
    pub fn expand_node(&self, node: &str, index: usize) -> Result<NodeParts, Error> {
        let expanded = self.try_expand_node(&self.scope(node, index));
        expanded.map_err(|(place, reason)| Error::Value { place, reason })
    }

    fn scope(&self, node: &str, index: usize) -> Scope {
        let mut scope = Scope::default();
        for (name, table) in &self.tables {
            scope.set(name, table.clone());
        }
        scope.set("node", node.into());
        scope.set("index", index.into());
        scope
    }

    fn try_expand_node(&self, scope: &Scope) -> Result<NodeParts, Failed> {
        let texts = |place: &str, of: &BTreeMap<String, String>| {
            let filled = of.iter().map(|(name, text)| {
                let text = at(format!("node.{place}.{name}"), template::text(text, scope))?;
                Ok((name.clone(), text))
            });
            filled.collect::<Result<BTreeMap<_, _>, Failed>>()
        };
        Ok((
            texts("labels", &self.node.labels)?,
            texts("capacity", &self.node.capacity)?,
        ))
    }

    fn try_expand(&self, node: &str, index: usize) -> Result<Expanded, Failed> {
        let mut scope = self.scope(node, index);
        let (labels, capacity) = self.try_expand_node(&scope)?;
        let mut expanded = Expanded {
            labels,
            capacity,
            slices: Vec::new(),
        };
        for (number, pool) in self.pools.iter().enumerate() {
            let slices = within(&format!("pools[{number}]"), pool.expand(node, &mut scope))?;
            expanded.slices.extend(slices);
        }
        Ok(expanded)
    }
}

impl PoolModel {
    fn expand(&self, node: &str, scope: &mut Scope) -> Result<Vec<Slice>, Failed> {
        // Devices and counters, one of them empty.
        let mut parts: Vec<(Vec<Value>, Vec<Value>)> = Vec::new();
        let mut count = 0;
        for (number, slice) in self.slices.iter().enumerate() {
            let made = within(&format!("slices[{number}]"), slice.expand(scope))?;
            for (devices, counters) in made {
                count += devices.len();
                if count > DEVICES_OF_NODE {
                    let reason = format!("a node has more than {DEVICES_OF_NODE} devices");
                    return Err((format!("slices[{number}]"), reason));
                }
                let sets = counters.chunks(SETS_OF_SLICE);
                parts.extend(sets.map(|sets| (Vec::new(), sets.to_vec())));
                let some = devices.chunks(DEVICES_OF_SLICE);
                parts.extend(some.map(|some| (some.to_vec(), Vec::new())));
            }
        }
        let mut names = BTreeSet::new();
        for device in parts.iter().flat_map(|(devices, _)| devices) {
            let name = device["name"].as_str().unwrap_or_default();
            if !names.insert(name) {
                return Err(("slices".into(), format!("device {name:?} is there twice")));
            }
        }
        let of = parts.len();
        let slices = parts.iter().cloned().enumerate();
        Ok(slices
            .map(|(number, (devices, counters))| Slice {
                name: format!("{node}-{}-{number}", self.driver),
                driver: self.driver.clone(),
                node: node.to_owned(),
                of,
                devices,
                counters,
            })
            .collect())
    }
}

/// The devices and the counter sets of one slice.
type DevicesAndCounters = (Vec<Value>, Vec<Value>);

impl SliceModel {
    fn expand(&self, scope: &mut Scope) -> Result<Vec<DevicesAndCounters>, Failed> {
        if self.devices.is_empty() == self.counters.is_empty() {
            return Err(("".into(), "must have either devices or counters".into()));
        }
        let mut slices = Vec::new();
        each(&self.each, scope, &mut |scope| {
            let (mut devices, mut counters) = (Vec::new(), Vec::new());
            for (number, model) in self.devices.iter().enumerate() {
                let made = model.expand(scope);
                devices.extend(within(&format!("devices[{number}]"), made)?);
            }
            for (number, model) in self.counters.iter().enumerate() {
                let made = model.expand(scope, "name");
                counters.extend(within(&format!("counters[{number}]"), made)?);
            }
            slices.push((devices, counters));
            Ok(())
        })?;
        Ok(slices)
    }
}

impl CountersModel {
    /// `member` is the object's field for the name of the set.
    fn expand(&self, scope: &mut Scope, member: &str) -> Result<Vec<Value>, Failed> {
        let mut sets = Vec::new();
        each(&self.each, scope, &mut |scope| {
            let set = at("set", template::text(&self.set, scope))?;
            let mut counters = Map::new();
            if let Some(of) = &self.of {
                let of = at("of", template::fill(of, scope))?;
                let of = at("of", object(of))?;
                for (name, capacity) in of {
                    let value = capacity.get("value").unwrap_or(&capacity);
                    let value = at(format!("of.{name}"), quantity(value))?;
                    counters.insert(counter_name(&name), json!({"value": value}));
                }
            }
            if let Some(more) = &self.counters {
                let more = at("counters", template::fill(more, scope))?;
                for (name, value) in at("counters", object(more))? {
                    let value = at(format!("counters.{name}"), quantity(&value))?;
                    counters.insert(name, json!({"value": value}));
                }
            }
            sets.push(json!({member: set, "counters": counters}));
            Ok(())
        })?;
        Ok(sets)
    }
}

impl DeviceModel {
    fn expand(&self, scope: &mut Scope) -> Result<Vec<Value>, Failed> {
        let mut devices = Vec::new();
        each(&self.each, scope, &mut |scope| {
            let name = at("name", template::text(&self.name, scope))?;
            let mut device = json!({"name": name});
            let mut attributes = Map::new();
            for some in &self.attributes {
                let some = at("attributes", template::fill(some, scope))?;
                for (name, value) in at("attributes", object(some))? {
                    let value = at(format!("attributes.{name}"), attribute(value))?;
                    attributes.insert(name, value);
                }
            }
            if !attributes.is_empty() {
                device["attributes"] = attributes.into();
            }
            if let Some(capacity) = &self.capacity {
                let capacity = at("capacity", template::fill(capacity, scope))?;
                let mut filled = Map::new();
                for (name, value) in at("capacity", object(capacity))? {
                    let value = match value {
                        Value::Object(_) => value,
                        simple => {
                            let value = at(format!("capacity.{name}"), quantity(&simple))?;
                            json!({"value": value})
                        }
                    };
                    filled.insert(name, value);
                }
                device["capacity"] = filled.into();
            }
            let mut consumes = Vec::new();
            for (number, model) in self.consumes.iter().enumerate() {
                let made = model.expand(scope, "counterSet");
                consumes.extend(within(&format!("consumes[{number}]"), made)?);
            }
            if !consumes.is_empty() {
                device["consumesCounters"] = consumes.into();
            }
            if let Some(taints) = &self.taints {
                device["taints"] = at("taints", template::fill(taints, scope))?;
            }
            if let Some(allow) = self.allow_multiple_allocations {
                device["allowMultipleAllocations"] = allow.into();
            }
            if let Some(more) = &self.more {
                let more = at("more", template::fill(more, scope))?;
                for (name, value) in at("more", object(more))? {
                    if device.get(&name).is_some() {
                        let reason = format!("{name} is there already");
                        return Err(("more".into(), reason));
                    }
                    device[name] = value;
                }
            }
            devices.push(device);
            Ok(())
        })?;
        Ok(devices)
    }
}

/// Calls a function for every combination of the loops, the last of which runs fastest: `gpu in 0..8`.
fn each(
    loops: &[String],
    scope: &mut Scope,
    then: &mut dyn FnMut(&mut Scope) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let mut rounds = 0;
    nested(loops, 0, scope, &mut rounds, then)
}

fn nested(
    loops: &[String],
    depth: usize,
    scope: &mut Scope,
    rounds: &mut usize,
    then: &mut dyn FnMut(&mut Scope) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let Some(this) = loops.get(depth) else {
        *rounds += 1;
        if *rounds > ROUNDS {
            return Err((
                "each".into(),
                format!("loops have more than {ROUNDS} rounds"),
            ));
        }
        return then(scope);
    };
    // No more than a handful is of use, and each level is a call.
    if depth > 8 {
        return Err(("each".into(), "must have no more than 8 loops".into()));
    }
    let place = format!("each[{depth}]");
    let parts = this.split_once(" in ").ok_or_else(|| {
        let reason = format!("{this:?} is no loop: expected NAME in LIST");
        (place.clone(), reason)
    })?;
    let (name, list) = (parts.0.trim(), at(&place, evaluate(parts.1, scope))?);
    let Value::Array(list) = list else {
        return Err((place, format!("{:?} is no list", parts.1.trim())));
    };
    for item in list {
        let mark = scope.mark();
        scope.set(name, item);
        let done = nested(loops, depth + 1, scope, rounds, then);
        scope.forget(mark);
        done?;
    }
    Ok(())
}

fn object(value: Value) -> Result<Map<String, Value>, String> {
    match value {
        Value::Object(members) => Ok(members),
        other => Err(format!("expected a map, found {other}")),
    }
}

/// The wire form of a quantity, which is text.
fn quantity(value: &Value) -> Result<Value, String> {
    match value {
        Value::String(text) => Ok(text.clone().into()),
        Value::Number(number) if number.is_i64() => Ok(number.to_string().into()),
        other => Err(format!("expected a quantity, found {other}")),
    }
}

/// The wire form of an attribute.
fn attribute(value: Value) -> Result<Value, String> {
    const TYPES: [&str; 8] = [
        "bool", "bools", "int", "ints", "string", "strings", "version", "versions",
    ];
    match value {
        Value::String(_) => Ok(json!({"string": value})),
        Value::Bool(_) => Ok(json!({"bool": value})),
        Value::Number(ref number) if number.is_i64() => Ok(json!({"int": value})),
        Value::Object(members) if members.len() == 1 => {
            let name = members
                .keys()
                .next()
                .map(String::as_str)
                .unwrap_or_default();
            match TYPES.contains(&name) {
                true => Ok(members.into()),
                false => Err(format!(
                    "unknown type {name:?}: expected one of {}",
                    TYPES.join(", ")
                )),
            }
        }
        other => Err(format!(
            "expected text, a whole number, true, false or {{version: text}}, found {other}"
        )),
    }
}

/// A capacity's name as that of a counter: `copyEngines` is `copy-engines`.
fn counter_name(capacity: &str) -> String {
    let mut name = String::new();
    for (index, c) in capacity.char_indices() {
        if c.is_ascii_uppercase() && index > 0 {
            name.push('-');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}
