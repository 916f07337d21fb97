//! What users make: pods with claims of all kinds, claims that pods share, groups of pods.

use rand::Rng;
use serde_json::{Value, json};

use super::api::id;
use super::cluster::{CPU, DEVICES, NODES, SimulatedCluster};
use super::devices::{self, DRIVER, PARTS, SHARES};
use super::invariants::{is_deleting, name, owner_of};

pub const NAMESPACE: &str = "sim";
/// The name under which pods ask for the second scheduler.
pub const SECOND: &str = "second";
/// What extended resources are called that stand for a device class.
pub const EXTENDED: &str = "deviceclass.resource.kubernetes.io/";
/// What a pod with devices needs of a node's processors, in thousandths, and one without.
const SMALL: u64 = 20;
const LARGE: u64 = 400;

/// Templates and what is in their claims: class, count, memory.
const TEMPLATES: [(&str, &str, usize, Option<&str>); 8] = [
    ("t1", "device", 1, None),
    ("t2", "device", 2, None),
    ("s1", "share", 1, None),
    ("s2", "share", 1, Some("2")),
    ("s3", "share", 1, Some("3")),
    ("p1", "partition1", 1, None),
    ("p2", "partition2", 1, None),
    ("p4", "partition4", 1, None),
];

/// Which kinds of devices pods ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Whole devices.
    Devices,
    /// Shares and partitions.
    Parts,
    All,
}

fn claim_spec(class: &str, count: usize, memory: Option<&str>) -> Value {
    let mut exactly =
        json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": count});
    if let Some(memory) = memory {
        exactly["capacity"] = json!({"requests": {"memory": memory}});
    }
    json!({"devices": {"requests": [{"name": "r", "exactly": exactly}]}})
}

impl SimulatedCluster {
    pub fn fixtures(&self) {
        let create = |collection: &str, object: Value| {
            self.api.create(collection, object).expect("a fixture");
        };
        create("namespaces", json!({"metadata": {"name": NAMESPACE}}));
        let of = |driver: &str| format!("device.driver == '{driver}'");
        let mut classes = vec![
            ("device".to_owned(), of(DRIVER)),
            ("share".to_owned(), of(SHARES)),
            ("partition".to_owned(), of(PARTS)),
        ];
        for size in [1, 2, 4] {
            let selector = format!(
                "{} && device.attributes['{PARTS}'].size == {size}",
                of(PARTS)
            );
            classes.push((format!("partition{size}"), selector));
        }
        for (name, expression) in classes {
            let selectors = json!([{"cel": {"expression": expression}}]);
            create(
                "deviceclasses",
                json!({"metadata": {"name": name}, "spec": {"selectors": selectors}}),
            );
        }
        for (name, class, count, memory) in TEMPLATES {
            let meta = json!({"name": name, "namespace": NAMESPACE});
            let spec = json!({"spec": claim_spec(class, count, memory)});
            create(
                "resourceclaimtemplates",
                json!({"metadata": meta, "spec": spec}),
            );
        }
        for n in 0..NODES {
            let node = format!("n{n}");
            let amounts = json!({"cpu": format!("{CPU}m"), "memory": "64Gi", "pods": "110"});
            create(
                "nodes",
                json!({"metadata": {"name": node}, "spec": {}, "status": {"allocatable": amounts}}),
            );
            let whole = (0..DEVICES).map(|d| devices::device(&node, d)).collect();
            create("resourceslices", devices::slice(&node, whole));
            devices::parts(&node)
                .into_iter()
                .for_each(|slice| create("resourceslices", slice));
        }
    }

    /// A pod of any kind.
    pub fn create_some_pod(&mut self) {
        let kinds = match self.mix {
            Mix::Devices => 0..10,
            Mix::Parts => 10..20,
            Mix::All => 0..20,
        };
        match self.rng.random_range(kinds) {
            0..2 => self.create_pod(json!(null)),
            2..7 => {
                let template = self.template(0..3);
                self.create_pod(from_template("r", template));
            }
            7 | 8 | 10 | 11 => self.create_pod_with_claim(),
            9 | 12 => match self.rng.random_range(0..2) {
                0 => self.create_pod_of_group(),
                _ => self.create_gang(),
            },
            13..17 => {
                let template = self.template(3..9);
                self.create_pod(from_template("r", template));
            }
            17 | 18 => self.create_pod_with_resource(),
            _ => {
                let (own, part) = (self.template(0..3), self.template(3..9));
                let mut claims = from_template("r", own);
                claims
                    .as_array_mut()
                    .into_iter()
                    .for_each(|c| c.push(from_template("s", part)[0].clone()));
                self.create_pod(claims);
            }
        }
    }

