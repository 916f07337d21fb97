//! A pod that is bound, or about to be: what its devices wait for.

use allot_model::table::human_duration;
use allot_scheduler::dra::claims::allocation_of;
use allot_scheduler::dra::conditions::{self, Pending, Readiness};
use allot_scheduler::pod::PodInfo;
use allot_scheduler::pod::claims::claim_key;
use k8s_openapi::api::core::v1::ContainerStatus;
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::Value;

use super::problem::Problem;
use crate::cmd::explain::cluster_objects::LoadedScheduler;
use crate::cmd::snapshot::PodEvent;

/// Annotation of allot's nodes with their registered drivers; other nodes do not have it.
const REGISTERED: &str = "/metadata/annotations/allot.dev~1registered-drivers";
/// The kubelet's events about what it cannot do before the containers of a pod start, and what that means.
const FAILED: [(&str, &str); 3] = [
    (
        "FailedPrepareDynamicResources",
        "its claims are not prepared",
    ),
    ("FailedMount", "its volumes are not mounted"),
    ("FailedCreatePodSandBox", "it has no sandbox"),
];

/// What keeps a pod on a node from starting; once it has started, what is wrong with its node and its containers, and what keeps
/// it from ending when it was deleted.
pub(super) fn problems(
    loaded: &LoadedScheduler,
    pod: &PodInfo,
    node: &str,
    events: &[PodEvent],
) -> Vec<Problem> {
    if has_started(pod) {
        let mut problems = Vec::from_iter(node_problem(loaded, node));
        if pod.pod.metadata.deletion_timestamp.is_some() {
            // It ends when its claims are unprepared.
            let claims = claims(loaded, pod, &mut Vec::new());
            for driver in drivers(&claims) {
                problems.extend(driver_problem(loaded, node, driver));
            }
        }
        problems.extend(container_problems(pod));
        return problems;
    }
    let mut problems = Vec::from_iter(node_problem(loaded, node));
    let claims = claims(loaded, pod, &mut problems);
    for claim in &claims {
        let name = shown(claim);
        if allocation_of(claim).is_none() {
            let text = format!("claim {name} is not allocated");
            problems.push(Problem::Claim(text));
            continue;
        }
        let reserved = claim
            .status
            .iter()
            .flat_map(|s| s.reserved_for.iter().flatten());
        let mut reserved = reserved.peekable();
        let by_pod = |uid: &str| uid == &*pod.uid;
        // One that is reserved for the pod's group names that.
        if !reserved.any(|r| by_pod(&r.uid) || r.resource != "pods") {
            let text = format!("claim {name} is not reserved for the pod");
            problems.push(Problem::Claim(text));
        }
    }
    for driver in drivers(&claims) {
        problems.extend(driver_problem(loaded, node, driver));
    }
    problems.extend(container_problems(pod));
    let meaning = |event: &PodEvent| FAILED.iter().find(|(reason, _)| *reason == event.reason);
    let failed = events.iter().find_map(meaning);
    if let Some((_, meaning)) = failed
        && !problems.iter().any(|p| matches!(p, Problem::Driver(_)))
    {
        problems.insert(0, Problem::Kubelet(meaning));
    }
    problems
}

/// The binding conditions that devices of a pending pod wait for: it has its devices, and is bound when they are ready.
pub(super) fn conditions(loaded: &LoadedScheduler, pod: &PodInfo) -> Vec<Problem> {
    let mut problems = Vec::new();
    for claim in claims(loaded, pod, &mut Vec::new()) {
        let reserved = claim
            .status
            .iter()
            .flat_map(|s| s.reserved_for.iter().flatten());
        if !reserved.into_iter().any(|r| *r.uid == *pod.uid) {
            continue;
        }
        let name = shown(&claim);
        if let Readiness::Failed { reason, message } = conditions::readiness(&claim) {
            problems.push(Problem::Claim(format!(
                "a device of claim {name} failed: {reason}: {message}; it will be allocated anew"
            )));
            continue;
        }
        let since = allocation_of(&claim).and_then(|a| a.allocation_timestamp.as_ref());
        let since = since.map_or(String::new(), |since| {
            let seconds = loaded.time.wall.as_second() - since.0.as_second();
            format!(", since {}", human_duration(seconds.max(0)))
        });
        for Pending {
            device,
            condition,
            reported,
        } in conditions::pending(&claim)
        {
            let driver = device.split('/').next().unwrap_or_default();
            let said = match reported {
                None => format!("driver {driver} has not reported it"),
                Some((reason, message)) if message.is_empty() => {
                    format!("it is not true: {reason}")
                }
                Some((reason, message)) => format!("it is not true: {reason}: {message}"),
            };
            problems.push(Problem::OfClaim {
                claim: name.clone(),
                text: format!("device {device} waits for the condition {condition}{since}: {said}"),
            });
        }
    }
    problems
}

pub(super) fn has_started(pod: &PodInfo) -> bool {
    let Some(status) = &pod.pod.status else {
        return false;
    };
    let all = [&status.init_container_statuses, &status.container_statuses];
    let mut all = all.into_iter().flatten().flatten();
    let ran = |container: &ContainerStatus| {
        container
            .state
            .as_ref()
            .is_some_and(|s| s.running.is_some() || s.terminated.is_some())
            || container.restart_count > 0
    };
    status
        .phase
        .as_deref()
        .is_some_and(|phase| phase != "Pending")
        || all.any(ran)
}

