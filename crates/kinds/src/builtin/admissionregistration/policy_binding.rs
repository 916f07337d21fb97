//! Bindings of admission policies.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::{labels, names};
use serde_json::{Value, json};

use super::matching::match_resources;
use super::{ADMISSION, MUTATING, match_rules, policy};
use crate::object;
use crate::registry::{Builtin, Check, Rules};
use crate::table::age;
use crate::table::format::name;
use crate::validate::{label_selector, list, one_of, rule, text};

pub(super) static MUTATING_ADMISSION_POLICY_BINDING: Builtin = Builtin {
    kind: "MutatingAdmissionPolicyBinding",
    plural: "mutatingadmissionpolicybindings",
    deprecated: &[
        (
            "v1beta1",
            "v1.37",
            "v1.40",
            "admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding",
        ),
        ("v1alpha1", "v1.35", "v1.38", ""),
    ],
    rules: rules(validate_mutating),
    ..MUTATING
};

pub(super) static VALIDATING_ADMISSION_POLICY_BINDING: Builtin = Builtin {
    kind: "ValidatingAdmissionPolicyBinding",
    plural: "validatingadmissionpolicybindings",
    rules: rules(validate_validating),
    ..ADMISSION
};

/// The rules of both kinds, which differ in validation.
const fn rules(validate: Check) -> Rules {
    Rules {
        validate,
        table: Some(("Name|PolicyName|ParamRef|Age", row)),
        ..ADMISSION.rules
    }
}

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

/// Checks what bindings of validating and mutating policies have in common.
fn validate_binding(spec: &Value, operations: Option<&[&str]>, errors: &mut ErrorList) {
    let path = Path::new("spec");
    let policy = text(spec, "policyName");
    let at = path.child("policyName");
    if policy.is_empty() {
        errors.push(Error::required(&at, ""));
    } else {
        rule(names::dns1123_subdomain(policy), policy, &at, errors);
    }
    if spec["paramRef"].is_object() {
        param_ref(&spec["paramRef"], &path.child("paramRef"), errors);
    }
    let (resources, at) = (&spec["matchResources"], path.child("matchResources"));
    if resources.is_object() {
        match_resources(resources, &at, errors);
        match_rules::only(resources, operations, &at, errors);
    }
}

/// Checks the binding of a validating policy.
fn validate_validating(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    validate_binding(spec, None, errors);
    let at = path.child("validationActions");
    let actions = list(spec, "validationActions");
    let mut seen = BTreeSet::new();
    for (index, action) in actions.iter().enumerate() {
        let name = action.as_str().unwrap_or_default();
        if !ACTIONS.contains(&name) {
            errors.push(Error::not_supported(&at.index(index), name, &ACTIONS));
        }
        if !seen.insert(name) {
            errors.push(Error::duplicate(&at.index(index), name));
        }
    }
    let has = |action: &str| actions.iter().any(|it| it == action);
    if has("Deny") && has("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                      response and headers serves no purpose)";
        errors.push(Error::invalid(&at, &spec["validationActions"], detail));
    }
    if actions.is_empty() {
        let detail = "at least one validation action is required";
        errors.push(Error::required(&at, detail));
    }
}

/// The objects that a binding refers to.
fn param_ref(value: &Value, path: &Path, errors: &mut ErrorList) {
    let exclusive = "name and selector are mutually exclusive";
    let (name, has_selector) = (text(value, "name"), value["selector"].is_object());
    if !name.is_empty() {
        let at = path.child("name");
        rule(names::path_segment_name(name), name, &at, errors);
        if has_selector {
            errors.push(Error::forbidden(&at, exclusive));
        }
    }
    if has_selector {
        let at = path.child("selector");
        label_selector(&value["selector"], &at, errors);
        if !name.is_empty() {
            errors.push(Error::forbidden(&at, exclusive));
        }
    } else if name.is_empty() {
        let detail = "one of name or selector must be specified";
        errors.push(Error::required(path, detail));
    }
    let action = text(value, "parameterNotFoundAction");
    let at = path.child("parameterNotFoundAction");
    one_of(action, &["Deny", "Allow"], true, &at, errors);
}

/// Checks the binding of a mutating policy.
fn validate_mutating(object: &Value, errors: &mut ErrorList) {
    validate_binding(&object["spec"], Some(&policy::MUTATING_OPERATIONS), errors);
}

/// A selector as Go prints the struct.
fn selector(selector: &Value) -> String {
    if !selector.is_object() {
        return "<unset>".to_owned();
    }
    let matched = selector["matchLabels"].as_object().into_iter().flatten();
    let matched = matched.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
    let requirements = list(selector, "matchExpressions").iter().map(|one| {
        let [key, operator] = ["key", "operator"].map(|key| object::text(one, &[key]));
        (key, operator, object::strings(&one["values"]).join(" "))
    });
    labels::go_string(matched, requirements)
}

fn row(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let reference = match &spec["paramRef"] {
        Value::Null => "<unset>".to_owned(),
        value => match (
            object::text(value, &["namespace"]),
            object::text(value, &["name"]),
        ) {
            (_, "") => selector(&value["selector"]),
            ("", name) => format!("*/{name}"),
            (namespace, name) => format!("{namespace}/{name}"),
        },
    };
    vec![
        name(object),
        json!(object::text(spec, &["policyName"])),
        json!(reference),
        age(object),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_shown_by_name_or_selector() {
        let shown = |reference: Value| {
            let spec = json!({"policyName": "p", "paramRef": reference});
            row(&json!({"metadata": {"name": "b"}, "spec": spec}))[2].clone()
        };
        assert_eq!(shown(Value::Null), "<unset>");
        assert_eq!(shown(json!({"name": "max"})), "*/max");
        assert_eq!(shown(json!({"name": "max", "namespace": "n"})), "n/max");
        let selector = json!({
            "matchLabels": {"a": "b", "c": "d"},
            "matchExpressions": [{"key": "x", "operator": "In", "values": ["y", "z"]}],
        });
        assert_eq!(
            shown(json!({"selector": selector})),
            "&LabelSelector{MatchLabels:map[string]string{a: b,c: d,},MatchExpressions:[]LabelSelectorRequirement{\
             LabelSelectorRequirement{Key:x,Operator:In,Values:[y z],},},}"
        );
    }
}
