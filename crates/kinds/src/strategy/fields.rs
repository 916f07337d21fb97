//! Fields that the strategies of single kinds set and drop.

use serde_json::Value;

use crate::object::child_mut;
use crate::registry::Resource;
use crate::request::Part;

/// Prepares an object of these kinds; `old` is null for a new one.
pub(super) fn prepare(resource: &Resource, object: &mut Value, old: &Value, part: Part) {
    if resource.is("storage.k8s.io", "csidrivers") {
        // VolumeLimitScaling, which is off by default.
        let key = "preventPodSchedulingIfMissing";
        if old["spec"][key].is_null()
            && let Some(spec) = object["spec"].as_object_mut()
        {
            spec.remove(key);
        }
    }
    if resource.is("discovery.k8s.io", "endpointslices") && object["endpoints"] != old["endpoints"]
    {
        drop_topology(object);
    }
    if part == Part::Status && resource.is("", "persistentvolumes") {
        note_transition(object, old);
    }
    if resource.is("", "serviceaccounts") {
        name_secrets(object);
    }
}

/// The topology of endpoints was for v1beta1; through v1 it is not written.
fn drop_topology(object: &mut Value) {
    for endpoint in object["endpoints"].as_array_mut().into_iter().flatten() {
        if let Value::Object(endpoint) = endpoint {
            endpoint.remove("deprecatedTopology");
        }
    }
}

/// Notes when the phase of a volume changed, unless the request says when.
fn note_transition(object: &mut Value, old: &Value) {
    const TIME: &str = "lastPhaseTransitionTime";
    let phase = |volume: &Value| {
        let phase = volume["status"]["phase"].as_str().unwrap_or_default();
        match phase {
            "" => "Pending".to_owned(),
            phase => phase.to_owned(),
        }
    };
    let (sent, known) = (&object["status"][TIME], &old["status"][TIME]);
    let time = match phase(object) == phase(old) {
        true if sent.is_null() => known.clone(),
        false if sent.is_null() || sent == known => crate::object::now().into(),
        _ => return,
    };
    let status = child_mut(object, "status");
    match time {
        Value::Null => status.remove(TIME),
        time => status.insert(TIME.to_owned(), time),
    };
}

/// Of the secrets of a service account only the names count.
fn name_secrets(object: &mut Value) {
    for secret in object["secrets"].as_array_mut().into_iter().flatten() {
        if let Value::Object(reference) = secret {
            reference.retain(|key, value| key == "name" && value != "");
        }
    }
}
