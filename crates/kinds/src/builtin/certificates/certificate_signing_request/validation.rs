//! Validation of certificate signing requests.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use crate::builtin::certificates::signature::{self, SignatureError};
use crate::request::Part;
use crate::validate::{list, signer, text};

/// What certificates can be for.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
/// Shortest lifetime that can be requested.
const SHORTEST_SECONDS: i64 = 600;
/// The signer of the first version of this API.
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";

/// Checks a request and its conditions.
pub(super) fn validate(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    if let Err(error) = parse(text(spec, "request")) {
        let detail = error.to_string();
        let at = path.child("request");
        errors.push(Error::invalid(&at, &spec["request"], detail));
    }
    let at = path.child("usages");
    let usages = list(spec, "usages");
    if usages.is_empty() {
        errors.push(Error::required(&at, ""));
    }
    for (index, usage) in usages.iter().enumerate() {
        let usage = usage.as_str().unwrap_or_default();
        if !USAGES.contains(&usage) {
            errors.push(Error::not_supported(&at.index(index), usage, &USAGES));
        }
    }
    let mut seen = BTreeSet::new();
    for (index, usage) in usages.iter().enumerate() {
        let usage = usage.as_str().unwrap_or_default();
        if !seen.insert(usage) {
            errors.push(Error::duplicate(&at.index(index), usage));
        }
    }
    let (name, at) = (text(spec, "signerName"), path.child("signerName"));
    if name == LEGACY_SIGNER {
        let detail = "the legacy signerName is not allowed via this API version";
        errors.push(Error::invalid(&at, name, detail));
    } else {
        signer::validate(name, &at, errors);
    }
    if let Some(seconds) = spec["expirationSeconds"]
        .as_i64()
        .filter(|it| *it < SHORTEST_SECONDS)
    {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(Error::invalid(
            &path.child("expirationSeconds"),
            seconds,
            detail,
        ));
    }
    conditions(list(&object["status"], "conditions"), errors);
    if let Err(error) = certificates(text(&object["status"], "certificate")) {
        let at = Path::new("status").child("certificate");
        let detail = error.to_string();
        errors.push(Error::invalid(&at, "<certificate data>", detail));
    }
}

/// Validates an update of the endpoint. The conditions of a decision are never removed, and are written through
/// `approval` alone; the certificate through `status`, once.
pub(super) fn validate_update(object: &Value, old: &Value, part: Part, errors: &mut ErrorList) {
    let mut found = ErrorList::new();
    validate(object, &mut found);
    let (status, before) = (&object["status"], &old["status"]);
    let certificate = Path::new("status").child("certificate");
    if status["certificate"] == before["certificate"] {
        // Stored values are not validated again.
        found.retain(|error| error.field != certificate.to_string());
    }
    errors.append(found);
    let path = Path::new("status").child("conditions");
    let of = |status: &Value, kind: &str| -> Vec<Value> {
        let all = list(status, "conditions").iter();
        all.filter(|it| it["type"] == kind).cloned().collect()
    };
    for kind in ["Approved", "Denied", "Failed"] {
        if of(status, kind).len() < of(before, kind).len() {
            let detail = format!("updates may not remove a condition of type {kind:?}");
            errors.push(Error::forbidden(&path, detail));
        }
    }
    if part != Part::Approval {
        for kind in ["Approved", "Denied"] {
            if of(status, kind).len() > of(before, kind).len() {
                let detail = format!("updates may not add a condition of type {kind:?}");
                errors.push(Error::forbidden(&path, detail));
            }
        }
    }
    if status["certificate"] != before["certificate"] {
        if part != Part::Status {
            let detail = "updates may not set certificate content";
            errors.push(Error::forbidden(&certificate, detail));
        } else if !text(before, "certificate").is_empty() {
            let detail = "updates may not modify existing certificate content";
            errors.push(Error::forbidden(&certificate, detail));
        }
    }
}

/// Why `status.certificate` is invalid.
#[derive(Debug, thiserror::Error)]
enum CertificateError {
    #[error("only CERTIFICATE PEM blocks are allowed, found {0:?}")]
    Block(String),
    #[error("x509: malformed certificate")]
    Malformed,
    #[error("must contain at least one CERTIFICATE PEM block")]
    NoBlock,
}

/// Why `spec.request` is invalid.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Block,
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    Signature(#[from] SignatureError),
}

/// Checks that the base64 text contains only PEM certificates; empty is valid.
fn certificates(data: &str) -> Result<(), CertificateError> {
    let bytes = STANDARD.decode(data).unwrap_or_default();
    if bytes.is_empty() {
        return Ok(());
    }
    let mut blocks = 0;
    for block in x509_parser::pem::Pem::iter_from_buffer(&bytes).map_while(Result::ok) {
        if block.label != "CERTIFICATE" {
            return Err(CertificateError::Block(block.label));
        }
        let parsed = block.parse_x509();
        parsed.map_err(|_| CertificateError::Malformed)?;
        blocks += 1;
    }
    match blocks {
        0 => Err(CertificateError::NoBlock),
        _ => Ok(()),
    }
}

/// Checks that the base64 text is a certificate signing request in PEM, which its key has signed.
fn parse(request: &str) -> Result<(), RequestError> {
    let bytes = STANDARD.decode(request);
    let bytes = bytes.map_err(|_| RequestError::Block)?;
    let pem = x509_parser::pem::parse_x509_pem(&bytes);
    let (_, pem) = pem.map_err(|_| RequestError::Block)?;
    if pem.label != "CERTIFICATE REQUEST" {
        return Err(RequestError::Block);
    }
    let (rest, parsed) = X509CertificationRequest::from_der(&pem.contents)
        .map_err(|error| RequestError::Malformed(error.to_string()))?;
    if !rest.is_empty() {
        return Err(RequestError::Malformed(
            "asn1: syntax error: trailing data".to_owned(),
        ));
    }
    Ok(signature::check(&parsed)?)
}

fn conditions(conditions: &[Value], errors: &mut ErrorList) {
    let path = Path::new("status").child("conditions");
    let decided = |kind: &str| matches!(kind, "Approved" | "Denied");
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let at = path.index(index);
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        if kind.is_empty() {
            errors.push(Error::required(&at.child("type"), ""));
        }
        if status.is_empty() {
            errors.push(Error::required(&at.child("status"), ""));
        } else if (decided(kind) || kind == "Failed") && status != "True" {
            errors.push(Error::not_supported(&at.child("status"), status, &["True"]));
        } else if !matches!(status, "True" | "False" | "Unknown") {
            let known = ["False", "True", "Unknown"];
            errors.push(Error::not_supported(&at.child("status"), status, &known));
        }
        let other = match kind {
            "Approved" => "Denied",
            _ => "Approved",
        };
        if decided(kind) && seen.contains(other) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.push(Error::invalid(&path, kind, detail));
        }
        if !seen.insert(kind) {
            errors.push(Error::duplicate(&at.child("type"), kind));
        }
    }
}
