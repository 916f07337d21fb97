//! The row of a pod.

use allot_apimachinery::well_known::is_terminal_phase;
use serde_json::{Value, json};

use crate::object::{items, meta, text};
use crate::table::format::or_none;
use crate::table::{age, since};

/// The column Status, with restarts and readiness.
struct Summary {
    status: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<String>,
}

/// The condition of the row of a pod that will not run again, by which `kubectl get` can leave it out.
pub(super) fn completed(pod: &Value) -> Option<Value> {
    let phase = text(pod, &["status", "phase"]);
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": phase, "message": message}))
}

fn sidecar(pod: &Value, name: &str) -> bool {
    items(&pod["spec"]["initContainers"])
        .iter()
        .any(|container| container["name"] == name && container["restartPolicy"] == "Always")
}

/// Exit of a container as a reason.
fn exit_reason(terminated: &Value) -> String {
    match (
        terminated["reason"]
            .as_str()
            .filter(|reason| !reason.is_empty()),
        terminated["signal"].as_i64(),
    ) {
        (Some(reason), _) => reason.to_owned(),
        (None, Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
    }
}

fn summary(pod: &Value) -> Summary {
    let phase = text(pod, &["status", "phase"]);
    let mut status = match text(pod, &["status", "reason"]) {
        "" => phase.to_owned(),
        reason => reason.to_owned(),
    };
    for condition in items(&pod["status"]["conditions"]) {
        if condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated" {
            status = "SchedulingGated".to_owned();
        }
    }
    let inits = items(&pod["spec"]["initContainers"]);
    let sidecars = inits
        .iter()
        .filter(|container| container["restartPolicy"] == "Always")
        .count();
    let total = items(&pod["spec"]["containers"]).len() + sidecars;
    let (mut restarts, mut side_restarts, mut ready) = (0, 0, 0);
    let (mut last, mut side_last): (Option<String>, Option<String>) = (None, None);
    let latest = |last: &mut Option<String>, container: &Value| {
        if let Some(end) = container["lastState"]["terminated"]["finishedAt"].as_str()
            && last.as_deref().is_none_or(|known| known < end)
        {
            *last = Some(end.to_owned());
        }
    };
    let mut initializing = false;
    for (index, container) in items(&pod["status"]["initContainerStatuses"])
        .iter()
        .enumerate()
    {
        let name = container["name"].as_str().unwrap_or_default();
        let count = container["restartCount"].as_i64().unwrap_or(0);
        restarts += count;
        latest(&mut last, container);
        let side = sidecar(pod, name);
        if side {
            side_restarts += count;
            latest(&mut side_last, container);
        }
        let terminated = &container["state"]["terminated"];
        let waiting = text(container, &["state", "waiting", "reason"]);
        if terminated.is_object() && terminated["exitCode"].as_i64().unwrap_or(0) == 0 {
            continue;
        }
        if side && container["started"] == true {
            ready += usize::from(container["ready"] == true);
            continue;
        }
        status = if terminated.is_object() {
            format!("Init:{}", exit_reason(terminated))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{}", inits.len())
        };
        initializing = true;
        break;
    }
    let initialized = items(&pod["status"]["conditions"])
        .iter()
        .any(|it| it["type"] == "Initialized" && it["status"] == "True");
    if !initializing || initialized {
        restarts = side_restarts;
        last = side_last;
        let (mut has_running, mut failed) = (false, false);
        for container in items(&pod["status"]["containerStatuses"]).iter().rev() {
            restarts += container["restartCount"].as_i64().unwrap_or(0);
            latest(&mut last, container);
            let waiting = text(container, &["state", "waiting", "reason"]);
            let terminated = &container["state"]["terminated"];
            if !waiting.is_empty() {
                status = waiting.to_owned();
            } else if terminated.is_object() {
                // A failure is not hidden by a container that has completed.
                let completed = terminated["exitCode"].as_i64().unwrap_or(0) == 0;
                if !(failed && completed) {
                    status = exit_reason(terminated);
                }
                failed |= !completed;
            } else if container["ready"] == true && container["state"]["running"].is_object() {
                has_running = true;
                ready += 1;
            }
        }
        if status == "Completed" && has_running {
            let is_ready = items(&pod["status"]["conditions"])
                .iter()
                .any(|it| it["type"] == "Ready" && it["status"] == "True");
            status = if is_ready { "Running" } else { "NotReady" }.to_owned();
        }
    }
    if pod["metadata"]["deletionTimestamp"].is_string() {
        if text(pod, &["status", "reason"]) == "NodeLost" {
            status = "Unknown".to_owned();
        } else if !is_terminal_phase(phase) {
            status = "Terminating".to_owned();
        }
    }
    Summary {
        status,
        ready,
        total,
        restarts,
        last_restart: last,
    }
}

/// Name, Ready, Status, Restarts, Age, IP, Node, Nominated Node, Readiness Gates.
pub(super) fn row(pod: &Value) -> Vec<Value> {
    let summary = summary(pod);
    let restarts = match &summary.last_restart {
        Some(last) if summary.restarts != 0 => {
            format!("{} ({} ago)", summary.restarts, since(last))
        }
        _ => summary.restarts.to_string(),
    };
    let ip = items(&pod["status"]["podIPs"])
        .first()
        .and_then(|it| it["ip"].as_str())
        .unwrap_or_default();
    let gates = items(&pod["spec"]["readinessGates"]);
    let passed = gates
        .iter()
        .filter(|gate| {
            items(&pod["status"]["conditions"])
                .iter()
                .any(|it| it["type"] == gate["conditionType"] && it["status"] == "True")
        })
        .count();
    let readiness = if gates.is_empty() {
        "<none>".to_owned()
    } else {
        format!("{passed}/{}", gates.len())
    };
    vec![
        json!(meta(pod, "name")),
        json!(format!("{}/{}", summary.ready, summary.total)),
        json!(summary.status),
        json!(restarts),
        age(pod),
        json!(or_none(ip.to_owned())),
        json!(or_none(text(pod, &["spec", "nodeName"]).to_owned())),
        json!(or_none(
            text(pod, &["status", "nominatedNodeName"]).to_owned()
        )),
        json!(readiness),
    ]
}
