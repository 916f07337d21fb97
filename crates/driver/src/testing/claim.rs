//! Claims of a test, allocated as a scheduler does it.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::objects::new_uid;

/// The class of all requests. It does not exist: a driver never reads it.
const CLASS: &str = "test";

/// A claim to be made, with the devices that it gets.
///
/// ```
/// use allot_driver::testing::TestClaim;
/// use serde_json::json;
///
/// let claim = TestClaim::new("gpu-0")
///     .request("second", "gpu-1")
///     .parameters(json!({"apiVersion": "gpus.example.com/v1", "kind": "GpuConfig", "sharing": "none"}));
/// ```
#[derive(Debug, Clone)]
pub struct TestClaim {
    namespace: String,
    name: Option<String>,
    results: Vec<Allocated>,
    admin: bool,
    class_parameters: Vec<Value>,
    parameters: Vec<Value>,
}

#[derive(Debug, Clone)]
struct Allocated {
    request: String,
    pool: Option<String>,
    device: String,
    share: Option<BTreeMap<String, String>>,
    binding: Vec<String>,
    failures: Vec<String>,
}

impl TestClaim {
    /// A claim in the namespace `default` whose request `device` gets this device, of the pool that has the name of the node.
    pub fn new(device: impl Into<String>) -> Self {
        let claim = Self {
            namespace: "default".to_owned(),
            name: None,
            results: Vec::new(),
            admin: false,
            class_parameters: Vec::new(),
            parameters: Vec::new(),
        };
        claim.request("device", device)
    }

    /// One more request, with its device. `request/alternative` is one of a prioritized list.
    #[must_use]
    pub fn request(mut self, request: impl Into<String>, device: impl Into<String>) -> Self {
        self.results.push(Allocated {
            request: request.into(),
            pool: None,
            device: device.into(),
            share: None,
            binding: Vec::new(),
            failures: Vec::new(),
        });
        self
    }

    /// The pool of the last device.
    #[must_use]
    pub fn pool(mut self, pool: impl Into<String>) -> Self {
        if let Some(result) = self.results.last_mut() {
            result.pool = Some(pool.into());
        }
        self
    }

    /// The last device is shared with other claims: this one gets a share with these capacities, by their names.
    #[must_use]
    pub fn share<'a>(mut self, capacities: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let capacities = capacities.into_iter();
        let capacities = capacities.map(|(name, amount)| (name.to_owned(), amount.to_owned()));
        if let Some(result) = self.results.last_mut() {
            result.share = Some(capacities.collect());
        }
        self
    }

    /// The pod waits for these conditions of the last device before it is bound, and releases the device when a failure condition is
    /// true; [`super::TestNode::readiness`] awaits them.
    #[must_use]
    pub fn binding_conditions<'a>(
        mut self,
        conditions: impl IntoIterator<Item = &'a str>,
        failures: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        if let Some(result) = self.results.last_mut() {
            result.binding = conditions.into_iter().map(str::to_owned).collect();
            result.failures = failures.into_iter().map(str::to_owned).collect();
        }
        self
    }

    /// All devices are for an administrator, beside those that use them.
    #[must_use]
    pub fn admin_access(mut self) -> Self {
        self.admin = true;
        self
    }

    /// Opaque parameters of the claim for the driver; later ones have priority.
    #[must_use]
    pub fn parameters(mut self, parameters: Value) -> Self {
        self.parameters.push(parameters);
        self
    }

    /// Opaque parameters of the class, over which those of the claim have priority.
    #[must_use]
    pub fn class_parameters(mut self, parameters: Value) -> Self {
        self.class_parameters.push(parameters);
        self
    }

    /// The name; one that no other claim has by default.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    pub(super) fn namespace_name(&self) -> &str {
        &self.namespace
    }

    /// The claim as a user creates it.
    pub(super) fn object(&self, driver: &str) -> Value {
        let mut requests: Vec<Value> = Vec::new();
        for result in &self.results {
            let request = match result.request.split_once('/') {
                Some((request, alternative)) => {
                    json!({"name": request, "firstAvailable": [{"name": alternative, "deviceClassName": CLASS}]})
                }
                None => {
                    let mut exactly = json!({"deviceClassName": CLASS});
                    if self.admin {
                        exactly["adminAccess"] = json!(true);
                    }
                    json!({"name": result.request, "exactly": exactly})
                }
            };
            // Several devices may be for one request.
            if !requests
                .iter()
                .any(|other| other["name"] == request["name"])
            {
                requests.push(request);
            }
        }
        let config = configs(driver, &self.parameters, None);
        let metadata = match &self.name {
            Some(name) => json!({"name": name}),
            None => json!({"generateName": "test-"}),
        };
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata,
            "spec": {"devices": {"requests": requests, "config": config}}})
    }

    /// The status that a scheduler gives it on a node.
    pub(super) fn status(&self, driver: &str, node: &str, allocated: Timestamp) -> Value {
        let result = |result: &Allocated| {
            let pool = result.pool.as_deref().unwrap_or(node);
            let mut object = json!({"request": result.request, "driver": driver, "pool": pool, "device": result.device});
            if self.admin {
                object["adminAccess"] = json!(true);
            }
            if let Some(share) = &result.share {
                object["shareID"] = json!(new_uid());
                object["consumedCapacity"] = json!(share);
            }
            if !result.binding.is_empty() {
                object["bindingConditions"] = json!(result.binding);
                object["bindingFailureConditions"] = json!(result.failures);
            }
            object
        };
        let results: Vec<Value> = self.results.iter().map(result).collect();
        let mut config = configs(driver, &self.class_parameters, Some("FromClass"));
        config.extend(configs(driver, &self.parameters, Some("FromClaim")));
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        json!({
            "allocation": {
                "allocationTimestamp": allocated.to_string(),
                "devices": {"results": results, "config": config},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            },
            "reservedFor": [{"resource": "pods", "name": "test", "uid": new_uid()}],
        })
    }
}

fn configs(driver: &str, parameters: &[Value], source: Option<&str>) -> Vec<Value> {
    let config = |parameters: &Value| {
        let mut config = json!({"opaque": {"driver": driver, "parameters": parameters}});
        if let Some(source) = source {
            config["source"] = json!(source);
        }
        config
    };
    parameters.iter().map(config).collect()
}
