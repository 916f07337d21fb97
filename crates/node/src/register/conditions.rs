//! Conditions in the status of the Node.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::Facts;

/// Condition type that reports whether containers are isolated as configured.
const ISOLATION: &str = "ContainerIsolation";
/// Condition type that reports whether container limits are enforced.
const LIMITS: &str = "ContainerLimits";
/// Condition type that reports whether pods have their own network.
const NETWORK: &str = "NetworkReady";

/// A condition about pressure, with the kubelet's reasons and texts for either case.
fn pressure(
    kind: &'static str,
    pressed: bool,
    yes: (&'static str, &str),
    no: (&'static str, &str),
) -> (&'static str, &'static str, &'static str, String) {
    let (status, (reason, text)) = match pressed {
        true => ("True", yes),
        false => ("False", no),
    };
    (kind, status, reason, format!("kubelet has {text}"))
}

/// All node conditions. The transition time of an unchanged condition is taken from `before`.
pub(crate) fn conditions(facts: &Facts, before: Option<&Node>) -> Vec<Value> {
    let now = Time(Timestamp::now());
    let isolated = facts.limitations.is_empty();
    let text = if isolated {
        "containers have their own namespaces".to_owned()
    } else {
        facts.limitations.join("; ")
    };
    let down = facts
        .condition
        .as_ref()
        .and_then(|it| it.ready.clone().err());
    let (ready, ready_reason) = match down {
        None => ("True", "KubeletReady"),
        Some(_) => ("False", "KubeletNotReady"),
    };
    let mut all = vec![
        pressure(
            "MemoryPressure",
            facts.pressure.memory,
            (
                "KubeletHasInsufficientMemory",
                "insufficient memory available",
            ),
            ("KubeletHasSufficientMemory", "sufficient memory available"),
        ),
        pressure(
            "DiskPressure",
            facts.pressure.disk,
            ("KubeletHasDiskPressure", "disk pressure"),
            ("KubeletHasNoDiskPressure", "no disk pressure"),
        ),
        pressure(
            "PIDPressure",
            facts.pressure.processes,
            ("KubeletHasInsufficientPID", "insufficient PID available"),
            ("KubeletHasSufficientPID", "sufficient PID available"),
        ),
        (
            "Ready",
            ready,
            ready_reason,
            down.unwrap_or_else(|| "kubelet is posting ready status".to_owned()),
        ),
        (
            ISOLATION,
            if isolated { "True" } else { "False" },
            if isolated { "Applied" } else { "NotApplied" },
            text,
        ),
        (
            LIMITS,
            if facts.limits { "True" } else { "False" },
            if facts.limits {
                "Enforced"
            } else {
                "NotEnforced"
            },
            if facts.limits {
                "limits are enforced by cgroups".to_owned()
            } else {
                "cgroups cannot be written here, or have no controllers: limits for CPU and memory are not enforced, and processes are counted for users other than root only"
                    .to_owned()
            },
        ),
    ];
    if let Some(condition) = &facts.condition {
        all.push(match &condition.network {
            Ok(()) => (
                NETWORK,
                "True",
                match condition.waits {
                    true => "PodNetwork",
                    false => "RuntimeNetwork",
                },
                "pods have a network of their own".to_owned(),
            ),
            Err(text) if condition.waits => {
                (NETWORK, "False", "NetworkPluginNotReady", text.clone())
            }
            Err(text) => (
                NETWORK,
                "False",
                "HostNetwork",
                format!("pods share the network of the host: {text}"),
            ),
        });
    }
    let old = before
        .and_then(|node| node.status.as_ref())
        .and_then(|status| status.conditions.as_deref());
    all.into_iter()
        .map(|(kind, status, reason, message)| {
            let same = old
                .unwrap_or_default()
                .iter()
                .find(|c| c.type_ == kind && c.status == status);
            let since = same
                .and_then(|c| c.last_transition_time.clone())
                .unwrap_or_else(|| now.clone());
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": since,
            })
        })
        .collect()
}
