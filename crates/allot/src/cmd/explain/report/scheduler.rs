//! A pod whose scheduler is not among the known profiles: pods and events show whether a scheduler of that name runs.

use allot_apimachinery::suggest;
use allot_scheduler::pod::{PodInfo, scheduler_name};
use serde_json::Value;

use crate::cmd::explain::cluster_objects::LoadedScheduler;
use crate::cmd::snapshot::PodEvent;
use crate::cmd::some;

/// The field of the pod that names its scheduler, in place of a plugin.
pub(super) const FIELD: &str = "schedulerName";

/// The reason and the advice if no scheduler has the name of the pod's. A scheduler that runs binds pods or reports
/// events under its name; nothing else in the API names it.
///
/// # Errors
/// One runs, and its profile is not known.
pub(super) fn absent(loaded: &LoadedScheduler, pod: &PodInfo) -> anyhow::Result<(String, String)> {
    let wanted = scheduler_name(&pod.pod);
    let mut bound = loaded.pods.values().filter(|p| p.node_name().is_some());
    let event = said(loaded, wanted);
    if event.is_some() || bound.any(|p| scheduler_name(&p.pod) == wanted) {
        let said = match event {
            Some((about, message)) => format!("; it said of {about}: {message}"),
            None => String::new(),
        };
        anyhow::bail!(
            "pod {} is for the scheduler {wanted}, whose profile is not known here: --config FILE with that \
             profile{said}",
            pod.key
        );
    }
    let profiles = loaded.core.profile_names();
    let shown = match loaded.unseen("Pod", "") {
        Some(_) => " that is shown",
        None => "",
    };
    let hint = suggest::hint(wanted, profiles.iter().copied());
    let advice = format!(
        "no pod of it{shown} is on a node, and no event is from it; profiles that are known: {}{hint}",
        some(&profiles)
    );
    Ok((format!("no scheduler named {wanted} runs here"), advice))
}

/// The reason of the scheduler's events about a pod that it cannot place.
pub(super) const FAILED: &str = "FailedScheduling";

/// The last that the scheduler said of a pod which it could not place: in an event, or in the pod's condition.
pub(super) fn last_word(pod: &PodInfo, events: &[PodEvent]) -> Option<String> {
    let event = events.iter().find(|event| event.reason == FAILED);
    let conditions = pod
        .pod
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    let mut conditions = conditions.filter(|c| c.type_ == "PodScheduled" && c.status == "False");
    let condition = || conditions.find_map(|c| c.message.clone());
    let text = event
        .map(|event| event.message.clone())
        .or_else(condition)?;
    Some(text.trim().trim_end_matches('.').to_owned()).filter(|text| !text.is_empty())
}

/// The last of the events that a scheduler reported, of those that were read: name of the pod, and message.
fn said(loaded: &LoadedScheduler, scheduler: &str) -> Option<(String, String)> {
    let text = |event: &Value, pointer: &str| event.pointer(pointer)?.as_str().map(str::to_owned);
    let from = |event: &&Value| {
        let fields = [
            "/reportingComponent",
            "/reportingController",
            "/source/component",
            "/deprecatedSource/component",
        ];
        let mut fields = fields.iter();
        fields.any(|field| event.pointer(field).and_then(Value::as_str) == Some(scheduler))
    };
    let event = loaded.of_kind("Event").filter(from).last()?;
    let object = ["/involvedObject/name", "/regarding/name"];
    let about = object.iter().find_map(|pointer| text(event, pointer))?;
    let message = ["/message", "/note"].iter().find_map(|p| text(event, p))?;
    Some((about, message.trim().to_owned()))
}
