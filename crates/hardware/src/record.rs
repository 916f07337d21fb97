//! Models of the nodes of a real cluster.
//!
//! Identifying data of the cluster is replaced: names of nodes by the name of the modelled node, UUIDs consistently by
//! others, hardware and IP addresses by those for documentation. Attributes in a driver's own format, such as serial
//! numbers, are not changed.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::Error;
#[cfg(test)]
use crate::expand;
use crate::format::Model;

/// Nodes that are alike.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The file.
    pub text: String,
    /// The hardware model that was made from them.
    pub model: Model,
    /// The number of nodes it was created from.
    pub nodes: usize,
}

/// What a cluster has, as objects of the newest versions.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// Nodes.
    pub nodes: Vec<Value>,
    /// ResourceSlices.
    pub slices: Vec<Value>,
    /// DeviceClasses.
    pub classes: Vec<Value>,
}

/// Creates models of the nodes with local devices, one for all equal nodes, in the order of their first nodes.
///
/// # Errors
/// A slice has content that models do not support.
pub fn record(cluster: &Cluster) -> Result<Vec<Recorded>, Error> {
    let mut kinds: Vec<(Value, usize)> = Vec::new();
    for node in &cluster.nodes {
        let name = text(&node["metadata"]["name"]);
        let slices: Vec<&Value> = cluster
            .slices
            .iter()
            .filter(|slice| slice["spec"]["nodeName"] == name)
            .collect();
        if slices.is_empty() {
            continue;
        }
        let kind = kind(node, &newest(&slices), &cluster.classes);
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

/// The model of one node, without its name.
fn kind(node: &Value, slices: &[&Value], classes: &[Value]) -> Value {
    let mut replace = Replace::new(text(&node["metadata"]["name"]));
    let mut pools: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    // Names of slices are random; their content determines the order.
    let mut sorted = slices.to_vec();
    sorted.sort_by_key(|slice| {
        let spec = &slice["spec"];
        let counters = spec["sharedCounters"].is_array();
        (!counters, text(&spec["devices"][0]["name"]).to_owned())
    });
    for slice in sorted {
        let spec = &slice["spec"];
        let of = pools.entry(text(&spec["driver"])).or_default();
        let list = |member: &str| spec[member].as_array().cloned().unwrap_or_default();
        let counters: Vec<Value> = list("sharedCounters")
            .iter()
            .map(|set| replace.counters(set, "name"))
            .collect();
        let devices: Vec<Value> = list("devices")
            .iter()
            .map(|device| replace.device(device))
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
    let labels = labels(node, &drivers, &replace);
    let classes = classes.iter().filter(|class| {
        let spec = class["spec"].to_string();
        drivers.iter().any(|driver| spec.contains(driver))
    });
    let classes: Vec<Value> = classes
        .map(|class| json!({"name": class["metadata"]["name"], "spec": class["spec"]}))
        .collect();
    let capacity: Map<String, Value> = ["cpu", "memory"]
        .iter()
        .filter_map(|name| {
            let amount = node["status"]["capacity"][name].as_str()?;
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

/// Labels in the domains of the drivers, which describe the hardware.
fn labels(node: &Value, drivers: &[&str], replace: &Replace<'_>) -> Map<String, Value> {
    // nvidia.com of gpu.nvidia.com.
    let domain = |name: &str| {
        let parts: Vec<&str> = name.rsplitn(3, '.').collect();
        parts
            .iter()
            .take(2)
            .rev()
            .copied()
            .collect::<Vec<_>>()
            .join(".")
    };
    let domains: Vec<String> = drivers.iter().map(|driver| domain(driver)).collect();
    let labels = node["metadata"]["labels"].as_object();
    let labels = labels.into_iter().flatten().filter(|(key, _)| {
        let of = key.split_once('/').map(|(of, _)| domain(of));
        of.is_some_and(|of| domains.contains(&of))
    });
    labels
        .map(|(key, value)| {
            let value = escaped(text(value)).replace(replace.node, "{node}");
            (key.clone(), value.into())
        })
        .collect()
}

/// A text without expressions.
fn escaped(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

/// Replacements in the objects of a node.
struct Replace<'a> {
    node: &'a str,
    /// UUIDs that were seen, with their numbers.
    uuids: BTreeMap<String, usize>,
    addresses: usize,
}

impl<'a> Replace<'a> {
    fn new(node: &'a str) -> Self {
        Self {
            node,
            uuids: BTreeMap::new(),
            addresses: 0,
        }
    }

    /// A text as a template.
    fn text(&mut self, text: &str) -> String {
        if let Some(at) = uuid(text) {
            let number = self.uuids.len();
            let (before, rest) = text.split_at(at);
            let (uuid, after) = rest.split_at(UUID.len());
            let number = *self.uuids.entry(uuid.to_owned()).or_insert(number);
            return format!(
                "{}{{uuid(node, {number})}}{}",
                escaped(before),
                escaped(after)
            );
        }
        if is_mac(text) {
            self.addresses += 1;
            let (high, low) = (self.addresses / 256 % 256, self.addresses % 256);
            return format!("00:00:5e:00:{high:02x}:{low:02x}");
        }
        let address = text.split_once('/').map_or(text, |(address, _)| address);
        match address.parse() {
            Ok(std::net::IpAddr::V4(_)) => "192.0.2.1/24".to_owned(),
            Ok(std::net::IpAddr::V6(_)) => "2001:db8::1/64".to_owned(),
            // A short name of a node would be found in other words.
            Err(_) if self.node.len() > 3 => escaped(text).replace(self.node, "{node}"),
            Err(_) => escaped(text),
        }
    }

    /// Replaces in every text of a value.
    fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Array(list) => list
                .iter()
                .map(|item| self.value(item))
                .collect::<Vec<_>>()
                .into(),
            Value::Object(members) => members
                .iter()
                .map(|(key, member)| (escaped(key), self.value(member)))
                .collect::<Map<_, _>>()
                .into(),
            simple => simple.clone(),
        }
    }

    fn counters(&mut self, set: &Value, member: &str) -> Value {
        let counters = set["counters"].as_object().into_iter().flatten();
        let counters = counters.map(|(name, counter)| (escaped(name), counter["value"].clone()));
        let counters: Map<String, Value> = counters.collect();
        json!({"set": self.text(text(&set[member])), "counters": counters})
    }

    fn device(&mut self, device: &Value) -> Value {
        let mut model = json!({"name": self.text(text(&device["name"]))});
        let mut more = Map::new();
        for (member, value) in device.as_object().into_iter().flatten() {
            match member.as_str() {
                "name" => {}
                "attributes" => model["attributes"] = json!([self.value(value)]),
                "capacity" => model["capacity"] = self.value(value),
                "consumesCounters" => {
                    let sets = value.as_array().into_iter().flatten();
                    let sets: Vec<Value> =
                        sets.map(|set| self.counters(set, "counterSet")).collect();
                    model["consumes"] = sets.into();
                }
                "taints" => {
                    let mut taints = self.value(value);
                    for taint in taints.as_array_mut().into_iter().flatten() {
                        if let Some(taint) = taint.as_object_mut() {
                            taint.remove("timeAdded");
                        }
                    }
                    model["taints"] = taints;
                }
                _ => {
                    more.insert(member.clone(), self.value(value));
                }
            }
        }
        if !more.is_empty() {
            model["more"] = more.into();
        }
        model
    }
}

/// The form of a UUID.
const UUID: &str = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

/// Position of a UUID in a text.
fn uuid(text: &str) -> Option<usize> {
    let form = UUID.as_bytes();
    text.as_bytes().windows(form.len()).position(|window| {
        window.iter().zip(form).all(|(byte, form)| match form {
            b'-' => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    })
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    let byte = |part: &&str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
    parts.len() == 6 && parts.iter().all(byte)
}

/// How many devices the slices of an expansion have.
#[cfg(test)]
fn devices(expanded: &expand::Expanded) -> usize {
    expanded
        .slices
        .iter()
        .map(|slice| slice.devices.len())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cluster whose nodes have a model of the catalogue.
    fn cluster(model: &Model, names: &[&str]) -> Cluster {
        let mut cluster = Cluster::default();
        for (index, name) in names.iter().enumerate() {
            let expanded = model.expand(name, index).expect("expands");
            cluster
                .slices
                .extend(expanded.slices.iter().map(|slice| slice.object(None)));
            let mut labels = json!(expanded.labels);
            labels["kubernetes.io/hostname"] = (*name).into();
            cluster.nodes.push(json!({
                "metadata": {"name": name, "labels": labels},
                "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
            }));
        }
        let classes = model.classes.iter();
        cluster.classes = classes
            .map(|class| json!({"metadata": {"name": class.name}, "spec": class.spec}))
            .collect();
        cluster
    }

    #[test]
    fn every_model_is_found_again() {
        for name in crate::names() {
            let model = crate::find(name).expect(name);
            let original = model.expand("host-a.example.org", 0).expect(name);
            let recorded = record(&cluster(&model, &["host-a.example.org"])).expect(name);
            let [Recorded { model, text, .. }] = recorded.as_slice() else {
                panic!("{name}: {} kinds", recorded.len());
            };
            assert!(!text.contains("host-a"), "{name}: {text}");
            let again = model.expand("host-a.example.org", 0).expect(name);
            assert_eq!(devices(&again), devices(&original), "{name}");
            // Everything except for replacements is unchanged.
            let names = |expanded: &expand::Expanded| {
                let devices = expanded.slices.iter().flat_map(|slice| &slice.devices);
                let mut names: Vec<_> = devices
                    .map(|d| {
                        (
                            d["name"].clone(),
                            d["capacity"].clone(),
                            d["consumesCounters"].clone(),
                        )
                    })
                    .collect();
                names.sort_by_key(|(name, ..)| name.to_string());
                names
            };
            assert_eq!(names(&again), names(&original), "{name}");
            assert_eq!(
                model.classes.len(),
                crate::find(name).expect(name).classes.len(),
                "{name}"
            );
        }
    }

    #[test]
    fn nodes_that_are_alike_are_one_model() {
        let model = crate::find("h100-mig").expect("in the catalogue");
        let mut cluster = cluster(&model, &["host-a", "host-b"]);
        let recorded = record(&cluster).expect("recorded");
        assert_eq!(recorded.len(), 1);
        assert_eq!(recorded[0].nodes, 2);
        let expanded = recorded[0].model.expand("n", 0).expect("expands");
        // A partition still refers to its parent.
        let find = |name: &str| {
            let mut devices = expanded.slices.iter().flat_map(|slice| &slice.devices);
            devices.find(|device| device["name"] == name).expect(name)["attributes"].clone()
        };
        let (whole, part) = (find("gpu-3"), find("gpu-3-mig-1g10gb-19-2"));
        assert_eq!(whole["uuid"], part["parentUUID"]);
        assert_eq!(expanded.labels["nvidia.com/gpu.count"], "8");
        assert!(!expanded.labels.contains_key("kubernetes.io/hostname"));

        cluster
            .slices
            .retain(|slice| slice["metadata"]["name"] != "host-b-gpu.nvidia.com-1");
        assert_eq!(record(&cluster).expect("recorded").len(), 2);
        assert!(record(&Cluster::default()).expect("recorded").is_empty());
    }

    #[test]
    fn what_identifies_is_replaced() {
        let mut replace = Replace::new("host-a");
        let uuid = "5d1d46ee-c7f8-fb08-137a-026f11ab6dd9";
        let mut check = |text: &str, expected: &str| assert_eq!(replace.text(text), expected);
        check(&format!("GPU-{uuid}"), "GPU-{uuid(node, 0)}");
        check(&format!("GPU-{uuid}/x"), "GPU-{uuid(node, 0)}/x");
        check("60:5e:65:14:0f:10", "00:00:5e:00:00:01");
        check("10.1.2.3/19", "192.0.2.1/24");
        check("fd00::7", "2001:db8::1/64");
        check("rack of host-a", "rack of {node}");
        check("a{b}", "a{{b}}");
        check("0000:1b:00.0", "0000:1b:00.0");
    }
}
