//! Certificate signing requests.

use std::collections::BTreeMap;

use allot_apimachinery::names;
use serde_json::{Value, json};

use crate::object::{self, child_mut, items};
use crate::registry::{Builtin, CLUSTER, RW, Rules, STATUS, UnsupportedField};
use crate::request::Part;
use crate::strategy::keep;
use crate::table::age;
use crate::table::format::{name, or_none};

mod validation;

pub(super) static CERTIFICATE_SIGNING_REQUEST: Builtin = Builtin {
    group: "certificates.k8s.io",
    kind: "CertificateSigningRequest",
    plural: "certificatesigningrequests",
    short: &["csr"],
    subresources: &[("approval", "", "", "", RW), STATUS],
    rules: Rules {
        name: names::path_segment_name,
        prepare_part: Some(prepare_approval),
        prepare_update: Some(prepare_update),
        reset_fields: &[
            ("", &[&["spec"], &["status"]]),
            ("approval", &[&["spec"], &["status", "certificate"]]),
            ("status", &[&["spec"], &["status", "conditions"]]),
        ],
        validate: validation::validate,
        validate_update: Some(|request, old, errors| {
            validation::validate_update(request, old, Part::Main, errors)
        }),
        validate_status: Some(|request, old, errors| {
            validation::validate_update(request, old, Part::Status, errors)
        }),
        validate_part: Some(validation::validate_update),
        selectable: &["spec.signerName"],
        selects_namespace: false,
        unsupported_field: UnsupportedField::NotSupported,
        table: Some((
            "Name|Age|SignerName|Requestor|RequestedDuration|Condition",
            row,
        )),
        ..Rules::DEFAULT
    },
    ..CLUSTER
};

/// Reverts all of an approval but the conditions.
fn prepare_approval(request: &mut Value, old: &Value, _: Part) {
    let conditions = request["status"]["conditions"].clone();
    keep(request, old, "spec");
    keep(request, old, "status");
    let status = child_mut(request, "status");
    match conditions {
        Value::Null => status.remove("conditions"),
        conditions => status.insert("conditions".to_owned(), conditions),
    };
}

fn prepare_update(request: &mut Value, old: &Value, part: Part) {
    if part == Part::Main {
        keep(request, old, "spec");
    }
    prepare_status(request, old, part);
}

/// Keeps existing approval and denial conditions, and sets the timestamps of new conditions.
fn prepare_status(request: &mut Value, old: &Value, part: Part) {
    if !matches!(part, Part::Status | Part::Approval) {
        return;
    }
    let before: &[Value] = old["status"]["conditions"]
        .as_array()
        .map_or(&[], Vec::as_slice);
    let conditions = request.pointer_mut("/status/conditions");
    let Some(conditions) = conditions.and_then(Value::as_array_mut) else {
        return;
    };
    if part == Part::Status {
        for kind in ["Approved", "Denied"] {
            let known = before.iter().filter(|it| it["type"] == kind);
            let sent = conditions.iter().filter(|it| it["type"] == kind);
            if known.clone().count() == sent.count() {
                let sent = conditions.iter_mut().filter(|it| it["type"] == kind);
                sent.zip(known)
                    .for_each(|(sent, known)| *sent = known.clone());
            }
        }
    }
    // The first of each kind and status counts.
    let mut known = BTreeMap::new();
    for condition in before {
        let place = (condition["type"].as_str(), condition["status"].as_str());
        known
            .entry(place)
            .or_insert(&condition["lastTransitionTime"]);
    }
    let now = Value::from(object::now());
    for condition in conditions {
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = now.clone();
        }
        if condition["lastTransitionTime"].is_null() {
            let place = (condition["type"].as_str(), condition["status"].as_str());
            let since = known.get(&place).copied().unwrap_or(&now).clone();
            condition["lastTransitionTime"] = since;
        }
    }
}

fn row(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let (mut approved, mut denied, mut failed) = (false, false, false);
    for condition in items(&object["status"]["conditions"]) {
        match condition["type"].as_str() {
            Some("Approved") => approved = true,
            Some("Denied") => denied = true,
            Some("Failed") => failed = true,
            _ => {}
        }
    }
    let mut state = vec![if denied {
        "Denied"
    } else if approved {
        "Approved"
    } else {
        "Pending"
    }];
    if failed {
        state.push("Failed");
    }
    if !object::text(object, &["status", "certificate"]).is_empty() {
        state.push("Issued");
    }
    let duration = spec["expirationSeconds"]
        .as_i64()
        .map_or("<none>".to_owned(), allot_model::table::human_duration);
    vec![
        name(object),
        age(object),
        json!(or_none(object::text(spec, &["signerName"]).to_owned())),
        json!(object::text(spec, &["username"])),
        json!(duration),
        json!(state.join(",")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_condition_of_a_kind_and_status_tells_since_when() {
        let known = |kind: &str, since: &str| json!({"type": kind, "status": "True", "lastTransitionTime": since});
        let old =
            json!({"status": {"conditions": [known("A", "1"), known("A", "2"), known("B", "3")]}});
        let mut request = json!({"status": {"conditions": [
            {"type": "B", "status": "True"}, {"type": "A", "status": "True"}, {"type": "A", "status": "False"},
        ]}});
        prepare_status(&mut request, &old, Part::Approval);
        let conditions = &request["status"]["conditions"];
        let since = |index: usize| conditions[index]["lastTransitionTime"].clone();
        assert_eq!((since(0), since(1)), (json!("3"), json!("1")));
        assert_eq!(since(2), conditions[2]["lastUpdateTime"]);
    }
}
