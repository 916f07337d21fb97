//! Small random problems, the same for the same seed.

use serde_json::{Value, json};

use crate::make::{claim, device, problem, read};
use allot_allocator::problem::Problem;

/// A generator of numbers (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// What pools of a problem are about.
#[derive(Clone, Copy, PartialEq)]
enum Flavour {
    Plain,
    Counters,
    Shared,
    Mixed,
}

/// A problem that exercises one or all kinds of devices, small enough to try everything.
pub fn small(seed: u64) -> Problem {
    let mut r = Random::new(seed);
    let flavour = *r.pick(&[
        Flavour::Plain,
        Flavour::Plain,
        Flavour::Counters,
        Flavour::Shared,
        Flavour::Mixed,
    ]);
    let lists = r.chance(15);
    let mut slices = Vec::new();
    let mut devices = Vec::new();
    for pool in 0..1 + r.below(3) {
        pool_slices(&mut r, flavour, lists, pool, &mut slices, &mut devices);
    }
    for pool in 0..3 {
        if r.chance(6) {
            left_over(&mut r, pool, &mut slices);
        }
    }
    let claims = (0..1 + usize::from(r.chance(30)))
        .map(|index| random_claim(&mut r, index, flavour))
        .collect();
    let mut made = problem(slices, claims);
    if lists {
        made.features.push("DRAListTypeAttributes".into());
    }
    for (pool, name, shared) in devices {
        let id = json!({"driver": "gpu.example.com", "pool": pool, "device": name});
        if shared && r.chance(25) {
            let mut used = id;
            used["capacity"] = json!({"mem": r.pick(&["1", "2", "3"])});
            made.consumed_capacity.push(read(used));
        } else if !shared && r.chance(15) {
            made.allocated_devices.push(read(id));
        }
    }
    made.name = format!("seed {seed}");
    made
}

fn pool_slices(
    r: &mut Random,
    flavour: Flavour,
    lists: bool,
    pool: usize,
    slices: &mut Vec<Value>,
    devices: &mut Vec<(String, String, bool)>,
) {
    let name = format!("p{pool}");
    let counters = matches!(flavour, Flavour::Counters | Flavour::Mixed) && r.chance(80);
    let parts = 1 + r.below(2);
    let total = parts + usize::from(counters);
    let claimed = if r.chance(4) { total + 1 } else { total };
    let spec = |fields: Value| {
        let mut spec = json!({
            "driver": "gpu.example.com",
            "pool": {"name": name, "generation": 1, "resourceSliceCount": claimed},
        });
        for (key, value) in fields.as_object().unwrap() {
            spec[key] = value.clone();
        }
        spec
    };
    let place = r
        .pick(&[
            json!({"nodeName": "n1"}),
            json!({"nodeName": "n1"}),
            json!({"allNodes": true}),
            json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}),
            json!({"perDeviceNodeSelection": true}),
        ])
        .clone();
    if counters {
        let mut fields = json!({"sharedCounters": [{"name": "set", "counters": {
            "slots": {"value": r.pick(&["2", "3", "5"])}, "mem": {"value": r.pick(&["4", "6"])},
        }}]});
        let own = if place.get("perDeviceNodeSelection").is_some() {
            json!({"nodeName": "n1"})
        } else {
            place.clone()
        };
        for (key, value) in own.as_object().unwrap() {
            fields[key] = value.clone();
        }
        slices
            .push(json!({"metadata": {"name": format!("{name}-counters")}, "spec": spec(fields)}));
    }
    for part in 0..parts {
        let mut list = Vec::new();
        for index in 0..1 + r.below(3) {
            let number = if r.chance(2) { 0 } else { index };
            let id = format!("d{part}{number}");
            let (mut made, shared) = random_device(r, &id, flavour, counters, lists);
            if place.get("perDeviceNodeSelection").is_some() {
                let (key, value) = r
                    .pick(&[
                        ("nodeName", json!("n1")),
                        ("nodeName", json!("n2")),
                        ("allNodes", json!(true)),
                    ])
                    .clone();
                made[key] = value;
            }
            list.push(made);
            devices.push((name.clone(), id, shared));
        }
        let mut fields = place.clone();
        fields["devices"] = list.into();
        slices.push(json!({"metadata": {"name": format!("{name}-{part}")}, "spec": spec(fields)}));
    }
}

/// A slice of an older generation, which may be all that the node sees of the pool.
fn left_over(r: &mut Random, pool: usize, slices: &mut Vec<Value>) {
    let name = format!("p{pool}");
    if r.chance(40) {
        let own = slices
            .iter_mut()
            .filter(|s| s["spec"]["pool"]["name"] == name);
        for spec in own.map(|s| &mut s["spec"]) {
            if spec["nodeName"] == "n1" {
                spec["nodeName"] = json!("n2");
            }
        }
    }
    let count = 1 + r.below(2);
    slices.push(
        json!({"metadata": {"name": format!("{name}-old")}, "spec": {
            "driver": "gpu.example.com", "nodeName": "n1",
            "pool": {"name": name, "generation": 0, "resourceSliceCount": count},
            "devices": [{"name": "stale", "attributes": {"numa": {"int": 1}, "root": {"int": 0}}}],
        }}),
    );
}

