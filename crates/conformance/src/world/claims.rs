//! Allocated claims, as the scheduler leaves them.

use http::Method;
use serde_json::{Value, json};

use super::{DeviceRef, World};
use crate::case::{Stop, fail};
use crate::kubelet::{ClaimRef, Device};

/// Claims with access for administrators are allowed here.
pub(crate) const ADMIN_NAMESPACE: &str = "conformance-admin";
/// Results of another driver.
pub(crate) const OTHER_DRIVER: &str = "other.conformance.example.com";

/// The claim to create.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    pub(crate) name: Option<String>,
    pub(crate) devices: Vec<DeviceRef>,
    /// The first device is chosen among alternatives.
    pub(crate) alternative: bool,
    pub(crate) admin: bool,
    /// One more device, of another driver.
    pub(crate) foreign: bool,
    pub(crate) unallocated: bool,
    /// Opaque parameters: driver, requests, parameters.
    pub(crate) config: Vec<(String, Vec<String>, Value)>,
    /// Those of the class, which come before those of the claim.
    pub(crate) class_config: Vec<(String, Vec<String>, Value)>,
}

impl Wanted {
    pub(crate) fn device(device: &DeviceRef) -> Self {
        Self {
            devices: vec![device.clone()],
            ..Self::default()
        }
    }
}

/// The path of a claim.
pub(crate) fn path(claim: &ClaimRef) -> String {
    format!("{}/{}", claims(&claim.namespace), claim.name)
}

fn claims(namespace: &str) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")
}

/// The answer for a result: pool and device.
pub(crate) fn answer_of<'a>(devices: &'a [Device], device: &DeviceRef) -> Option<&'a Device> {
    devices
        .iter()
        .find(|answer| answer.pool == device.pool && answer.device == device.name)
}

impl World {
    /// A claim with one device, by its index.
    pub(crate) async fn claim(&mut self, device: usize) -> Result<ClaimRef, Stop> {
        let device = self.devices[device].clone();
        self.make(Wanted::device(&device)).await
    }

    /// A claim, allocated to this node and reserved for a pod.
    pub(crate) async fn make(&mut self, wanted: Wanted) -> Result<ClaimRef, Stop> {
        self.number += 1;
        let namespace = if wanted.admin {
            ADMIN_NAMESPACE
        } else {
            "default"
        };
        let name = wanted
            .name
            .clone()
            .unwrap_or_else(|| format!("conformance-{}", self.number));
        let (mut requests, mut results) = (Vec::new(), Vec::new());
        for (index, device) in wanted.devices.iter().enumerate() {
            let request = format!("r{index}");
            let exactly = |mut value: Value| {
                if wanted.admin {
                    value["adminAccess"] = json!(true);
                }
                value
            };
            let alternative = wanted.alternative && index == 0;
            requests.push(match alternative {
                true => json!({"name": request, "firstAvailable": [{"name": "first", "deviceClassName": "conformance"}]}),
                false => json!({"name": request, "exactly": exactly(json!({"deviceClassName": "conformance"}))}),
            });
            let request = if alternative {
                format!("{request}/first")
            } else {
                request
            };
            let mut result = json!({"request": request, "driver": self.driver, "pool": device.pool, "device": device.name});
            if device.shared {
                result["shareID"] = json!(uuid::Uuid::new_v4().to_string());
                let amounts = device.amounts.first().filter(|amounts| !amounts.is_empty());
                if let Some(amounts) = amounts {
                    result["consumedCapacity"] = json!(amounts);
                }
            }
            if wanted.admin {
                result["adminAccess"] = json!(true);
            }
            results.push(result);
        }
        if wanted.foreign {
            requests
                .push(json!({"name": "foreign", "exactly": {"deviceClassName": "conformance"}}));
            results.push(json!({"request": "foreign", "driver": OTHER_DRIVER, "pool": "other", "device": "other-0"}));
        }
        let opaque = |(driver, requests, parameters): &(String, Vec<String>, Value)| json!({"requests": requests, "opaque": {"driver": driver, "parameters": parameters}});
        let config: Vec<Value> = wanted.config.iter().map(opaque).collect();
        let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
            "spec": {"devices": {"requests": requests, "config": config}}});
        let made = self
            .api
            .call(Method::POST, &claims(namespace), Some(&claim))
            .await;
        let made = made.or_else(|error| fail(format!("cannot make a claim: {error}")))?;
        let claim = ClaimRef {
            namespace: namespace.to_owned(),
            name,
            uid: made["metadata"]["uid"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        };
        self.claims.push(claim.clone());
        if !wanted.unallocated {
            let from = |source: &'static str| {
                move |mut config: Value| {
                    config["source"] = json!(source);
                    config
                }
            };
            let of_class = wanted
                .class_config
                .iter()
                .map(opaque)
                .map(from("FromClass"));
            let config: Vec<Value> = of_class
                .chain(config.into_iter().map(from("FromClaim")))
                .collect();
            let field =
                json!({"key": "metadata.name", "operator": "In", "values": [self.options.node]});
            let pod = format!("pod-{}", self.number);
            let status = json!({"status": {
                "allocation": {
                    "devices": {"results": results, "config": config},
                    "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
                },
                "reservedFor": [{"resource": "pods", "name": pod, "uid": uuid::Uuid::new_v4().to_string()}],
            }});
            let path = format!("{}/status", path(&claim));
            let allocated = self.api.call(Method::PATCH, &path, Some(&status)).await;
            allocated.or_else(|error| fail(format!("cannot allocate a claim: {error}")))?;
        }
        Ok(claim)
    }

    /// Takes a claim out of the API, as after a forced deletion of its pod.
    pub(crate) async fn delete_claim(&self, claim: &ClaimRef) -> Result<(), Stop> {
        self.api
            .delete(&path(claim))
            .await
            .or_else(|error| fail(error.to_string()))
    }
}
