use super::*;
use crate::expand;

/// How many devices the slices of an expansion have.
fn devices(expanded: &expand::Expanded) -> usize {
    expanded
        .slices
        .iter()
        .map(|slice| slice.devices.len())
        .sum()
}

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

/// Numbers that differ from run to run of the loop, and are the same in every run of the test.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn hex(&mut self, digits: usize) -> String {
        // At least one digit that is no letter in eight.
        (0..digits)
            .map(|at| match at % 2 {
                0 => char::from(b'0' + self.next(10) as u8),
                _ => char::from(b"0123456789abcdef"[self.next(16) as usize]),
            })
            .collect()
    }

    /// An identifier of one of nine sorts.
    fn identifier(&mut self, sort: u64) -> String {
        let hex = |random: &mut Self, groups: &[usize], separator: &str| {
            let groups: Vec<_> = groups.iter().map(|digits| random.hex(*digits)).collect();
            groups.join(separator)
        };
        match sort {
            0 => hex(self, &[8, 4, 4, 4, 12], "-"),
            1 => hex(self, &[2; 6], ":"),
            2 => hex(self, &[4; 4], ":"),
            3 => hex(self, &[2; 20], ":"),
            4 => format!(
                "10.{}.{}.{}",
                self.next(256),
                self.next(256),
                1 + self.next(255)
            ),
            5 => format!(
                "fd00:{:x}::{:x}",
                1 + self.next(65_535),
                1 + self.next(65_535)
            ),
            6 => format!("MT{:09}", self.next(1_000_000_000)),
            7 => format!("{:013}", self.next(1_000_000_000_000)),
            _ => format!(
                "sw{}.rack{}.dc3.example.org",
                self.next(1000),
                self.next(100)
            ),
        }
    }
}

/// Nodes that are alike, each with identifiers of its own and some of the site, and everything that identifies them.
fn site(random: &mut Random, nodes: usize) -> (Cluster, Vec<String>) {
    let mut cluster = Cluster::default();
    let sorts: Vec<u64> = (0..7).map(|_| random.next(9)).collect();
    let shared = sorts[4..].iter().map(|sort| random.identifier(*sort));
    let mut identifiers: Vec<String> = shared.collect();
    let shared = identifiers.clone();
    identifiers.extend(["us-central1-a", "customers", "example.org"].map(str::to_owned));
    for number in 0..nodes {
        let name = format!("gpu-worker-{}.dc3.example.org", random.next(1_000_000));
        let short = name.split('.').next().unwrap_or_default().to_owned();
        let own = sorts[..4].iter().map(|sort| random.identifier(*sort));
        let own: Vec<String> = own.collect();
        let machine = format!("i-{}", random.hex(17));
        let device = |at: usize| {
            let text = |text: String| json!({"string": text});
            json!({
                "name": format!("gpu-{at}"),
                "attributes": {
                    "parent": text(format!("GPU-{}", own[0])),
                    "first": text(own[at % 4].clone()),
                    "second": text(format!("at {},{}", own[1], own[at % 4])),
                    "fabric": text(shared[at % 3].clone()),
                    "node": text(format!("{short}/{name}")),
                    "serialNumber": text(format!("{}-{at}", number + 7)),
                    "assetTag": {"int": 900_000 + 10 * number + at},
                    "driver.example.com/rack": text("customers".into()),
                    "machine": text(machine.clone()),
                    "place": text("in us-central1-a".into()),
                    "resource.kubernetes.io/pcieRoot": text(format!("pci0000:{:02x}", at / 2)),
                    "model": text("NVIDIA H100 80GB HBM3".into()),
                    "driverVersion": {"version": "580.65.6"},
                    "index": {"int": at},
                },
                "capacity": {"memory": {"value": "85520809984"}},
            })
        };
        let devices: Vec<Value> = (0..6).map(device).collect();
        cluster.slices.push(json!({"spec": {
            "driver": "gpu.example.com", "nodeName": name, "pool": {"name": name, "generation": 1}, "devices": devices,
        }}));
        cluster.nodes.push(json!({
            "metadata": {"name": name, "labels": {
                "topology.kubernetes.io/zone": "us-central1-a",
                "driver.example.com/clique": format!("{}.7", shared[0]),
                "driver.example.com/nodepool": "customers",
                "driver.example.com/hostname": short,
            }},
            "spec": {"providerID": format!("aws:///us-central1-a/{machine}")},
        }));
        identifiers.extend(own);
        identifiers.extend([name, short, machine]);
    }
    cluster.classes.push(json!({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression":
        format!("device.driver == 'gpu.example.com' && device.attributes['x'].fabric == '{}'", shared[0])}}]}}));
    (cluster, identifiers)
}

