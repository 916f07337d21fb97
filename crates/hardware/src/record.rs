//! Models of the nodes of a real cluster.
//!
//! Identifiers of a machine or the site are replaced: names of nodes by the name of the modelled node; UUIDs, hardware and IP
//! addresses, serial numbers, names of hosts and places by others. Equal identifiers stay equal, on a node and among nodes, so
//! that constraints and selectors that compare devices select the same ones.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use self::replace::{Replace, Site, TABLE, escaped, literally, suffix, texts};
use crate::Error;
use crate::format::Model;

mod replace;
mod scan;
#[cfg(test)]
mod tests;

/// A group of nodes with equal hardware.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The file.
    pub text: String,
    /// The hardware model that was made from them.
    pub model: Model,
    /// The number of nodes it was created from.
    pub nodes: usize,
}

/// The objects of a cluster, in the newest versions.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// Nodes.
    pub nodes: Vec<Value>,
    /// ResourceSlices.
    pub slices: Vec<Value>,
    /// DeviceClasses.
    pub classes: Vec<Value>,
    /// The only node to record, if it is not all of them.
    pub only: Option<String>,
}

/// Creates models of the nodes with local devices, one for all equal nodes, in the order of their first nodes.
///
/// # Errors
/// A slice has content that models do not support.
pub fn record(cluster: &Cluster) -> Result<Vec<Recorded>, Error> {
    let nodes = cluster.nodes.iter().map(|node| {
        let name = text(&node["metadata"]["name"]);
        let of_node = |slice: &&Value| slice["spec"]["nodeName"] == name;
        Recordable::new(node, cluster.slices.iter().filter(of_node).collect())
    });
    let nodes: Vec<Recordable<'_>> = nodes.collect();
    let site = Site::new(cluster, nodes.iter().map(|node| node.texts()));
    let mut kinds: Vec<(Value, usize)> = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        let left_out = cluster
            .only
            .as_deref()
            .is_some_and(|only| only != node.name);
        if node.slices.is_empty() || left_out {
            continue;
        }
        let kind = node.kind(Replace::new(&site, number), &site, &cluster.classes);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, nodes)) => *nodes += 1,
            None => kinds.push((kind, 1)),
        }
    }
    let recorded = kinds
        .into_iter()
        .enumerate()
        .map(|(number, (kind, nodes))| {
            let mut file = kind;
            file["name"] = format!("recorded-{}", number + 1).into();
            file["tables"] = json!({TABLE: number + 1});
            let text =
                serde_saphyr::to_string(&file).map_err(|error| Error::Shape(error.to_string()))?;
            let model = Model::parse(&text)?;
            Ok(Recorded { text, model, nodes })
        });
    recorded.collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The slices of the newest generation of each pool.
fn newest<'a>(slices: &[&'a Value]) -> Vec<&'a Value> {
    let key = |slice: &Value| {
        let spec = &slice["spec"];
        (
            text(&spec["driver"]).to_owned(),
            text(&spec["pool"]["name"]).to_owned(),
        )
    };
    let generation = |slice: &Value| slice["spec"]["pool"]["generation"].as_i64().unwrap_or(0);
    let mut newest = BTreeMap::new();
    for slice in slices {
        let known = newest.entry(key(slice)).or_insert(i64::MIN);
        *known = generation(slice).max(*known);
    }
    let current = slices
        .iter()
        .filter(|slice| newest.get(&key(slice)) == Some(&generation(slice)));
    current.copied().collect()
}

/// A node with its recorded slices.
struct Recordable<'a> {
    name: &'a str,
    node: &'a Value,
    /// By content: their names are random.
    slices: Vec<&'a Value>,
    drivers: Vec<&'a str>,
}

impl<'a> Recordable<'a> {
    fn new(node: &'a Value, slices: Vec<&'a Value>) -> Self {
        let mut slices = newest(&slices);
        slices.sort_by_key(|slice| {
            let spec = &slice["spec"];
            let counters = spec["sharedCounters"].is_array();
            (!counters, text(&spec["devices"][0]["name"]).to_owned())
        });
        let drivers = slices.iter().map(|slice| text(&slice["spec"]["driver"]));
        let mut drivers: Vec<&str> = drivers.collect();
        drivers.sort_unstable();
        drivers.dedup();
        Self {
            name: text(&node["metadata"]["name"]),
            node,
            slices,
            drivers,
        }
    }

