//! Validation of pod certificate requests.

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::keys::bytes;
use super::{issued, keys};
use crate::validate::{immutable, list, rule, signer, text};

/// The most bytes of a UID.
const MAX_UID: usize = 128;
/// The most bytes of a key, a proof or a stub request.
const MAX_KEY: usize = 10 * 1024;
/// The shortest lifetime in seconds.
const SHORTEST: i64 = 60 * 60;

/// The conditions that end a request.
pub(super) const ENDS: [&str; 3] = ["Denied", "Failed", "Issued"];

/// Checks a new request.
pub(super) fn validate_create(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    signer::validate(text(spec, "signerName"), &path.child("signerName"), errors);
    let (annotations, at) = (
        "unverifiedUserAnnotations",
        path.child("unverifiedUserAnnotations"),
    );
    signer::user_annotations(spec, annotations, &at, errors);
    for (name, uid) in [
        ("podName", "podUID"),
        ("serviceAccountName", "serviceAccountUID"),
        ("nodeName", "nodeUID"),
    ] {
        let value = text(spec, name);
        let wrong = names::dns1123_subdomain(value);
        rule(wrong, value, &path.child(name), errors);
        let (value, at) = (text(spec, uid), path.child(uid));
        if value.is_empty() {
            errors.push(Error::invalid(&at, value, "must not be empty"));
        }
        if value.len() > MAX_UID {
            errors.push(Error::too_long(&at, MAX_UID));
        }
    }
    let at = path.child("maxExpirationSeconds");
    let Some(seconds) = spec["maxExpirationSeconds"].as_i64() else {
        errors.push(Error::required(&at, "must be set"));
        return;
    };
    let longest = signer::longest_lifetime(text(spec, "signerName"));
    if !(SHORTEST..=longest).contains(&seconds) {
        let detail = format!("must be in the range [{SHORTEST}, {longest}]");
        errors.push(Error::invalid(&at, seconds, detail));
    }
    key(spec, &path, errors);
}

/// Checks the key, in the present or the former way.
fn key(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let [stub, key, proof] =
        ["stubPKCS10Request", "pkixPublicKey", "proofOfPossession"].map(|key| bytes(spec, key));
    match (stub.is_empty(), key.is_empty(), proof.is_empty()) {
        (false, true, true) => {
            let at = path.child("stubPKCS10Request");
            if stub.len() > MAX_KEY {
                errors.push(Error::too_long(&at, MAX_KEY));
            } else if let Err(why) = keys::of_request(&stub) {
                errors.push(of_request(&why, &at));
            }
        }
        (true, false, false) => {
            let (at, proof_at) = (path.child("pkixPublicKey"), path.child("proofOfPossession"));
            if key.len() > MAX_KEY {
                errors.push(Error::too_long(&at, MAX_KEY));
            } else if proof.len() > MAX_KEY {
                errors.push(Error::too_long(&proof_at, MAX_KEY));
            } else if let Err(why) = keys::prove(&key, text(spec, "podUID").as_bytes(), &proof) {
                errors.push(of_key(&why, &key, &at, &proof_at));
            }
        }
        _ => {
            let detail = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
            errors.push(Error::invalid(path, BadValue::Omitted, detail));
        }
    }
}

fn of_request(why: &keys::Refused, at: &Path) -> Error {
    use keys::Refused::{Bits, Curve, Malformed, Signature, Unknown};
    match why {
        Malformed => Error::invalid(at, BadValue::Omitted, "must be a valid PKCS#10 CSR"),
        Curve(name) => {
            let detail = "elliptic public keys must use curve P256, P384, or P521";
            Error::invalid(at, format!("curve {name}"), detail)
        }
        Bits(bits) => bad_bits(*bits, at),
        Unknown => Error::invalid(at, BadValue::Omitted, UNKNOWN),
        Signature => Error::invalid(at, BadValue::Omitted, "invalid signature"),
    }
}

const UNKNOWN: &str = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";

fn bad_bits(bits: usize, at: &Path) -> Error {
    let detail = "RSA keys must have modulus size 3072 or 4096";
    Error::invalid(at, format!("{bits}-bit modulus"), detail)
}

