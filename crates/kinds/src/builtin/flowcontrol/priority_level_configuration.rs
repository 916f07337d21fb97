//! Priority level configurations.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::{Value, json};

use super::{FLOW, validate_conditions};
use crate::flow_defaults::mandatory;
use crate::object;
use crate::registry::{Builtin, Rules};
use crate::table::age;
use crate::table::format::name;
use crate::validate::{between, internal, text};

pub(super) static PRIORITY_LEVEL_CONFIGURATION: Builtin = Builtin {
    kind: "PriorityLevelConfiguration",
    plural: "prioritylevelconfigurations",
    rules: Rules {
        validate,
        table: Some((
            "Name|Type|NominalConcurrencyShares|Queues|HandSize|QueueLengthLimit|Age",
            row,
        )),
        ..FLOW.rules
    },
    ..FLOW
};

const LEVEL: (&str, &str, &str) = (
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "PriorityLevelConfiguration",
);
/// An annotation of v1beta3, which no other version has.
const ZERO_SHARES: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
const MAX_QUEUES: i64 = 10_000_000;
/// How many bits of a hash choose the queues of a flow.
const MAX_HASH_BITS: i64 = 60;

/// Checks a priority level.
fn validate(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let (name, kind) = (text(&object["metadata"], "name"), text(spec, "type"));
    if object["metadata"]["annotations"].get(ZERO_SHARES).is_some() {
        let at = Path::new("metadata").child("annotations");
        let detail = format!("annotation '{ZERO_SHARES}' is forbidden");
        errors.push(Error::forbidden(&at, detail));
    }
    if (name == "exempt") != (kind == "Exempt") {
        let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.push(Error::invalid(&path.child("type"), kind, detail));
    }
    let (limited, exempt) = (&spec["limited"], &spec["exempt"]);
    match kind {
        "Exempt" => {
            if limited.is_object() {
                let detail = "must be nil if the type is not Limited";
                errors.push(Error::forbidden(&path.child("limited"), detail));
            }
            if exempt.is_object() {
                shares(exempt, &path.child("exempt"), errors);
            }
        }
        "Limited" => {
            if exempt.is_object() {
                let detail = "must be nil if the type is Limited";
                errors.push(Error::forbidden(&path.child("exempt"), detail));
            }
            if limited.is_object() {
                limits(limited, &path.child("limited"), errors);
            } else {
                let detail = "must not be empty when type is Limited";
                errors.push(Error::required(&path.child("limited"), detail));
            }
        }
        _ => {
            let kinds = ["Exempt", "Limited"];
            errors.push(Error::not_supported(&path.child("type"), kind, &kinds));
        }
    }
    validate_mandatory(object, errors);
    validate_conditions(object, errors);
}

/// The spec of a mandatory level cannot be changed, except for `exempt` of the level of that name.
fn validate_mandatory(object: &Value, errors: &mut ErrorList) {
    let name = text(&object["metadata"], "name");
    let Some(wanted) = mandatory("prioritylevelconfigurations", name) else {
        return;
    };
    let mut spec = object["spec"].clone();
    let mut detail = format!("spec of '{name}' must equal the fixed value");
    if name == "exempt" {
        spec["exempt"] = wanted["exempt"].clone();
        detail =
            "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value".to_owned();
    }
    if spec != wanted {
        let shown = internal::shown(LEVEL, &["spec"], &object["spec"]);
        errors.push(Error::invalid(&Path::new("spec"), shown, detail));
    }
}

fn shares(item: &Value, path: &Path, errors: &mut ErrorList) {
    let key = "nominalConcurrencyShares";
    if let Some(shares) = item[key].as_i64().filter(|it| *it < 0) {
        let detail = "must be a non-negative integer";
        errors.push(Error::invalid(&path.child(key), shares, detail));
    }
    lendable(item, path, errors);
}

fn lendable(item: &Value, path: &Path, errors: &mut ErrorList) {
    let key = "lendablePercent";
    if let Some(percent) = item[key].as_i64().filter(|it| !(0..=100).contains(it)) {
        errors.push(Error::invalid(&path.child(key), percent, between(0, 100)));
    }
}

fn limits(limited: &Value, path: &Path, errors: &mut ErrorList) {
    let key = "nominalConcurrencyShares";
    if let Some(shares) = limited[key].as_i64().filter(|it| *it < 0) {
        let detail = "must be a non-negative integer";
        errors.push(Error::invalid(&path.child(key), shares, detail));
    }
    let (response, at) = (&limited["limitResponse"], path.child("limitResponse"));
    let queuing = &response["queuing"];
    match text(response, "type") {
        "Reject" => {
            if queuing.is_object() {
                let detail = "must be nil if limited.limitResponse.type is not Limited";
                errors.push(Error::forbidden(&at.child("queuing"), detail));
            }
        }
        "Queue" => {
            if queuing.is_object() {
                queues(queuing, &at.child("queuing"), errors);
            } else {
                let detail = "must not be empty if limited.limitResponse.type is Limited";
                errors.push(Error::required(&at.child("queuing"), detail));
            }
        }
        other => {
            let kinds = ["Queue", "Reject"];
            errors.push(Error::not_supported(&at.child("type"), other, &kinds));
        }
    }
    lendable(limited, path, errors);
    let key = "borrowingLimitPercent";
    if let Some(percent) = limited[key].as_i64().filter(|it| *it < 0) {
        let detail = "if specified, must be a non-negative integer";
        errors.push(Error::invalid(&path.child(key), percent, detail));
    }
}

fn queues(queuing: &Value, path: &Path, errors: &mut ErrorList) {
    let number = |key: &str| queuing[key].as_i64().unwrap_or_default();
    let (length, queues, hand) = (
        number("queueLengthLimit"),
        number("queues"),
        number("handSize"),
    );
    let at = path.child("queueLengthLimit");
    if length <= 0 {
        errors.push(Error::invalid(&at, length, "must be positive"));
    }
    let at = path.child("queues");
    if queues <= 0 {
        errors.push(Error::invalid(&at, queues, "must be positive"));
    } else if queues > MAX_QUEUES {
        let detail = format!("must not be greater than {MAX_QUEUES}");
        errors.push(Error::invalid(&at, queues, detail));
    }
    let at = path.child("handSize");
    if hand <= 0 {
        errors.push(Error::invalid(&at, hand, "must be positive"));
    } else if hand > queues {
        let detail = format!("should not be greater than queues ({queues})");
        errors.push(Error::invalid(&at, hand, detail));
    } else if entropy(queues, hand) > MAX_HASH_BITS {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_HASH_BITS}"
        );
        errors.push(Error::invalid(&at, hand, detail));
    }
}

/// The bits of entropy to deal a hand from a deck, capped at a sufficient value.
fn entropy(deck: i64, hand: i64) -> i64 {
    let mut bits = 0.0;
    for dealt in 0..hand {
        // Exact: there are at most ten million cards.
        bits += ((deck - dealt) as f64).log2();
        if bits > 64.0 {
            break;
        }
    }
    bits.ceil() as i64
}

fn row(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let limited = &spec["limited"];
    let queuing = &limited["limitResponse"]["queuing"];
    let shown = |value: &Value| match value.as_i64() {
        Some(value) => json!(value),
        None => json!("<none>"),
    };
    vec![
        name(object),
        json!(object::text(spec, &["type"])),
        shown(&limited["nominalConcurrencyShares"]),
        shown(&queuing["queues"]),
        shown(&queuing["handSize"]),
        shown(&queuing["queueLengthLimit"]),
        age(object),
    ]
}