    /// Labels in the domains of the drivers, which describe the hardware.
    fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let domains: Vec<&str> = self.drivers.iter().map(|driver| suffix(driver)).collect();
        let labels = self.node["metadata"]["labels"].as_object();
        let labels = labels.into_iter().flatten().filter(move |(key, _)| {
            let of = key.split_once('/').map(|(of, _)| suffix(of));
            of.is_some_and(|of| domains.contains(&of))
        });
        labels.map(|(key, value)| (key.as_str(), text(value)))
    }

    /// Texts that can identify the node, with names.
    fn texts(&self) -> Vec<(&'a str, &'a str)> {
        let mut all = Vec::new();
        for slice in &self.slices {
            for member in ["sharedCounters", "devices"] {
                texts("", &slice["spec"][member], &mut all);
            }
        }
        all.extend(self.labels());
        all
    }

    /// The model of the node, without its name.
    fn kind(&self, mut replace: Replace<'_>, site: &Site, classes: &[Value]) -> Value {
        let mut pools: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for slice in &self.slices {
            let spec = &slice["spec"];
            let of = pools.entry(text(&spec["driver"])).or_default();
            let list = |member: &str| spec[member].as_array().cloned().unwrap_or_default();
            let counters: Vec<Value> = list("sharedCounters")
                .iter()
                .map(|set| counters(&mut replace, set, "name"))
                .collect();
            let devices: Vec<Value> = list("devices")
                .iter()
                .map(|it| device(&mut replace, it))
                .collect();
            if !counters.is_empty() {
                of.push(json!({"counters": counters}));
            }
            if !devices.is_empty() {
                of.push(json!({"devices": devices}));
            }
        }
        pools.retain(|_, slices| !slices.is_empty());
        let drivers: Vec<&str> = pools.keys().copied().collect();
        let labels: Map<String, Value> = self
            .labels()
            .map(|(key, value)| (key.to_owned(), replace.text(key, value).into()))
            .collect();
        let classes = classes.iter().filter(|class| {
            let spec = class["spec"].to_string();
            drivers.iter().any(|driver| spec.contains(driver))
        });
        let classes: Vec<Value> = classes
            .map(|class| {
                let class = json!({"name": class["metadata"]["name"], "spec": class["spec"]});
                literally(site, &class)
            })
            .collect();
        let capacity: Map<String, Value> = ["cpu", "memory"]
            .iter()
            .filter_map(|name| {
                let amount = self.node["status"]["capacity"][name].as_str()?;
                Some(((*name).to_owned(), escaped(amount).into()))
            })
            .collect();
        let pools: Vec<Value> = pools
            .into_iter()
            .map(|(driver, slices)| json!({"driver": driver, "slices": slices}))
            .collect();
        json!({
            "title": format!("Recorded node with devices of {}", drivers.join(", ")),
            "sources": [{"from": "allot hardware record", "facts": "everything, names replaced"}],
            "node": {"labels": labels, "capacity": capacity},
            "classes": classes,
            "pools": pools,
        })
    }
}

/// A text without expressions, in an amount.
fn amount(value: &Value) -> Value {
    match value {
        Value::String(text) => escaped(text).into(),
        Value::Array(list) => list.iter().map(amount).collect::<Vec<_>>().into(),
        Value::Object(members) => {
            let members = members.iter();
            let members = members.map(|(key, member)| (escaped(key), amount(member)));
            members.collect::<Map<_, _>>().into()
        }
        simple => simple.clone(),
    }
}

fn counters(replace: &mut Replace<'_>, set: &Value, member: &str) -> Value {
    let counters = set["counters"].as_object().into_iter().flatten();
    let counters = counters.map(|(name, counter)| (escaped(name), counter["value"].clone()));
    let counters: Map<String, Value> = counters.collect();
    json!({"set": replace.text("", text(&set[member])), "counters": counters})
}

fn device(replace: &mut Replace<'_>, device: &Value) -> Value {
    let mut model = json!({"name": replace.text("", text(&device["name"]))});
    let mut more = Map::new();
    for (member, value) in device.as_object().into_iter().flatten() {
        match member.as_str() {
            "name" => {}
            "attributes" => model["attributes"] = json!([replace.value("", value)]),
            "capacity" => model["capacity"] = amount(value),
            "consumesCounters" => {
                let sets = value.as_array().into_iter().flatten();
                let sets: Vec<Value> = sets
                    .map(|set| counters(replace, set, "counterSet"))
                    .collect();
                model["consumes"] = sets.into();
            }
            "taints" => {
                let mut taints = replace.value("", value);
                for taint in taints.as_array_mut().into_iter().flatten() {
                    if let Some(taint) = taint.as_object_mut() {
                        taint.remove("timeAdded");
                    }
                }
                model["taints"] = taints;
            }
            _ => {
                more.insert(member.clone(), replace.value("", value));
            }
        }
    }
    if !more.is_empty() {
        model["more"] = more.into();
    }
    model
}
