//! `ConversionReview`: the request to a webhook, and its response.

use allot_apimachinery::field::{ErrorList, Path, joined};
use allot_apimachinery::quote::quote;
use allot_model::validate::meta as meta_rules;
use allot_schema::merge::go_type;
use serde_json::{Map, Value, json};

use crate::config::ReviewVersion;
use crate::object::{check_depth, meta, split_api_version, text};

const GROUP: &str = "apiextensions.k8s.io";
const KIND: &str = "ConversionReview";

impl ReviewVersion {
    fn api_version(self) -> String {
        format!("{GROUP}/{}", self.name())
    }

    /// Requests objects in the version `wanted`.
    pub(super) fn conversion(self, uid: &str, wanted: &str, objects: &[Value]) -> Value {
        json!({
            "kind": KIND, "apiVersion": self.api_version(),
            "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": objects},
            "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}},
        })
    }

    /// The objects of an answer.
    ///
    /// # Errors
    /// Upstream's error text for an invalid response, or the webhook's own for a failure.
    pub(super) fn converted(self, uid: &str, mut answer: Value) -> Result<Vec<Value>, String> {
        if self == ReviewVersion::V1 {
            let (group, version) = split_api_version(text(&answer, &["apiVersion"]));
            let found = format!("{group}/{version}, Kind={}", text(&answer, &["kind"]));
            let expected = format!("{}, Kind={KIND}", self.api_version());
            if found != expected {
                return Err(format!(
                    "expected webhook response of {expected}, got {found}"
                ));
            }
        }
        let response = &mut answer["response"];
        if !response.is_object() {
            return Err("no response provided".to_owned());
        }
        let found = text(response, &["uid"]);
        if self == ReviewVersion::V1 && found != uid {
            let (expected, found) = (quote(uid), quote(found));
            return Err(format!("expected response.uid={expected}, got {found}"));
        }
        let result = &response["result"];
        let (status, message) = (text(result, &["status"]), text(result, &["message"]));
        if status != "Success" {
            return Err(match message {
                "" => format!("response.result.status was '{status}', not 'Success'"),
                message => message.to_owned(),
            });
        }
        match response["convertedObjects"].take() {
            Value::Array(objects) => Ok(objects),
            _ => Ok(Vec::new()),
        }
    }
}

/// A converted object with the metadata that it had, of which only labels and annotations may change.
///
/// # Errors
/// The text that follows `returned` in upstream's message about a webhook that changed more than it may.
pub(super) fn restore(original: &Value, converted: Value, wanted: &str) -> Result<Value, String> {
    let at = "invalid object at index 0";
    let kind = text(&converted, &["kind"]);
    if kind.is_empty() {
        return Err(format!("{at}: Object 'Kind' is missing in '{converted}'"));
    }
    let found = text(&converted, &["apiVersion"]);
    if found != wanted {
        return Err(format!(
            "{at}: invalid groupVersion (expected {wanted}, received {found})"
        ));
    }
    let expected = text(original, &["kind"]);
    if expected != kind {
        return Err(format!(
            "{at}: invalid kind (expected {expected}, received {kind})"
        ));
    }
    for (key, shown) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (expected, found) = (meta(original, key), meta(&converted, key));
        if expected != found {
            return Err(format!(
                "invalid object: must have the same {shown}: {expected} != {found}"
            ));
        }
    }
    let restored =
        restore_metadata(original, converted).map_err(|why| format!("invalid metadata: {why}"))?;
    match check_depth(&restored) {
        Ok(()) => Ok(restored),
        Err(error) => Err(format!("invalid object: {}", error.0.message)),
    }
}

fn restore_metadata(original: &Value, mut converted: Value) -> Result<Value, String> {
    let Some(answered) = converted.get_mut("metadata").map(Value::take) else {
        return Err("missing metadata in converted object".to_owned());
    };
    let Value::Object(mut answered) = answered else {
        let found = go_type(&answered);
        return Err(format!(
            "invalid metadata of type {found} in converted object"
        ));
    };
    let mut kept = match &original["metadata"] {
        Value::Object(kept) => kept.clone(),
        _ => Map::new(),
    };
    for key in ["labels", "annotations"] {
        let answered = match answered.remove(key) {
            None | Some(Value::Null) => {
                kept.remove(key);
                continue;
            }
            Some(Value::Object(answered)) => answered,
            Some(other) => {
                let found = go_type(&other);
                return Err(format!(
                    "invalid metadata.{key} of type {found} in converted object"
                ));
            }
        };
        if let Some((name, value)) = answered.iter().find(|(_, value)| !value.is_string()) {
            let found = go_type(value);
            return Err(format!(
                "metadata.{key}[{name}] must be a string, but is {found} in converted object"
            ));
        }
        let answered = Value::Object(answered);
        if kept.get(key) != Some(&answered) {
            check(key, &answered)?;
        }
        kept.insert(key.to_owned(), answered);
    }
    converted["metadata"] = kept.into();
    Ok(converted)
}

/// The errors of changed labels or annotations as one text.
fn check(key: &str, changed: &Value) -> Result<(), String> {
    let path = Path::new("metadata");
    let errors: ErrorList = match key {
        "labels" => meta_rules::labels(&json!({key: changed}), &path.child("labels")),
        _ => meta_rules::annotations(&json!({key: changed}), &path.child("annotation")),
    };
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.dedup();
    joined(&texts).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests;
