//! The status of a container.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};
use serde_json::{Value, json};

use super::super::resources;
use super::super::state::{ContainerState, Phase, Terminated};
use super::{Input, initialized, seconds};
use crate::rules::is_sidecar;

/// Bytes of a termination message: those of all containers of a pod share what a kubelet reports of a pod.
fn longest_message(pod: &Pod) -> usize {
    const OF_POD: usize = 12 * 1024;
    let Some(spec) = pod.spec.as_ref() else {
        return OF_POD;
    };
    let init = spec.init_containers.as_ref().map_or(0, Vec::len);
    let ephemeral = spec.ephemeral_containers.as_ref().map_or(0, Vec::len);
    OF_POD / (spec.containers.len() + init + ephemeral).max(1)
}

/// The status of a container.
pub(super) fn container_status(input: &Input<'_>, container: &Container, init: bool) -> Value {
    let waiting = ContainerState {
        phase: default_phase(input, init),
        ..ContainerState::default()
    };
    let state = input.containers.get(&container.name).unwrap_or(&waiting);
    let uri = |id: &str| format!("{}://{id}", input.runtime);
    let end = |end: &Terminated| {
        let mut value = json!({
            "exitCode": end.exit.code,
            "reason": end.reason,
            "finishedAt": seconds(end.exit.finished),
            // As container runtimes report one that never ran.
            "startedAt": seconds(end.started.unwrap_or(Timestamp::UNIX_EPOCH)),
        });
        let most = end.message.floor_char_boundary(longest_message(input.pod));
        if most > 0 {
            value["message"] = json!(end.message[..most]);
        }
        if !end.id.is_empty() {
            value["containerID"] = json!(uri(&end.id));
        }
        json!({"terminated": value})
    };
    let (now, id) = match &state.phase {
        Phase::Waiting { reason, message } => {
            let mut value = json!({"reason": reason});
            if !message.is_empty() {
                value["message"] = json!(message);
            }
            (
                json!({"waiting": value}),
                state.last.as_ref().map(|last| last.id.as_str()),
            )
        }
        Phase::Running(running) => (
            json!({"running": {"startedAt": seconds(running.started)}}),
            Some(running.id.as_str()),
        ),
        Phase::Terminated(terminated) => (end(terminated), Some(terminated.id.as_str())),
    };
    let ready = match (init && !is_sidecar(container), &state.phase) {
        (true, Phase::Terminated(end)) => end.exit.code == 0,
        (true, _) => false,
        (false, Phase::Running(_)) => state.health.ready,
        (false, _) => false,
    };
    let image = container.image.clone().unwrap_or_default();
    let mut status = json!({
        "name": container.name,
        "image": image,
        "imageID": state.image_id,
        "ready": ready,
        "started": state.up(),
        "restartCount": state.restarts,
        "state": now,
        "lastState": state.last.as_ref().map_or(json!({}), end),
    });
    if let Some(id) = id.filter(|id| !id.is_empty()) {
        status["containerID"] = json!(uri(id));
    }
    if let Some(user) = &state.user {
        status["user"] = json!(user);
    }
    // A container that was never created has no resources.
    if state.started_once() {
        let runs = state.running().and(state.applied);
        let runs = runs.map(|applied| (applied, state.given));
        status["resources"] = resources::actual(container, runs);
        if let Some(allocated) = resources::allocated(container) {
            status["allocatedResources"] = allocated;
        }
    }
    let mounts = container.volume_mounts.iter().flatten();
    let mounts: Vec<Value> = mounts.map(|it| mount_status(input, it)).collect();
    if !mounts.is_empty() {
        status["volumeMounts"] = json!(mounts);
    }
    status
}

/// How a volume is mounted. `IfPossible` is recursive with the node's own runtime only; others make a mount so for `Enabled`.
fn mount_status(input: &Input<'_>, mount: &VolumeMount) -> Value {
    let mut status = json!({"name": mount.name, "mountPath": mount.mount_path});
    if mount.read_only == Some(true) {
        let recursive = match mount.recursive_read_only.as_deref() {
            Some("Enabled") => true,
            Some("IfPossible") => input.runtime == "process",
            _ => false,
        };
        status["readOnly"] = json!(true);
        status["recursiveReadOnly"] = json!(if recursive { "Enabled" } else { "Disabled" });
    }
    status
}

fn default_phase(input: &Input<'_>, init: bool) -> Phase {
    let has_init = input
        .pod
        .spec
        .as_ref()
        .is_some_and(|spec| spec.init_containers.iter().flatten().next().is_some());
    match !init && has_init && !initialized(input.pod, input.containers) || (init && input.sandbox)
    {
        true => Phase::waiting("PodInitializing", ""),
        false => Phase::waiting("ContainerCreating", ""),
    }
}