/// All values of attributes, and the labels, in the order of nodes and devices.
fn values(nodes: impl Iterator<Item = (Value, Vec<Value>)>) -> Vec<Value> {
    let mut all = Vec::new();
    for (labels, devices) in nodes {
        all.extend(
            labels
                .as_object()
                .into_iter()
                .flatten()
                .map(|(_, value)| value.clone()),
        );
        for device in devices {
            let attributes = device["attributes"].as_object().into_iter().flatten();
            all.extend(attributes.map(|(_, value)| value.clone()));
        }
    }
    all
}

/// UUIDs, serial numbers, addresses, names of hosts and pools were left where the driver wrote them in a form of its own.
#[test]
fn regression_nothing_that_identifies_a_site_is_recorded() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let (cluster, identifiers) = site(&mut random, 3);
        let recorded = record(&cluster).expect("recorded");
        let [Recorded { text, model, nodes }] = recorded.as_slice() else {
            panic!("seed {seed}: {} kinds", recorded.len());
        };
        assert_eq!(*nodes, 3);
        let lower = text.to_lowercase();
        for identifier in &identifiers {
            let there = lower.contains(&identifier.to_lowercase());
            assert!(!there, "seed {seed}: {identifier} is in {text}");
        }
        for serial in ["7-0", "9-5", "900000", "900025"] {
            assert!(!text.contains(serial), "seed {seed}: {serial} is in {text}");
        }
        for kept in [
            "NVIDIA H100 80GB HBM3",
            "580.65.6",
            "pci0000:02",
            "85520809984",
        ] {
            assert!(text.contains(kept), "seed {seed}: {kept} is not in {text}");
        }
        // Equal values stay equal, and others different.
        let before = values(
            cluster
                .nodes
                .iter()
                .zip(&cluster.slices)
                .map(|(node, slice)| {
                    let mut labels = node["metadata"]["labels"].clone();
                    labels
                        .as_object_mut()
                        .expect("labels")
                        .remove("topology.kubernetes.io/zone");
                    (
                        labels,
                        slice["spec"]["devices"]
                            .as_array()
                            .expect("devices")
                            .clone(),
                    )
                }),
        );
        let after = values((0..3).map(|index| {
            let expanded = model.expand(&format!("n{index}"), index).expect("expands");
            (json!(expanded.labels), expanded.slices[0].devices.clone())
        }));
        assert_eq!(before.len(), after.len());
        for (a, b) in (0..before.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
            assert_eq!(
                before[a] == before[b],
                after[a] == after[b],
                "seed {seed}: {} and {} became {} and {}",
                before[a],
                before[b],
                after[a],
                after[b]
            );
        }
        // A class that names something of several nodes selects the same devices.
        let expression = model.classes[0].spec["selectors"][0]["cel"]["expression"].to_string();
        let fabric = &model.expand("n0", 0).expect("expands").slices[0].devices[0]["attributes"];
        let fabric = fabric["fabric"]["string"].as_str().expect("a text");
        assert!(
            expression.contains(&format!("'{fabric}'")),
            "{expression}: {fabric}"
        );
    }
}

#[test]
fn only_one_node_is_recorded() {
    let (mut cluster, _) = site(&mut Random(1), 3);
    cluster.only = Some(text(&cluster.nodes[1]["metadata"]["name"]).to_owned());
    let recorded = record(&cluster).expect("recorded");
    assert_eq!((recorded.len(), recorded[0].nodes), (1, 1));
}