fn random_device(
    r: &mut Random,
    name: &str,
    flavour: Flavour,
    counters: bool,
    lists: bool,
) -> (Value, bool) {
    let mut fields = json!({"attributes": {}, "capacity": {}});
    if r.chance(85) {
        fields["attributes"]["numa"] = json!({"int": r.below(3)});
    }
    if lists && r.chance(70) {
        let list: Vec<_> = (0..r.below(3)).map(|_| r.below(4)).collect();
        fields["attributes"]["root"] = json!({"ints": list});
    } else if r.chance(90) {
        fields["attributes"]["root"] = r
            .pick(&[json!({"int": 0}), json!({"int": 1}), json!({"string": "0"})])
            .clone();
    }
    let shared = match flavour {
        Flavour::Shared => r.chance(80),
        Flavour::Mixed => r.chance(30),
        _ => false,
    };
    if shared || r.chance(20) {
        let mut capacity = json!({"value": r.pick(&["2", "4", "6"])});
        if shared && r.chance(40) {
            capacity["requestPolicy"] = r
                .pick(&[
                    json!({"default": "1", "validRange": {"min": "1", "max": "4", "step": "1"}}),
                    json!({"default": "2", "validRange": {"min": "2", "step": "2"}}),
                    json!({"default": "1", "validValues": ["1", "3"]}),
                ])
                .clone();
        }
        fields["capacity"]["mem"] = capacity;
    }
    if shared {
        fields["allowMultipleAllocations"] = true.into();
    }
    if counters && r.chance(80) {
        let mut taken = json!({"slots": {"value": r.pick(&["1", "1", "2"])}});
        if r.chance(50) {
            taken["mem"] = json!({"value": r.pick(&["1", "2", "3"])});
        }
        fields["consumesCounters"] = json!([{"counterSet": "set", "counters": taken}]);
    }
    if r.chance(10) {
        fields["taints"] =
            json!([{"key": "broken", "effect": r.pick(&["NoSchedule", "NoExecute", "None"])}]);
    }
    if r.chance(5) {
        fields["bindingConditions"] = json!(["ready"]);
        fields["bindingFailureConditions"] = json!(["failed"]);
    }
    (device(name, fields), shared)
}

fn random_claim(r: &mut Random, index: usize, flavour: Flavour) -> Value {
    let mut requests = Vec::new();
    for request in 0..1 + r.below(3) {
        let name = format!("q{request}");
        if r.chance(20) {
            let list: Vec<_> = (0..1 + r.below(3))
                .map(|sub| {
                    let mut wanted = wanted(r, flavour);
                    wanted["name"] = format!("o{sub}").into();
                    wanted
                })
                .collect();
            requests.push(json!({"name": name, "firstAvailable": list}));
        } else {
            let mut wanted = wanted(r, flavour);
            if r.chance(6) {
                wanted["adminAccess"] = true.into();
            }
            requests.push(json!({"name": name, "exactly": wanted}));
        }
    }
    let mut fields = json!({});
    if r.chance(45) {
        let mut list = Vec::new();
        for _ in 0..1 + r.below(2) {
            let kind = *r.pick(&["matchAttribute", "matchAttribute", "distinctAttribute"]);
            let mut constraint = json!({});
            constraint[kind] = json!(r.pick(&["gpu.example.com/root", "gpu.example.com/numa"]));
            if r.chance(40) {
                constraint["requests"] = json!([requests[r.below(requests.len())]["name"]]);
            }
            list.push(constraint);
        }
        fields["constraints"] = list.into();
    }
    claim(&format!("c{index}"), requests, fields)
}

fn wanted(r: &mut Random, flavour: Flavour) -> Value {
    let mut wanted = if r.chance(8) {
        json!({"deviceClassName": "any", "allocationMode": "All"})
    } else {
        json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": r.pick(&[1, 1, 1, 2, 2, 3])})
    };
    if r.chance(30) {
        let expression = r.pick(&EXPRESSIONS).0;
        wanted["selectors"] = json!([{"cel": {"expression": expression}}]);
    }
    if r.chance(15) {
        wanted["tolerations"] = json!([{"key": "broken", "operator": "Exists"}]);
    }
    if matches!(flavour, Flavour::Shared | Flavour::Mixed) && r.chance(40) {
        wanted["capacity"] = json!({"requests": {"mem": r.pick(&["1", "2", "3", "5"])}});
    }
    wanted
}

type Predicate = fn(&k8s_openapi::api::resource::v1::Device) -> Option<bool>;

/// Selectors, and what they are in Rust. `None` = the evaluation fails.
pub const EXPRESSIONS: [(&str, Predicate); 3] = [
    ("device.driver == \"gpu.example.com\"", |_| Some(true)),
    (
        "device.attributes[\"gpu.example.com\"].?numa.orValue(9) == 1",
        |d| Some(numa(d).unwrap_or(9) == 1),
    ),
    ("device.attributes[\"gpu.example.com\"].numa < 2", |d| {
        numa(d).map(|n| n < 2)
    }),
];

fn numa(device: &k8s_openapi::api::resource::v1::Device) -> Option<i64> {
    device.attributes.as_ref()?.get("numa")?.int
}