/// The existing claims of a pod; a missing one is a problem.
fn claims(
    loaded: &LoadedScheduler,
    pod: &PodInfo,
    problems: &mut Vec<Problem>,
) -> Vec<ResourceClaim> {
    let mut claims = Vec::new();
    let is_seen = loaded.unseen("ResourceClaim", &pod.key.namespace).is_none();
    for entry in pod.spec().resource_claims.iter().flatten() {
        let key = match claim_key(pod, entry) {
            Ok(Some(key)) => key,
            Ok(None) => continue,
            Err(error) => {
                problems.push(Problem::OfClaim {
                    claim: format!("{:?}", entry.name),
                    text: error.to_string(),
                });
                continue;
            }
        };
        match loaded.core.claims().get(&key) {
            Some(claim) => claims.push((**claim).clone()),
            None if is_seen => problems.push(Problem::Claim(format!("there is no claim {key}"))),
            None => {}
        }
    }
    claims
}

fn shown(claim: &ResourceClaim) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let meta = &claim.metadata;
    format!("{}/{}", text(&meta.namespace), text(&meta.name))
}

fn drivers(claims: &[ResourceClaim]) -> Vec<&str> {
    let allocations = claims.iter().filter_map(allocation_of);
    let results = allocations.filter_map(|a| a.devices.as_ref()?.results.as_ref());
    let mut drivers: Vec<&str> = results.flatten().map(|r| &*r.driver).collect();
    drivers.sort_unstable();
    drivers.dedup();
    drivers
}

fn node_problem(loaded: &LoadedScheduler, node: &str) -> Option<Problem> {
    if loaded.unseen("Node", "").is_some() {
        return None;
    }
    let Some(found) = object(loaded, "Node", node) else {
        return Some(Problem::Node(format!("there is no node {node}")));
    };
    let conditions = found
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions.find(|c| c["type"] == "Ready");
    let ready = ready.filter(|c| c["status"] != "True")?;
    let message = ready["message"]
        .as_str()
        .unwrap_or("nothing is heard of it");
    let text = format!("node {node} is not ready: {message}");
    Some(Problem::Node(text))
}

/// Whether a driver runs on a node: nodes of allot report that; elsewhere a running driver has slices.
fn driver_problem(loaded: &LoadedScheduler, node: &str, driver: &str) -> Option<Problem> {
    let annotation = object(loaded, "Node", node).and_then(|n| n.pointer(REGISTERED)?.as_str());
    if let Some(registered) = annotation {
        let known: Vec<&str> = registered
            .split(',')
            .map(str::trim)
            .filter(|d| !d.is_empty())
            .collect();
        if known.contains(&driver) {
            return None;
        }
        let others = match known.is_empty() {
            true => "no driver is".to_owned(),
            false => format!("there are: {}", known.join(", ")),
        };
        return Some(Problem::Driver(format!(
            "driver {driver} is not registered on node {node}; {others}"
        )));
    }
    if loaded.unseen("ResourceSlice", "").is_some() {
        return None;
    }
    let mut slices = loaded.of_kind("ResourceSlice");
    let publishes = slices.any(|slice| {
        let text = |pointer: &str| slice.pointer(pointer).and_then(Value::as_str);
        text("/spec/driver") == Some(driver) && text("/spec/nodeName").is_none_or(|n| n == node)
    });
    (!publishes).then(|| {
        Problem::Driver(format!(
            "driver {driver} publishes no devices for node {node} any more: it does not run there"
        ))
    })
}

/// The kubelet's messages about containers that it cannot start.
fn container_problems(pod: &PodInfo) -> Vec<Problem> {
    let status = pod.pod.status.as_ref();
    let all = status.into_iter().flat_map(|s| {
        let init = s.init_container_statuses.iter().flatten();
        init.chain(s.container_statuses.iter().flatten())
    });
    let problem = |container: &ContainerStatus| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref().unwrap_or_default();
        if matches!(reason, "" | "ContainerCreating" | "PodInitializing") {
            return None;
        }
        let message = waiting.message.as_deref().unwrap_or_default();
        let separator = if message.is_empty() { "" } else { ": " };
        let last = container.last_state.as_ref();
        let last = last.and_then(|last| last.terminated.as_ref());
        let ended = last.map_or(String::new(), |last| {
            let message = last.message.as_deref().unwrap_or_default().trim();
            let separator = if message.is_empty() { "" } else { ": " };
            format!("; it ended with {}{separator}{message}", last.exit_code)
        });
        Some(Problem::Container {
            name: container.name.clone(),
            text: format!("{reason}{separator}{message}{ended}"),
        })
    };
    all.filter_map(problem).collect()
}

fn object<'a>(loaded: &'a LoadedScheduler, kind: &str, name: &str) -> Option<&'a Value> {
    let mut objects = loaded.objects.iter().filter(|o| o["kind"] == kind);
    objects.find(|o| o.pointer("/metadata/name").and_then(Value::as_str) == Some(name))
}