    /// One of the templates; of those for whole devices, the one for one device twice as often.
    fn template(&mut self, range: std::ops::Range<usize>) -> &'static str {
        TEMPLATES[self.rng.random_range(range).saturating_sub(1)].0
    }

    fn create_pod(&mut self, claims: Value) {
        let spec = json!({"resourceClaims": claims});
        self.create_any_pod(spec, None);
    }

    /// With fields of its specification, and a class whose devices it gets as an extended resource.
    fn create_any_pod(&mut self, mut spec: Value, class: Option<&str>) {
        let name = format!("p{}", self.pods);
        self.pods += 1;
        // Pods with devices go before those without, and of these some before others.
        let (cpu, priority) = match spec["resourceClaims"].is_null() && class.is_none() {
            true => (LARGE, self.rng.random_range(0..3)),
            false => (SMALL, 10),
        };
        let mut requests = json!({"cpu": format!("{cpu}m")});
        if let Some(class) = class {
            requests[format!("{EXTENDED}{class}")] = "1".into();
        }
        spec["containers"] = json!([{"name": "c", "resources": {"requests": requests}}]);
        spec["priority"] = priority.into();
        // The pods of a group are one scheduler's: what it reserves for a group, for itself, another one takes back.
        let group = spec["schedulingGroup"]["podGroupName"].as_str();
        let is_even = |group: &str| group.ends_with(['0', '2', '4', '6', '8']);
        let second = match group {
            Some(group) => is_even(group),
            None => self.rng.random_range(0..2) == 0,
        };
        if self.second && second {
            spec["schedulerName"] = SECOND.into();
        }
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|_, v| !v.is_null());
        }
        let meta = json!({"name": name, "namespace": NAMESPACE});
        let pod = json!({"metadata": meta, "spec": spec, "status": {"phase": "Pending"}});
        let _ = self.api.create("pods", pod);
    }

    /// A pod that gets its device as an extended resource.
    fn create_pod_with_resource(&mut self) {
        let classes = match self.mix {
            Mix::Parts => &["share", "partition"][..],
            _ => &["share", "partition", "device"],
        };
        let class = classes[self.rng.random_range(0..classes.len())];
        self.create_any_pod(json!({}), Some(class));
    }

    /// A claim that a user makes.
    fn create_claim(&mut self) -> String {
        let (_, class, count, memory) = match self.mix {
            Mix::Devices => TEMPLATES[0],
            Mix::Parts => TEMPLATES[self.rng.random_range(2..TEMPLATES.len())],
            Mix::All => TEMPLATES[self.rng.random_range(0..TEMPLATES.len())],
        };
        let claim = format!("c-p{}", self.pods);
        let meta = json!({"name": claim, "namespace": NAMESPACE});
        let object = json!({"metadata": meta, "spec": claim_spec(class, count, memory)});
        let _ = self.api.create("resourceclaims", object);
        claim
    }

    /// A pod with a claim that its user made for it, or with one that an earlier pod has.
    fn create_pod_with_claim(&mut self) {
        let claims = self.api.all("resourceclaims");
        let usable: Vec<&Value> = claims
            .iter()
            .filter(|c| !is_deleting(c) && owner_of(c).is_none())
            .collect();
        let claim = if !usable.is_empty() && self.rng.random_range(0..2) == 0 {
            name(usable[self.rng.random_range(0..usable.len())]).to_owned()
        } else {
            self.create_claim()
        };
        self.create_pod(json!([{"name": "r", "resourceClaimName": claim}]));
    }

    /// A pod in a group, most often in an existing one, with the claim of the group, and sometimes a separate one.
    fn create_pod_of_group(&mut self) {
        let groups = self.api.all("podgroups");
        let group = match groups.len() {
            n if n > 0 && self.rng.random_range(0..4) > 0 => {
                groups[self.rng.random_range(0..n)].clone()
            }
            _ => {
                let claims = match self.rng.random_range(0..2) {
                    0 => json!([{"name": "g", "resourceClaimName": self.create_claim()}]),
                    _ if self.mix == Mix::Parts => from_template("g", self.template(3..9)),
                    _ => from_template("g", self.template(0..9)),
                };
                let meta = json!({"name": format!("g{}", self.pods), "namespace": NAMESPACE});
                let group = json!({"metadata": meta, "spec": {"resourceClaims": claims}});
                let Ok(group) = self.api.create("podgroups", group) else {
                    return;
                };
                group
            }
        };
        let mut claims = group["spec"]["resourceClaims"].clone();
        if self.mix != Mix::Parts && self.rng.random_range(0..4) == 0 {
            let own = from_template("own", "t1")[0].clone();
            claims
                .as_array_mut()
                .into_iter()
                .for_each(|c| c.push(own.clone()));
        }
        let in_group = json!({"podGroupName": name(&group)});
        self.create_any_pod(
            json!({"resourceClaims": claims, "schedulingGroup": in_group}),
            None,
        );
    }

    /// Pods that are placed at once, each with a device or what else there is, or without.
    fn create_gang(&mut self) {
        let claims = match self.mix {
            Mix::Parts => from_template("r", self.template(3..9)),
            _ if self.rng.random_range(0..3) == 0 => json!(null),
            _ => from_template("r", self.template(0..3)),
        };
        let pods = self.rng.random_range(2..=3);
        let needed = self.rng.random_range(1..=pods);
        let meta = json!({"name": format!("g{}", self.pods), "namespace": NAMESPACE});
        let policy = json!({"gang": {"minCount": needed}});
        let mut spec = json!({"schedulingPolicy": policy});
        if self.groups_preempt {
            // At least that of each of its pods.
            spec["priority"] = if claims.is_null() { 2 } else { 10 }.into();
            let modes = ["Pod", "PodGroup"];
            spec["disruptionMode"] = modes[self.pods % 2].into();
        }
        let group = json!({"metadata": meta, "spec": spec});
        let Ok(group) = self.api.create("podgroups", group) else {
            return;
        };
        let in_group = json!({"podGroupName": name(&group)});
        for _ in 0..pods {
            let spec = json!({"resourceClaims": claims, "schedulingGroup": in_group});
            self.create_any_pod(spec, None);
        }
    }

    /// A user deletes a claim of a pending pod.
    pub fn lose_claim(&mut self, pod: &Value) {
        let mut claims = super::invariants::claims_of(pod);
        claims
            .extend(super::invariants::extended_resource_claim_of(pod).map(|c| Some(c.to_owned())));
        if let Some(Some(claim)) = claims.first() {
            let _ = self
                .api
                .delete(&id("resourceclaims", NAMESPACE, claim), None);
        }
    }
}

fn from_template(entry: &str, template: &str) -> Value {
    json!([{"name": entry, "resourceClaimTemplateName": template}])
}
