//! The objects that workloads consist of.

use serde_json::{Value, json};

use super::{Shape, Workload};

/// Names within a run: unique, so that runs do not disturb one another.
#[derive(Debug, Clone)]
pub struct Names {
    /// Unique part.
    pub id: String,
}

impl Names {
    /// The namespace of all pods and claims.
    pub fn namespace(&self) -> String {
        format!("bench-{}", self.id)
    }

    fn driver(&self) -> String {
        format!("{}.bench.example.com", self.id)
    }

    fn class(&self) -> String {
        format!("bench-{}", self.id)
    }

    /// The name of the node with this number.
    pub fn node(&self, i: usize) -> String {
        format!("bench-{}-{i}", self.id)
    }

    /// The name of the ResourceSlice with this number.
    pub fn slice(&self, i: usize) -> String {
        format!("bench-{}-{i}", self.id)
    }

    fn resource(&self) -> String {
        format!("{}/device", self.driver())
    }
}

/// An object and the path of its collection.
pub type Object = (String, Value);

impl Workload {
    /// The node with this number: large enough that only devices are short.
    pub fn node(&self, names: &Names, i: usize) -> Object {
        let amounts = json!({"cpu": "64", "memory": "256Gi", "pods": "1000"});
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": names.node(i), "labels": {"bench": names.id, "kubernetes.io/hostname": names.node(i)}},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True", "reason": "Bench", "message": ""}],
            },
        });
        ("/api/v1/nodes".to_owned(), node)
    }

    /// The slice of a node.
    pub fn slice(&self, names: &Names, i: usize) -> Option<Object> {
        if self.devices == 0 {
            return None;
        }
        let driver = names.driver();
        let mut spec = json!({
            "driver": driver,
            "nodeName": names.node(i),
            "pool": {"name": names.node(i), "generation": 1, "resourceSliceCount": 1},
        });
        let devices: Vec<Value> = (0..self.devices).map(|d| self.device(d)).collect();
        spec["devices"] = devices.into();
        let mut objects = spec;
        if self.shape == Shape::Partitionable {
            // Counters and devices are in separate slices.
            objects["pool"]["resourceSliceCount"] = 2.into();
        }
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": names.slice(i)},
            "spec": objects,
        });
        Some(("/apis/resource.k8s.io/v1/resourceslices".to_owned(), slice))
    }

    /// The counters of a node, if its devices are partitions.
    pub fn counters(&self, names: &Names, i: usize) -> Option<Object> {
        if self.shape != Shape::Partitionable {
            return None;
        }
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": format!("{}-counters", names.slice(i))},
            "spec": {
                "driver": names.driver(),
                "nodeName": names.node(i),
                "pool": {"name": names.node(i), "generation": 1, "resourceSliceCount": 2},
                "sharedCounters": [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}],
            },
        });
        Some(("/apis/resource.k8s.io/v1/resourceslices".to_owned(), slice))
    }

    fn device(&self, i: usize) -> Value {
        let mut device = json!({
            "name": format!("device-{i}"),
            "attributes": {"model": {"string": "A"}, "group": {"int": i / 2}, "index": {"int": i}},
            "capacity": {"memory": {"value": "80Gi"}},
        });
        match self.shape {
            Shape::Partitionable => {
                // Half as many whole quarters as halves: the card is used up before the devices are.
                let memory = if i.is_multiple_of(2) { "10Gi" } else { "20Gi" };
                device["capacity"]["memory"]["value"] = memory.into();
                device["consumesCounters"] =
                    json!([{"counterSet": "card", "counters": {"memory": {"value": memory}}}]);
            }
            Shape::Consumable => device["allowMultipleAllocations"] = true.into(),
            _ => {}
        }
        device
    }

    /// Namespace, class and template.
    pub fn fixtures(&self, names: &Names) -> Vec<Object> {
        if self.shape == Shape::Classic {
            return classic_fixtures(names);
        }
        let mut class = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": names.class()},
            "spec": {"selectors": [{"cel": {"expression": format!("device.driver == {:?}", names.driver())}}]},
        });
        if self.shape == Shape::Extended {
            class["spec"]["extendedResourceName"] = names.resource().into();
        }
        let template = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "device", "namespace": names.namespace()},
            "spec": {"spec": self.claim_spec(names)},
        });
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.namespace()}});
        let templates = format!(
            "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaimtemplates",
            names.namespace()
        );
        vec![
            ("/api/v1/namespaces".to_owned(), namespace),
            ("/apis/resource.k8s.io/v1/deviceclasses".to_owned(), class),
            (templates, template),
        ]
    }

    fn claim_spec(&self, names: &Names) -> Value {
        let class = names.class();
        let driver = names.driver();
        let exactly = |extra: Value| {
            let mut exactly = json!({"deviceClassName": class});
            for (k, v) in extra.as_object().into_iter().flatten() {
                exactly[k] = v.clone();
            }
            json!({"name": "device", "exactly": exactly})
        };
        let cel = |expression: String| json!({"cel": {"expression": expression}});
        match self.shape {
            Shape::Selectors => {
                let selectors = [
                    cel(format!("device.attributes[{driver:?}].model == \"A\"")),
                    cel(format!(
                        "device.capacity[{driver:?}].memory.compareTo(quantity(\"40Gi\")) >= 0"
                    )),
                ];
                json!({"devices": {"requests": [exactly(json!({"selectors": selectors}))]}})
            }
            Shape::Match => json!({"devices": {
                "requests": [exactly(json!({"count": 2}))],
                "constraints": [{"requests": ["device"], "matchAttribute": format!("{driver}/group")}],
            }}),
            Shape::Consumable => json!({"devices": {
                "requests": [exactly(json!({"capacity": {"requests": {"memory": "10Gi"}}}))],
            }}),
            Shape::FirstAvailable => {
                json!({"devices": {"requests": [{"name": "device", "firstAvailable": [
                    {
                        "name": "better",
                        "deviceClassName": class,
                        "selectors": [cel(format!("device.attributes[{driver:?}].model == \"B\""))],
                    },
                    {"name": "good", "deviceClassName": class},
                ]}]}})
            }
            _ => json!({"devices": {"requests": [exactly(json!({}))]}}),
        }
    }

    /// A claim that several pods share, when this pod is the first to need it.
    pub fn claim(&self, names: &Names, pod: usize) -> Option<Object> {
        let Shape::Shared(n) = self.shape else {
            return None;
        };
        if !pod.is_multiple_of(n) {
            return None;
        }
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": format!("shared-{}", pod / n), "namespace": names.namespace()},
            "spec": self.claim_spec(names),
        });
        Some((
            format!(
                "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims",
                names.namespace()
            ),
            claim,
        ))
    }

    /// The pod with this number, which asks for devices as the workload says.
    pub fn pod(&self, names: &Names, prefix: &str, i: usize) -> Object {
        let mut container = json!({
            "name": "main",
            "image": "registry.k8s.io/pause:3.10",
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        });
        let mut spec = json!({"nodeSelector": {"bench": names.id}});
        match self.shape {
            Shape::Plain => {}
            Shape::Extended => {
                container["resources"]["limits"] = json!({names.resource(): "1"});
                container["resources"]["requests"][names.resource()] = "1".into();
            }
            Shape::Shared(n) => {
                spec["resourceClaims"] =
                    json!([{"name": "device", "resourceClaimName": format!("shared-{}", i / n)}]);
                container["resources"]["claims"] = json!([{"name": "device"}]);
            }
            _ => {
                spec["resourceClaims"] =
                    json!([{"name": "device", "resourceClaimTemplateName": "device"}]);
                container["resources"]["claims"] = json!([{"name": "device"}]);
            }
        }
        spec["containers"] = json!([container]);
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": format!("{prefix}-{i}"), "namespace": names.namespace()},
            "spec": spec,
        });
        (
            format!("/api/v1/namespaces/{}/pods", names.namespace()),
            pod,
        )
    }

    /// Whether a pod fits nowhere because of a claim, and not of CPU.
    fn has_impossible_claim(&self) -> bool {
        self.devices > 0 && !matches!(self.shape, Shape::Extended | Shape::Classic)
    }

    /// A template for one device more than any node has.
    pub fn impossible_template(&self, names: &Names) -> Option<Object> {
        let exactly = json!({"deviceClassName": names.class(), "count": self.devices + 1});
        let requests = json!([{"name": "device", "exactly": exactly}]);
        let template = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "impossible", "namespace": names.namespace()},
            "spec": {"spec": {"devices": {"requests": requests}}},
        });
        let namespace = names.namespace();
        let path =
            format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates");
        self.has_impossible_claim().then_some((path, template))
    }

    /// A pod that fits nowhere: for lack of devices, or of CPU if the workload has none.
    pub fn impossible_pod(&self, names: &Names, i: usize) -> Object {
        let (path, mut pod) = self.pod(names, "impossible", i);
        if self.has_impossible_claim() {
            pod["spec"]["resourceClaims"] =
                json!([{"name": "device", "resourceClaimTemplateName": "impossible"}]);
        } else {
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1000000".into();
        }
        (path, pod)
    }

    /// Paths of everything outside of the namespace, for the clean-up.
    pub fn leftovers(&self, names: &Names) -> Vec<String> {
        let slices = "/apis/resource.k8s.io/v1/resourceslices";
        let classes = match self.shape {
            Shape::Classic => "/apis/resource.k8s.io/v1alpha2/resourceclasses",
            _ => "/apis/resource.k8s.io/v1/deviceclasses",
        };
        let mut paths = vec![format!("{classes}/{}", names.class())];
        for i in 0..self.nodes {
            if self.devices > 0 {
                paths.push(format!("{slices}/{}", names.slice(i)));
            }
            if self.shape == Shape::Partitionable {
                paths.push(format!("{slices}/{}-counters", names.slice(i)));
            }
            paths.push(format!("/api/v1/nodes/{}", names.node(i)));
        }
        paths
    }
}

/// Namespace, class and template of releases before 1.31.
fn classic_fixtures(names: &Names) -> Vec<Object> {
    const ROOT: &str = "/apis/resource.k8s.io/v1alpha2";
    let object = |kind: &str, name: String, more: Value| {
        let mut object = json!({
            "apiVersion": "resource.k8s.io/v1alpha2",
            "kind": kind,
            "metadata": {"name": name},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        object
    };
    let namespace = names.namespace();
    let class = object(
        "ResourceClass",
        names.class(),
        json!({"driverName": "test-driver.cdi.k8s.io"}),
    );
    let template = object(
        "ResourceClaimTemplate",
        "device".to_owned(),
        json!({"spec": {"spec": {"resourceClassName": names.class()}}}),
    );
    vec![
        (
            "/api/v1/namespaces".to_owned(),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        ),
        (format!("{ROOT}/resourceclasses"), class),
        (
            format!("{ROOT}/namespaces/{namespace}/resourceclaimtemplates"),
            template,
        ),
    ]
}
