//! Pod certificate requests: what a kubelet asks a signer for, on behalf of a pod.

use allot_model::features::Feature;
use serde_json::{Value, json};

use crate::registry::{ALL_METADATA, BASE, Builtin, Rules, STATUS, UnsupportedField};
use crate::table::format::{labels, name};
use crate::validate::{list, text};

mod issued;
mod keys;
mod validation;

pub(super) static POD_CERTIFICATE_REQUEST: Builtin = Builtin {
    group: "certificates.k8s.io",
    versions: &["!v1beta1"],
    since: &[("v1beta1", 35)],
    gate: Some(Feature::PodCertificateRequest),
    kind: "PodCertificateRequest",
    plural: "podcertificaterequests",
    subresources: &[STATUS],
    rules: Rules {
        requires_version: |_| true,
        status_keeps: ALL_METADATA,
        reset_fields: &[("", &[]), ("status", &[&["spec"]])],
        validate_create: Some(validation::validate_create),
        validate_update: Some(validation::validate_update),
        validate_status: Some(validation::validate_status),
        selectable: &["spec.signerName", "spec.podName", "spec.nodeName"],
        selects_namespace: false,
        unsupported_field: UnsupportedField::NotSupported,
        table: Some((
            "Name|PodName|ServiceAccountName|NodeName|SignerName|State|UnverifiedUserAnnotations",
            row,
        )),
        ..Rules::DEFAULT
    },
    ..BASE
};

fn row(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let conditions = list(&object["status"], "conditions").iter();
    let mut kinds = conditions.filter_map(|it| it["type"].as_str());
    let state = kinds.rfind(|it| validation::ENDS.contains(it));
    let mut row = vec![name(object)];
    for key in ["podName", "serviceAccountName", "nodeName", "signerName"] {
        row.push(json!(text(spec, key)));
    }
    row.push(json!(state.unwrap_or("Pending")));
    row.push(json!(labels(&spec["unverifiedUserAnnotations"])));
    row
}
