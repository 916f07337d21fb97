//! The accepted names of a CRD, and the conditions that report them.

use std::collections::BTreeSet;

use allot_apimachinery::conditions;
use allot_apimachinery::field::joined;
use serde_json::{Value, json};

use super::{list, text};

/// A condition of the status holds.
pub fn is_true(definition: &Value, condition: &str) -> bool {
    list(&definition["status"], "conditions")
        .iter()
        .any(|c| c["type"] == condition && c["status"] == "True")
}

/// Sets a condition; its time changes when its status does.
pub fn set_condition(
    definition: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    let conditions = &mut definition["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    if let Value::Array(conditions) = conditions {
        let condition = json!({
            "type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message,
        });
        conditions::set_condition(conditions, condition);
    }
}

/// Accepts the names that no other CRD of the group has, and sets the conditions accordingly. `others` are all other
/// CRDs. A CRD whose names are accepted is established.
pub fn accept_names<'a>(
    definition: &mut Value,
    others: impl IntoIterator<Item = &'a Value>,
    now: &str,
) {
    let spec = definition["spec"]["names"].clone();
    let accepted = definition["status"]["acceptedNames"].clone();
    let mut resources = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    let group = text(&definition["spec"], "group").to_owned();
    for other in others {
        if text(&other["spec"], "group") != group {
            continue;
        }
        let names = &other["status"]["acceptedNames"];
        resources.extend([text(names, "plural"), text(names, "singular")]);
        resources.extend(list(names, "shortNames").iter().filter_map(Value::as_str));
        kinds.extend([text(names, "kind"), text(names, "listKind")]);
    }
    let mut new = accepted.as_object().cloned().unwrap_or_default();
    let mut problem: Option<(&str, String)> = None;
    for (key, used, reason) in [
        ("plural", &resources, "PluralConflict"),
        ("singular", &resources, "SingularConflict"),
        ("shortNames", &resources, "ShortNamesConflict"),
        ("kind", &kinds, "KindConflict"),
        ("listKind", &kinds, "ListKindConflict"),
    ] {
        let taken: Vec<String> = match key {
            "shortNames" => list(&spec, key)
                .iter()
                .filter(|name| !list(&accepted, key).contains(name))
                .filter_map(Value::as_str)
                .filter(|name| used.contains(name))
                .map(|name| format!("{name:?} is already in use"))
                .collect(),
            _ if text(&spec, key) != text(&accepted, key) && used.contains(text(&spec, key)) => {
                vec![format!("{:?} is already in use", text(&spec, key))]
            }
            _ => Vec::new(),
        };
        if let Some(message) = joined(&taken) {
            problem = Some((reason, message));
        } else {
            match &spec[key] {
                Value::Null => new.remove(key),
                value => new.insert(key.to_owned(), value.clone()),
            };
        }
    }
    match &spec["categories"] {
        Value::Null => new.remove("categories"),
        value => new.insert("categories".to_owned(), value.clone()),
    };
    definition["status"]["acceptedNames"] = Value::Object(new);
    match problem {
        Some((reason, message)) => {
            set_condition(definition, "NamesAccepted", "False", reason, &message, now);
            if !is_true(definition, "Established") {
                set_condition(
                    definition,
                    "Established",
                    "False",
                    "NotAccepted",
                    "not all names are accepted",
                    now,
                );
            }
        }
        None => {
            set_condition(
                definition,
                "NamesAccepted",
                "True",
                "NoConflicts",
                "no conflicts found",
                now,
            );
            if !is_true(definition, "Established") {
                let message = "the initial names have been accepted";
                set_condition(
                    definition,
                    "Established",
                    "True",
                    "InitialNamesAccepted",
                    message,
                    now,
                );
            }
        }
    }
}
