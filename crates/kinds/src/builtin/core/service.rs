//! Services.

use allot_apimachinery::field::ErrorList;
use allot_apimachinery::names;
use allot_model::features::Feature;
use serde_json::{Value, json};

use crate::object::{self, items, strings};
use crate::registry::{BASE, Builtin, Connect, PROXY, Rules, STATUS, UnsupportedField};
use crate::request::Part;
use crate::table::age;
use crate::table::format::{self, name, number, or_none};
use crate::validate::ip::address_warning;
use crate::warnings::addresses;

mod families;
mod type_change;
mod validation;

pub(super) static SERVICE: Builtin = Builtin {
    kind: "Service",
    plural: "services",
    short: &["svc"],
    categories: &["all"],
    subresources: &[("proxy", "ServiceProxyOptions", "", "", PROXY), STATUS],
    rules: Rules {
        name: names::dns1123_label,
        name_without: Some((Feature::RelaxedServiceNameValidation, names::dns1035_label)),
        storage_prefix: "services/specs",
        create_on_update: true,
        defaults_status_from_spec: true,
        allocates_addresses: true,
        connect: Some(Connect::Service),
        prepare_update: Some(|service, old, part| {
            if part == Part::Main {
                type_change::follow_type(service, old);
            }
        }),
        validate: validation::validate,
        validate_update: Some(validation::validate_update),
        validate_status: Some(|service, _, errors| validation::validate_status(service, errors)),
        validates_metadata_again: false,
        warnings,
        warnings_status: Some(addresses::balancer),
        delete_returns_object: |_| true,
        selectable: &["spec.clusterIP", "spec.type"],
        unsupported_field: UnsupportedField::NotSupported,
        table: Some((
            "Name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector::1",
            row,
        )),
        ..Rules::DEFAULT
    },
    ..BASE
};

fn row(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let kind = object::text(spec, &["type"]);
    let external_ips = strings(&spec["externalIPs"]);
    let balancer: Vec<String> = items(&object["status"]["loadBalancer"]["ingress"])
        .iter()
        .filter_map(|it| {
            it["ip"]
                .as_str()
                .or(it["hostname"].as_str())
                .map(str::to_owned)
        })
        .collect();
    let external = match kind {
        "LoadBalancer" if balancer.is_empty() && external_ips.is_empty() => "<pending>".to_owned(),
        "LoadBalancer" => [balancer, external_ips].concat().join(","),
        "ExternalName" => object::text(spec, &["externalName"]).to_owned(),
        "ClusterIP" | "NodePort" => or_none(external_ips.join(",")),
        _ => "<unknown>".to_owned(),
    };
    let ports: Vec<String> = items(&spec["ports"])
        .iter()
        .map(|port| {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            match port["nodePort"].as_i64().filter(|it| *it != 0) {
                Some(node) => format!("{}:{node}/{protocol}", number(&port["port"])),
                None => format!("{}/{protocol}", number(&port["port"])),
            }
        })
        .collect();
    vec![
        name(object),
        json!(kind),
        json!(or_none(object::text(spec, &["clusterIP"]).to_owned())),
        json!(external),
        json!(or_none(ports.join(","))),
        age(object),
        json!(format::labels(&spec["selector"])),
    ]
}

fn warnings(object: &Value) -> Vec<String> {
    let spec = &object["spec"];
    let text = |key: &str| spec[key].as_str().unwrap_or_default();
    let external = spec["externalIPs"]
        .as_array()
        .is_some_and(|list| !list.is_empty());
    let mut found = Vec::new();
    let hints = "service.kubernetes.io/topology-aware-hints";
    if object["metadata"]["annotations"].get(hints).is_some() {
        found.push(format!(
            "annotation {hints} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    if !matches!(text("clusterIP"), "" | "None") {
        found.extend(addresses::list("spec.clusterIPs", &spec["clusterIPs"]));
    }
    if text("type") == "ClusterIP" && text("clusterIP") == "None" {
        if !text("loadBalancerIP").is_empty() {
            found.push("spec.loadBalancerIP is ignored for headless services".to_owned());
        }
        if external {
            found.push("spec.externalIPs is ignored for headless services".to_owned());
        }
        if text("sessionAffinity") != "None" {
            found.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    found.extend(addresses::list("spec.externalIPs", &spec["externalIPs"]));
    if external && text("clusterIP") != "None" && text("type") != "ExternalName" {
        let words =
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
        found.push(words.to_owned());
    }
    let balancer = text("loadBalancerIP");
    if !balancer.is_empty() {
        found.extend(address_warning("spec.loadBalancerIP", balancer));
    }
    let ranges = "spec.loadBalancerSourceRanges";
    found.extend(addresses::ranges(ranges, &spec["loadBalancerSourceRanges"]));
    if text("type") == "ExternalName" {
        if external {
            let words = "spec.externalIPs is ignored when spec.type is \"ExternalName\"";
            found.push(words.to_owned());
        }
    } else if !text("externalName").is_empty() {
        let words = "spec.externalName is ignored when spec.type is not \"ExternalName\"";
        found.push(words.to_owned());
    }
    if text("trafficDistribution") == "PreferClose" {
        let words =
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"";
        found.push(words.to_owned());
    }
    found
}

/// Errors of a service's addresses and families; they prevent an allocation.
pub fn address_errors(service: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    validation::addresses(service, &mut errors);
    errors
}
