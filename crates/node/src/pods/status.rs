//! The status that a pod gets from its containers: pure.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use allot_apimachinery::well_known::is_terminal_phase;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

use super::resources;
use super::state::{ContainerState, Phase};
use crate::rules::{self, is_sidecar};

mod container;
mod resize;
#[cfg(test)]
mod tests;

use container::container_status;
pub(super) use resize::add_resizes;

/// Path of a container's log.
pub(crate) fn log_path(root: &Path, pod: &Pod, container: &str, attempt: u32) -> PathBuf {
    rules::log_directory(root, pod).join(rules::log_name(container, attempt))
}

/// Input of the status.
pub(super) struct Input<'a> {
    pub(super) pod: &'a Pod,
    pub(super) containers: &'a HashMap<String, ContainerState>,
    pub(super) runtime: &'a str,
    /// The node's.
    pub(super) address: &'a str,
    /// The pod's; the node's again where it shares the node's network.
    pub(super) own: &'a [String],
    /// Volumes and claims are ready.
    pub(super) sandbox: bool,
    /// No container will be started any longer.
    pub(super) ending: bool,
    /// Why the pod as a whole has failed: reason and message.
    pub(super) failed: Option<(&'a str, &'a str)>,
    /// Whether it has failed because the node reclaims what it uses.
    pub(super) disrupted: bool,
    pub(super) now: Timestamp,
    /// When the agent first saw the pod.
    pub(super) start: Timestamp,
    /// Conditions as they were reported last: status and time of its last change.
    pub(super) since: &'a HashMap<String, (String, Timestamp)>,
}

/// The ephemeral containers. They have the type of the others, except for the name of the target container.
pub(super) fn ephemeral(pod: &Pod) -> Vec<Container> {
    let spec = pod.spec.iter();
    let all = spec.flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    all.filter_map(|container| serde_json::from_value(serde_json::to_value(container).ok()?).ok())
        .collect()
}

/// The restart policy of the pod.
pub(super) fn restart_policy(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.restart_policy.as_deref())
        .unwrap_or("Always")
}

/// All init containers are done, sidecars have started.
pub(super) fn initialized(pod: &Pod, containers: &HashMap<String, ContainerState>) -> bool {
    let init = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let started = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .any(|container| {
            containers
                .get(&container.name)
                .is_some_and(ContainerState::started_once)
        });
    started
        || init.into_iter().all(|container| {
            let Some(state) = containers.get(&container.name) else {
                return false;
            };
            match is_sidecar(container) {
                true => state.up(),
                false => state.terminated().is_some_and(|end| end.exit.code == 0),
            }
        })
}

/// Whether a pod has ended, by the phase in its object.
pub(crate) fn has_ended(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    phase.is_some_and(is_terminal_phase)
}

