//! Ingresses.

use serde_json::{Value, json};

use super::NETWORKING;
use crate::object::items;
use crate::registry::{Builtin, Generation, Rules, STATUS};
use crate::table::age;
use crate::table::format::{list_with_more, name};
use crate::warnings::addresses;

pub(super) mod validation;

pub(super) static INGRESS: Builtin = Builtin {
    kind: "Ingress",
    plural: "ingresses",
    short: &["ing"],
    subresources: &[STATUS],
    rules: Rules {
        storage_prefix: "ingress",
        generation: Generation::FromCreate,
        validate: validation::validate,
        validate_create: Some(validation::validate_create),
        validate_status: Some(|ingress, _, errors| validation::validate_status(ingress, errors)),
        warnings_create: Some(old_class),
        warnings_update: Some(|_, _| Vec::new()),
        warnings_status: Some(addresses::balancer),
        table: Some(("Name|Class|Hosts|Address|Ports|Age", row)),
        ..NETWORKING.rules
    },
    ..NETWORKING
};

fn old_class(ingress: &Value) -> Vec<String> {
    let class = "kubernetes.io/ingress.class";
    let mut found = Vec::new();
    let annotated = ingress["metadata"]["annotations"].get(class).is_some();
    if annotated && ingress["spec"]["ingressClassName"].is_null() {
        found.push(format!(
            "annotation {class:?} is deprecated, please use 'spec.ingressClassName' instead"
        ));
    }
    found
}

fn row(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let mut hosts: Vec<String> = items(&spec["rules"])
        .iter()
        .filter_map(|rule| {
            rule["host"]
                .as_str()
                .filter(|host| !host.is_empty())
                .map(str::to_owned)
        })
        .collect();
    if hosts.is_empty() {
        hosts.push("*".to_owned());
    }
    let addresses: Vec<&str> = items(&object["status"]["loadBalancer"]["ingress"])
        .iter()
        .filter_map(|it| it["ip"].as_str().or(it["hostname"].as_str()))
        .collect();
    let ports = if items(&spec["tls"]).is_empty() {
        "80"
    } else {
        "80, 443"
    };
    vec![
        name(object),
        json!(spec["ingressClassName"].as_str().unwrap_or("<none>")),
        json!(list_with_more(&hosts, 3)),
        json!(addresses.join(",")),
        json!(ports),
        age(object),
    ]
}
