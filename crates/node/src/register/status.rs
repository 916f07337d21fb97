//! The status of the Node: what the machine has, and how it is.

use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::Facts;
use super::conditions::conditions;
use crate::capacity::capacity;
use crate::config::Config;
use crate::pods::Sizes;

/// What this agent can do and not every kubelet can, by the names of KEP-5328, sorted as the API server demands. The API server
/// refuses new resources of a pod as a whole, and of init containers, on nodes that do not declare them.
const DECLARED: [&str; 2] = [
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
];

/// The whole status. Conditions keep the `lastTransitionTime` of `before`.
pub(crate) fn status(config: &Config, facts: &Facts, before: Option<&Node>) -> Value {
    let capacity = capacity(config);
    let mut status = json!({
        "capacity": capacity,
        "allocatable": capacity,
        "addresses": [
            {"type": "InternalIP", "address": config.address.to_string()},
            {"type": "Hostname", "address": config.node_name},
        ],
        "conditions": conditions(facts, before),
        "nodeInfo": node_info(facts),
        "declaredFeatures": DECLARED,
    });
    if let Some(port) = facts.port {
        status["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": port}});
    }
    status
}

/// The allocatable CPU and memory of a node: its whole capacity, because nothing is reserved for the system.
pub(crate) fn allocatable(config: &Config) -> Sizes {
    let capacity = capacity(config);
    let quantity = |name: &str| capacity.get(name)?.parse::<Quantity>().ok();
    Sizes {
        cpu: quantity("cpu").map_or(0, |amount| amount.milli_value()),
        memory: quantity("memory").map_or(0, |amount| amount.value()),
    }
}

fn node_info(facts: &Facts) -> Value {
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    };
    let system = rustix::system::uname();
    let os = read("/etc/os-release");
    let image = os
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .unwrap_or("Linux")
        .trim_matches('"');
    json!({
        "machineID": read("/etc/machine-id"),
        "systemUUID": read("/etc/machine-id"),
        "bootID": crate::boot::id(),
        "kernelVersion": system.release().to_string_lossy(),
        "osImage": image,
        "containerRuntimeVersion": facts.runtime,
        "kubeletVersion": format!("v1.36.0+allot-{}", env!("CARGO_PKG_VERSION")),
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": if std::env::consts::ARCH == "x86_64" { "amd64" } else { std::env::consts::ARCH },
    })
}
