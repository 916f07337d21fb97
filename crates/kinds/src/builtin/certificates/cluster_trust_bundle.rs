//! Cluster trust bundles: certificates of authorities, for all users or of one signer.

use std::collections::BTreeMap;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::{names, pem};
use allot_model::features::Feature;
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::object::meta;
use crate::registry::{Builtin, CLUSTER, Rules, UnsupportedField};
use crate::table::format::{name, or_none};
use crate::validate::{immutable, rule, signer, text};

pub(super) static CLUSTER_TRUST_BUNDLE: Builtin = Builtin {
    group: "certificates.k8s.io",
    versions: &["!v1beta1", "!v1alpha1"],
    since: &[("v1beta1", 33), ("v1alpha1", 27)],
    gate: Some(Feature::ClusterTrustBundle),
    kind: "ClusterTrustBundle",
    plural: "clustertrustbundles",
    rules: Rules {
        // Which names are valid depends on the signer.
        name: names::path_segment_name,
        requires_version: |_| true,
        validate,
        validate_update: Some(validate_update),
        selectable: &["spec.signerName"],
        selects_namespace: false,
        unsupported_field: UnsupportedField::NotSupported,
        table: Some(("Name|SignerName", row)),
        ..Rules::DEFAULT
    },
    ..CLUSTER
};

/// The most bytes of a bundle.
const MAX_BUNDLE: usize = 1 << 20;
const OMITTED: &str = "<value omitted>";

fn row(object: &Value) -> Vec<Value> {
    let signer = text(&object["spec"], "signerName").to_owned();
    vec![name(object), json!(or_none(signer))]
}

fn validate(object: &Value, errors: &mut ErrorList) {
    identity(object, errors);
    let path = Path::new("spec").child("trustBundle");
    bundle(text(&object["spec"], "trustBundle"), &path, errors);
}

fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    identity(object, errors);
    let (spec, before, path) = (&object["spec"], &old["spec"], Path::new("spec"));
    if spec["trustBundle"] != before["trustBundle"] {
        let at = path.child("trustBundle");
        bundle(text(spec, "trustBundle"), &at, errors);
    }
    let of = |spec: &Value| json!({"signerName": text(spec, "signerName")});
    let at = path.child("signerName");
    immutable(&of(spec), &of(before), "signerName", &at, errors);
}

/// The name begins with that of the signer.
fn identity(object: &Value, errors: &mut ErrorList) {
    let (name, signer) = (meta(object, "name"), text(&object["spec"], "signerName"));
    let path = Path::new("metadata").child("name");
    let wrong = signer::bundle_name(name, signer);
    rule(wrong, name, &path, errors);
    if !signer.is_empty() {
        signer::validate(signer, &Path::new("spec").child("signerName"), errors);
    }
}

/// One or more certificates of authorities, each once.
fn bundle(text: &str, path: &Path, errors: &mut ErrorList) {
    if text.len() > MAX_BUNDLE {
        errors.push(Error::too_long(path, MAX_BUNDLE));
        return;
    }
    let mut places: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (index, block) in pem::blocks(text).into_iter().enumerate() {
        match anchor(&block) {
            Ok(()) => places.entry(block.data).or_default().push(index),
            Err(why) => wrong.push(format!("entry {index} {why}")),
        }
    }
    if wrong.is_empty() {
        if places.is_empty() {
            wrong.push("at least one trust anchor must be provided".to_owned());
        }
        let mut repeated: Vec<Vec<usize>> =
            places.into_values().filter(|it| it.len() > 1).collect();
        repeated.sort_unstable();
        wrong.extend(repeated.into_iter().map(|places| {
            let places: Vec<String> = places.iter().map(usize::to_string).collect();
            format!("duplicate trust anchor (indices [{}])", places.join(" "))
        }));
    }
    let wrong = wrong.into_iter();
    errors.extend(wrong.map(|why| Error::invalid(path, OMITTED, why)));
}

/// Why a block is no certificate of an authority.
fn anchor(block: &pem::Block) -> Result<(), String> {
    if block.label != "CERTIFICATE" {
        return Err(format!("has bad block type: {}", block.label));
    }
    if block.has_headers {
        return Err("has PEM block headers".to_owned());
    }
    let parsed = match X509Certificate::from_der(&block.data) {
        Ok(([], parsed)) => parsed,
        _ => return Err("does not parse as X.509".to_owned()),
    };
    match parsed.basic_constraints() {
        Err(_) => Err("has invalid basic constraints".to_owned()),
        Ok(Some(constraints)) if constraints.value.ca => Ok(()),
        Ok(_) => Err("does not have the CA bit set".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(object: &Value) -> Vec<String> {
        let mut errors = ErrorList::new();
        validate(object, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_begin_with_their_signer() {
        let named = |name: &str, signer: &str| {
            let mut errors = ErrorList::new();
            let object = json!({"metadata": {"name": name}, "spec": {"signerName": signer}});
            identity(&object, &mut errors);
            errors.len()
        };
        assert_eq!(named("plain", ""), 0);
        assert_eq!(named("example.com:ca:one", "example.com/ca"), 0);
        for (name, signer) in [
            ("a:b", ""),
            ("Upper", ""),
            ("one", "example.com/ca"),
            ("example.com:ca:", "example.com/ca"),
            ("example.com:ca:a:b", "example.com/ca"),
            ("example.com:other:one", "example.com/ca"),
        ] {
            assert!(named(name, signer) > 0, "{name} {signer}");
        }
        assert!(named("example:one", "example") > 0);
    }

    #[test]
    fn a_bundle_has_certificates_of_authorities_only() {
        let object =
            |bundle: &str| json!({"metadata": {"name": "one"}, "spec": {"trustBundle": bundle}});
        let block = |label: &str, data: &str| {
            format!("-----BEGIN {label}-----\n{data}\n-----END {label}-----\n")
        };
        for (bundle, expected) in [
            (String::new(), "at least one trust anchor must be provided"),
            (
                "no PEM".to_owned(),
                "at least one trust anchor must be provided",
            ),
            (
                block("PRIVATE KEY", "YQ=="),
                "entry 0 has bad block type: PRIVATE KEY",
            ),
            (
                block("CERTIFICATE", "YQ=="),
                "entry 0 does not parse as X.509",
            ),
            (
                block("CERTIFICATE", "a: b\n\nYQ=="),
                "entry 0 has PEM block headers",
            ),
        ] {
            let found = wrong(&object(&bundle));
            let text = format!("spec.trustBundle: Invalid value: \"<value omitted>\": {expected}");
            assert_eq!(found, [text], "{bundle}");
        }
        let long = wrong(&object(&"a".repeat(MAX_BUNDLE + 1)));
        assert_eq!(long.len(), 1, "{long:?}");
    }
}