/// Pod phase by the kubelet's rules.
pub(super) fn phase(input: &Input<'_>) -> &'static str {
    let pod = input.pod;
    if input.failed.is_some() {
        return "Failed";
    }
    let policy = restart_policy(pod);
    let spec = pod.spec.as_ref();
    let init = spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let failed_init = init
        .into_iter()
        .filter(|container| !is_sidecar(container))
        .any(|container| {
            let end = input
                .containers
                .get(&container.name)
                .and_then(ContainerState::terminated);
            end.is_some_and(|end| end.exit.code != 0) && policy == "Never"
        });
    if failed_init {
        return "Failed";
    }
    if !initialized(pod, input.containers) {
        return if input.ending { "Failed" } else { "Pending" };
    }
    let (mut running, mut waiting, mut failed) = (0, 0, 0);
    for container in spec.iter().flat_map(|spec| &spec.containers) {
        let Some(state) = input.containers.get(&container.name) else {
            waiting += 1;
            continue;
        };
        match &state.phase {
            Phase::Running(_) => running += 1,
            Phase::Terminated(end) if end.exit.code == 0 => {}
            Phase::Terminated(_) => failed += 1,
            // Between two runs.
            Phase::Waiting { .. } if state.last.is_some() => failed += 1,
            Phase::Waiting { .. } => waiting += 1,
        }
    }
    if input.ending {
        // A container that never ran counts as failed.
        return if failed + waiting + running > 0 {
            "Failed"
        } else {
            "Succeeded"
        };
    }
    match policy {
        _ if waiting > 0 => "Pending",
        _ if running > 0 => "Running",
        "Always" => "Running",
        _ if failed == 0 => "Succeeded",
        "Never" => "Failed",
        _ => "Running",
    }
}

/// The fields of `status` that a kubelet owns.
pub(super) fn status(input: &Input<'_>) -> Value {
    let pod = input.pod;
    let phase = phase(input);
    let spec = pod.spec.clone().unwrap_or_default();
    let over = is_terminal_phase(phase);
    let one = |container: &Container, init: bool| container_status(input, container, init);
    let containers: Vec<Value> = spec
        .containers
        .iter()
        .map(|container| one(container, false))
        .collect();
    let init: Vec<Value> = spec
        .init_containers
        .iter()
        .flatten()
        .map(|container| one(container, true))
        .collect();
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .zip(&init)
        .filter_map(|(container, status)| is_sidecar(container).then_some(status));
    let unready: Vec<&str> = sidecars
        .chain(&containers)
        .filter(|status| status["ready"] != json!(true))
        .filter_map(|status| status["name"].as_str())
        .collect();
    let initialized = initialized(pod, input.containers);
    let pending_init: Vec<&str> = init
        .iter()
        .filter(|status| status["ready"] != json!(true))
        .filter_map(|status| status["name"].as_str())
        .collect();
    let list = |names: &[&str]| format!("[{}]", names.join(" "));
    let ready = if over && phase == "Succeeded" {
        Condition::no("PodCompleted", String::new())
    } else if over {
        Condition::no("PodFailed", String::new())
    } else if unready.is_empty() {
        Condition::yes()
    } else {
        Condition::no(
            "ContainersNotReady",
            format!("containers with unready status: {}", list(&unready)),
        )
    };
    let init_condition = match (initialized, phase) {
        (true, "Succeeded") => Condition {
            status: "True",
            reason: "PodCompleted",
            message: String::new(),
        },
        (true, _) => Condition::yes(),
        (false, _) => {
            let text = format!("containers with incomplete status: {}", list(&pending_init));
            Condition::no("ContainersNotInitialized", text)
        }
    };
    let sandbox = Condition {
        status: if input.sandbox { "True" } else { "False" },
        reason: "",
        message: String::new(),
    };
    let conditions: Vec<Value> = [
        ("PodReadyToStartContainers", sandbox),
        ("Initialized", init_condition),
        ("Ready", gates(pod, &ready)),
        ("ContainersReady", ready),
    ]
    .into_iter()
    .map(|(kind, condition)| condition.json(input, kind))
    .collect();
    let mut status = json!({
        "phase": phase,
        "conditions": conditions,
        "containerStatuses": containers,
        "hostIP": input.address,
        "hostIPs": [{"ip": input.address}],
        "startTime": seconds(input.start),
    });
    if !init.is_empty() {
        status["initContainerStatuses"] = json!(init);
    }
    let ephemeral: Vec<Value> = ephemeral(pod).iter().map(|it| one(it, false)).collect();
    if !ephemeral.is_empty() {
        status["ephemeralContainerStatuses"] = json!(ephemeral);
    }
    if let Some((_, message)) = input.failed.filter(|_| input.disrupted)
        && let Some(conditions) = status["conditions"].as_array_mut()
    {
        let condition = Condition {
            status: "True",
            reason: "TerminationByKubelet",
            message: message.to_owned(),
        };
        conditions.push(condition.json(input, "DisruptionTarget"));
    }
    if let Some((reason, message)) = input.failed {
        status["reason"] = json!(reason);
        status["message"] = json!(message);
    }
    // Without a sandbox those that were reported are kept.
    let reported = pod.status.as_ref().and_then(|it| it.pod_ip.as_ref());
    if input.sandbox || (over && reported.is_none()) {
        let all: Vec<Value> = input.own.iter().map(|ip| json!({"ip": ip})).collect();
        status["podIP"] = json!(input.own.first());
        status["podIPs"] = json!(all);
    }
    if let Some((resources, allocated)) = resources::of_pod(pod) {
        status["resources"] = resources;
        status["allocatedResources"] = allocated;
    }
    if let Some(generation) = pod.metadata.generation {
        status["observedGeneration"] = json!(generation);
    }
    status
}

/// Times in the API have seconds.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

struct Condition {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Condition {
    fn yes() -> Self {
        Self {
            status: "True",
            reason: "",
            message: String::new(),
        }
    }

    fn no(reason: &'static str, message: String) -> Self {
        Self {
            status: "False",
            reason,
            message,
        }
    }

    /// With the time of the last change of its status.
    fn json(&self, input: &Input<'_>, kind: &str) -> Value {
        let same = input
            .since
            .get(kind)
            .filter(|(status, _)| status == self.status);
        let since = same.map_or(input.now, |(_, time)| *time);
        let mut condition = json!({
            "type": kind, "status": self.status, "lastProbeTime": null, "lastTransitionTime": seconds(since),
        });
        // In a strategic merge null removes what an earlier status left.
        condition["reason"] = if self.reason.is_empty() {
            Value::Null
        } else {
            json!(self.reason)
        };
        condition["message"] = if self.message.is_empty() {
            Value::Null
        } else {
            json!(self.message)
        };
        if let Some(generation) = input.pod.metadata.generation {
            condition["observedGeneration"] = json!(generation);
        }
        condition
    }
}

/// Ready also needs the conditions that the pod names as gates.
fn gates(pod: &Pod, containers: &Condition) -> Condition {
    let gates = pod
        .spec
        .iter()
        .flat_map(|spec| spec.readiness_gates.iter().flatten());
    let missing: Vec<String> = gates
        .filter(|gate| {
            let conditions = pod
                .status
                .iter()
                .flat_map(|status| status.conditions.iter().flatten());
            !conditions
                .into_iter()
                .any(|c| c.type_ == gate.condition_type && c.status == "True")
        })
        .map(|gate| {
            format!(
                "corresponding condition of pod readiness gate \"{}\" is not \"True\".",
                gate.condition_type
            )
        })
        .collect();
    if containers.status == "True" && !missing.is_empty() {
        return Condition::no("ReadinessGatesNotReady", missing.join(" "));
    }
    Condition {
        status: containers.status,
        reason: containers.reason,
        message: containers.message.clone(),
    }
}
