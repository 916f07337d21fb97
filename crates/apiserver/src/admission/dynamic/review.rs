//! `AdmissionReview`: the request to a webhook, and its response.

use allot_apimachinery::Status;
use allot_apimachinery::quote::quote;
use allot_schema::json_patch;
use base64::Engine as _;
use serde_json::{Value, json};

use crate::config::ReviewVersion;
use crate::object::{strings, text};

const GROUP: &str = "admission.k8s.io";
const KIND: &str = "AdmissionReview";

impl ReviewVersion {
    /// A review of a request, which has its uid and objects.
    pub fn review(self, request: &Value) -> Value {
        json!({"kind": KIND, "apiVersion": format!("{GROUP}/{}", self.name()), "request": request})
    }
}

/// What a webhook has answered.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// The webhook admits the request.
    pub allowed: bool,
    /// A JSON patch of the object, also as it was sent.
    pub patch: Option<(json_patch::Patch, Value)>,
    /// Why not.
    pub result: Value,
    /// For the client.
    pub warnings: Vec<String>,
    /// For the audit log.
    pub notes: Vec<(String, String)>,
}

/// Reads an answer.
///
/// # Errors
/// Upstream's error text for an invalid response.
pub(super) fn read(
    version: ReviewVersion,
    uid: &str,
    mutating: bool,
    review: &Value,
) -> Result<Answer, String> {
    let invalid = |why: &str| Err(format!("received invalid webhook response: {why}"));
    let response = &review["response"];
    if !response.is_object() {
        return invalid("webhook response was absent");
    }
    let (patch, patch_type) = (text(response, &["patch"]), &response["patchType"]);
    if version == ReviewVersion::V1 {
        let found = text(response, &["uid"]);
        if found != uid {
            let why = format!("expected response.uid={}, got {}", quote(uid), quote(found));
            return invalid(&why);
        }
        let (api_version, kind) = (text(review, &["apiVersion"]), text(review, &["kind"]));
        if api_version != "admission.k8s.io/v1" || kind != KIND {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let why = format!(
                "expected webhook response of {GROUP}/v1, Kind={KIND}, got {group}/{version}, Kind={kind}"
            );
            return invalid(&why);
        }
        match (mutating, patch.is_empty(), patch_type.as_str()) {
            (true, false, None) => {
                return invalid("webhook returned response.patch but not response.patchType");
            }
            (true, true, Some(_)) => {
                return invalid("webhook returned response.patchType but not response.patch");
            }
            (true, _, Some("")) => {
                return invalid("webhook returned invalid response.patchType of \"\"");
            }
            (false, false, _) => {
                return invalid("validating webhook may not return response.patch");
            }
            (false, _, Some(_)) => {
                return invalid("validating webhook may not return response.patchType");
            }
            _ => {}
        }
    }
    let mut answer = Answer {
        allowed: response["allowed"] == true,
        patch: None,
        result: response["status"].clone(),
        warnings: strings(&response["warnings"]),
        notes: response["auditAnnotations"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned())))
            .collect(),
    };
    // The patch of a rejected request is not used.
    if mutating && answer.allowed && !patch.is_empty() {
        let undecodable = |error: &dyn std::fmt::Display| {
            format!("received undecodable patch in webhook response: {error}")
        };
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(patch)
            .map_err(|error| undecodable(&error))?;
        let decoded: Value = serde_json::from_slice(&bytes).map_err(|error| undecodable(&error))?;
        let patch = json_patch::Patch::from_json(&decoded).map_err(|error| undecodable(&error))?;
        if let Some(other) = patch_type.as_str().filter(|kind| *kind != "JSONPatch") {
            return Err(format!("unsupported patch type {}", quote(other)));
        }
        answer.patch = Some((patch, decoded)).filter(|(patch, _)| !patch.is_empty());
    }
    Ok(answer)
}

/// The refusal of a webhook, as it worded it.
pub(super) fn refusal(webhook: &str, result: &Value) -> Status {
    let by = format!("admission webhook {} denied the request", quote(webhook));
    // A result that is no Status is ignored.
    let mut status = serde_json::from_value::<Status>(result.clone())
        .unwrap_or_else(|_| Status::failure(0, "", ""));
    if status.code < 400 {
        status.code = 400;
    }
    if matches!(status.status.as_str(), "" | "Success") {
        "Failure".clone_into(&mut status.status);
    }
    status.message = if !status.message.is_empty() {
        format!("{by}: {}", status.message)
    } else if !status.reason.is_empty() {
        format!("{by}: {}", status.reason)
    } else {
        format!("{by} without explanation")
    };
    status
}