fn of_key(why: &keys::Refused, key: &[u8], at: &Path, proof_at: &Path) -> Error {
    use keys::Refused::{Bits, Curve, Malformed, Signature, Unknown};
    let shown = || BadValue::raw(go_bytes(key));
    match why {
        Malformed => {
            let detail = "must be a valid PKIX-serialized public key";
            Error::invalid(at, shown(), detail)
        }
        Curve(name) => {
            let detail = "elliptic public keys must use curve P256 or P384";
            Error::invalid(at, format!("curve {name}"), detail)
        }
        Bits(bits) => bad_bits(*bits, at),
        Unknown => Error::invalid(at, shown(), UNKNOWN),
        Signature => {
            let detail = "could not verify proof-of-possession signature";
            Error::invalid(proof_at, BadValue::Omitted, detail)
        }
    }
}

/// Bytes as upstream's messages have them.
fn go_bytes(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|it| format!("{it:#x}")).collect();
    format!("[]byte{{{}}}", bytes.join(", "))
}

/// Only the metadata can change.
pub(super) fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    immutable(object, old, "spec", &Path::new("spec"), errors);
}

/// Checks a change of the status: it ends the request, once.
pub(super) fn validate_status(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (status, path) = (&object["status"], Path::new("status"));
    let before = errors.len();
    conditions(
        list(status, "conditions"),
        &path.child("conditions"),
        errors,
    );
    if errors.len() > before {
        return;
    }
    let unchanged = |detail: &str, errors: &mut ErrorList| {
        errors.push(Error::invalid(&path, BadValue::Omitted, detail));
    };
    let (end, ended) = (end(status), end(&old["status"]));
    if ended.is_some() {
        if !is_same(status, &old["status"]) {
            let detail = "immutable after PodCertificateRequest is issued, denied, or failed";
            unchanged(detail, errors);
        }
        return;
    }
    match end {
        Some("Issued") => issued::validate(object, old, errors),
        Some(_) => {
            let members = status.as_object().into_iter().flatten();
            let mut others = members.filter(|(key, _)| *key != "conditions");
            if others.any(|(_, value)| !is_empty(value)) {
                let detail = "non-condition status fields must be empty when denying or failing the \
                              PodCertificateRequest";
                unchanged(detail, errors);
            }
        }
        None if !is_same(status, &old["status"]) => unchanged(
            "status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"",
            errors,
        ),
        None => {}
    }
}

/// The condition that ends a request.
fn end(status: &Value) -> Option<&str> {
    let conditions = list(status, "conditions").iter();
    let ends = conditions.filter(|it| it["status"] == "True");
    let mut ends = ends.filter_map(|it| it["type"].as_str());
    ends.find(|kind| ENDS.contains(kind))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.values().all(is_empty),
        _ => false,
    }
}

fn is_same(status: &Value, old: &Value) -> bool {
    let of = |status: &Value| {
        let mut members = status.as_object().cloned().unwrap_or_default();
        members.retain(|_, value| !is_empty(value));
        members
    };
    of(status) == of(old)
}

/// At most one of the known conditions, and only with status `True`.
fn conditions(conditions: &[Value], path: &Path, errors: &mut ErrorList) {
    let mut known = 0;
    for (index, condition) in conditions.iter().enumerate() {
        // Upstream writes the index as a field.
        let at = path.child(&format!("[{index}]"));
        let kind = text(condition, "type");
        if !ENDS.contains(&kind) {
            errors.push(Error::not_supported(
                &at.child("type"),
                kind,
                &["Denied", "Failed", "Issued"],
            ));
            continue;
        }
        known += 1;
        if known > 1 {
            let detail = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errors.push(Error::invalid(&at.child("type"), kind, detail));
        }
        let status = text(condition, "status");
        if status != "True" {
            errors.push(Error::not_supported(&at.child("status"), status, &["True"]));
        }
    }
    errors.extend(allot_model::validate::conditions(conditions, path));
}

#[cfg(test)]
mod tests;
