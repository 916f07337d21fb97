//! Pods: up to 1.30 the origin of a claim stood inside `source`.

use serde_json::Value;

use crate::view::{items_mut, object};

/// Moves the members of `source` up in the claims of a pod, or of the pod template inside another kind. An API server
/// that emulates such a release does the same with what it receives.
pub fn flatten_claims(object: &mut Value) {
    each_spec(object, |spec| {
        items_mut(spec, "resourceClaims").for_each(flatten)
    });
}

/// Calls a function with the pod spec of a pod, or of the pod template inside another kind.
pub fn each_spec(object: &mut Value, mut act: impl FnMut(&mut Value)) {
    const SPECS: [&str; 4] = [
        "/spec",
        "/spec/template/spec",
        "/spec/jobTemplate/spec/template/spec",
        "/template/spec",
    ];
    for pointer in SPECS {
        if let Some(spec) = object.pointer_mut(pointer) {
            act(spec);
        }
    }
}

/// Where the origin of a claim can stand.
const ORIGINS: [&str; 2] = ["resourceClaimName", "resourceClaimTemplateName"];

fn flatten(claim: &mut Value) {
    let Some(map) = object(claim) else { return };
    // A strategic patch names the members that are kept.
    if let Some(Value::Array(kept)) = map.get_mut("$retainKeys") {
        let before = kept.len();
        kept.retain(|key| key != "source");
        if kept.len() < before {
            kept.extend(ORIGINS.map(Value::from));
        }
    }
    if let Some(Value::Object(source)) = map.remove("source") {
        for (key, member) in source {
            map.entry(key).or_insert(member);
        }
    }
}
