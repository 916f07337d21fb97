//! Certificate signing requests.

use allot_apimachinery::names;
use serde_json::Value;

use crate::registry::{Builtin, CLUSTER, RW, Rules, STATUS, UnsupportedField};
use crate::request::Part;
use crate::strategy::certificates::prepare_status;
use crate::strategy::keep;
use crate::{table, validate};

pub(super) static CERTIFICATE_SIGNING_REQUEST: Builtin = Builtin {
    group: "certificates.k8s.io",
    kind: "CertificateSigningRequest",
    plural: "certificatesigningrequests",
    short: &["csr"],
    subresources: &[("approval", "", "", "", RW), STATUS],
    rules: Rules {
        name: names::path_segment_name,
        prepare_update: Some(prepare_update),
        reset_fields: &[
            ("", &[&["spec"], &["status"]]),
            ("approval", &[&["spec"], &["status", "certificate"]]),
            ("status", &[&["spec"], &["status", "conditions"]]),
        ],
        validate: validate::certificate::request,
        validate_update: Some(|request, old, errors| {
            validate::certificate::update(request, old, Part::Main, errors)
        }),
        validate_status: Some(|request, old, errors| {
            validate::certificate::update(request, old, Part::Status, errors)
        }),
        validate_part: Some(validate::certificate::update),
        selectable: &["spec.signerName"],
        unsupported_field: UnsupportedField::NotSupported,
        table: Some((
            "Name|Age|SignerName|Requestor|RequestedDuration|Condition",
            table::control::csr,
        )),
        ..Rules::DEFAULT
    },
    ..CLUSTER
};

fn prepare_update(request: &mut Value, old: &Value, part: Part) {
    if part == Part::Main {
        keep(request, old, "spec");
    }
    prepare_status(request, old, part);
}
