//! Ingress classes.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::{Value, json};

use super::NETWORKING;
use super::ingress::validation::reference;
use crate::object;
use crate::registry::{Builtin, Generation, Rules};
use crate::table::age;
use crate::table::format::name;
use crate::validate::{IMMUTABLE, domain_prefixed_path, rule, text};

pub(super) static INGRESS_CLASS: Builtin = Builtin {
    kind: "IngressClass",
    plural: "ingressclasses",
    namespaced: false,
    rules: Rules {
        generation: Generation::FromCreate,
        validate,
        validate_update: Some(validate_update),
        table: Some(("Name|Controller|Parameters|Age", row)),
        ..NETWORKING.rules
    },
    ..NETWORKING
};

/// Longest name of a controller.
const MAX_CONTROLLER: usize = 250;

/// Checks a class of ingresses.
fn validate(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let (controller, at) = (text(spec, "controller"), path.child("controller"));
    if controller.len() > MAX_CONTROLLER {
        errors.push(Error::too_long(&at, MAX_CONTROLLER));
    }
    domain_prefixed_path(controller, &at, errors);
    let (parameters, path) = (&spec["parameters"], path.child("parameters"));
    if !parameters.is_object() {
        return;
    }
    reference(parameters, &path, errors);
    let (namespace, at) = (parameters["namespace"].as_str(), path.child("namespace"));
    match (parameters["scope"].as_str(), namespace) {
        (None, _) => errors.push(Error::required(&path.child("scope"), "")),
        (Some("Namespace"), None) => {
            let detail = "`parameters.scope` is set to 'Namespace'";
            errors.push(Error::required(&at, detail));
        }
        (Some("Namespace"), Some(namespace)) => {
            rule(names::dns1123_label(namespace), namespace, &at, errors);
        }
        (Some("Cluster"), Some(_)) => {
            let detail = "`parameters.scope` is set to 'Cluster'";
            errors.push(Error::forbidden(&at, detail));
        }
        (Some("Cluster"), None) => {}
        (Some(other), _) => {
            let scopes = ["Cluster", "Namespace"];
            errors.push(Error::not_supported(&path.child("scope"), other, &scopes));
        }
    }
}

/// Checks a change of a class of ingresses.
fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    let [now, before] = [object, old].map(|class| text(&class["spec"], "controller"));
    if now != before {
        let at = Path::new("spec").child("controller");
        errors.push(Error::invalid(&at, now, IMMUTABLE));
    }
    validate(object, errors);
}

fn row(object: &Value) -> Vec<Value> {
    let parameters = match &object["spec"]["parameters"] {
        Value::Null => "<none>".to_owned(),
        value => {
            let kind = match value["apiGroup"].as_str() {
                Some(group) => format!("{}.{group}", object::text(value, &["kind"])),
                None => object::text(value, &["kind"]).to_owned(),
            };
            format!("{kind}/{}", object::text(value, &["name"]))
        }
    };
    vec![
        name(object),
        json!(object::text(object, &["spec", "controller"])),
        json!(parameters),
        age(object),
    ]
}
