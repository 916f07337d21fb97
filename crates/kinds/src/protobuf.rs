//! Kubernetes protobuf bodies, as [`allot_schema::protobuf`] reads and writes them, with the texts of raw fields
//! ([`crate::raw`]).
//!
//! Go clients of built-in kinds send protobuf (`kubectl create configmap`, for example) and prefer it in answers.

use allot_schema::decode::RawText;
use allot_schema::protobuf;
use serde_json::Value;

pub use allot_schema::protobuf::{Error, envelope, is_protobuf};

/// The object in a body as JSON text, with its kind and apiVersion.
///
/// # Errors
/// See [`Error`].
pub fn to_json(body: &[u8]) -> Result<String, Error> {
    let json = protobuf::to_json(body, |_, _| true)?;
    let raws = json.raws.iter().filter_map(|text| {
        let value = serde_json::from_str(text).ok()?;
        let text = (*text).to_owned();
        Some(RawText { value, text })
    });
    crate::raw::sent(raws.collect());
    Ok(json.text)
}

/// The object in a body, with its kind and apiVersion.
///
/// # Errors
/// See [`Error`].
pub fn decode(body: &[u8]) -> Result<Value, Error> {
    // The text is JSON, but what is in raw fields may nest too deep for a tree or have strings that are no Unicode.
    serde_json::from_str(&to_json(body)?).map_err(|error| Error::Json(error.to_string()))
}

/// An object with its kind and apiVersion as a body; `None` if its kind has no protobuf form.
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    crate::raw::rewind();
    protobuf::encode(object, crate::raw::write)
}

/// The message of an object with its kind and apiVersion; `None` if its kind has no protobuf form.
pub fn message_of(object: &Value) -> Option<Vec<u8>> {
    crate::raw::rewind();
    protobuf::message_of(object, crate::raw::write)
}

/// An event of a watch, with its length before it.
pub fn frame(kind: &str, object: &Value) -> Option<Vec<u8>> {
    crate::raw::rewind();
    protobuf::frame(kind, object, crate::raw::write)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The older versions lost what their rules have in the message of the stable version.
    #[test]
    fn regression_rules_of_policies_have_one_form_in_all_versions() {
        let group = "admissionregistration.k8s.io";
        let rule = json!({
            "resourceNames": ["n"], "operations": ["CREATE"], "apiGroups": ["g"], "apiVersions": ["v"],
            "resources": ["r"], "scope": "*",
        });
        for (kind, versions) in [
            ("ValidatingAdmissionPolicy", &["v1"][..]),
            ("MutatingAdmissionPolicy", &["v1", "v1beta1", "v1alpha1"]),
        ] {
            let policy = |version: &str| {
                json!({
                    "apiVersion": format!("{group}/{version}"), "kind": kind, "metadata": {"name": "p"},
                    "spec": {"matchConstraints": {"resourceRules": [rule]}},
                })
            };
            let stable = message_of(&policy("v1")).expect("a kind with a protobuf form");
            for version in versions {
                let policy = policy(version);
                let found = message_of(&policy).expect("a kind with a protobuf form");
                assert_eq!(found, stable, "{kind} {version}");
                let body = encode(&policy).expect("a kind with a protobuf form");
                let read = decode(&body).expect("what was just written");
                let rules = &read["spec"]["matchConstraints"]["resourceRules"];
                assert_eq!(*rules, json!([rule]), "{kind} {version}");
            }
        }
    }

    #[test]
    fn unreadable_raw_fields_have_their_own_error() {
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
            "spec": {"devices": {"config": [{"opaque": {"driver": "d", "parameters": {}}}]}},
        });
        let body = protobuf::encode(&claim, |out, _| out.extend(br#"{"a":"\ud800"}"#));
        let read = decode(&body.expect("a kind with a protobuf form"));
        assert!(matches!(read, Err(Error::Json(_))), "{read:?}");
    }
}
