//! Validation of nodes.

use std::collections::HashSet;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::quote::quote;
use allot_schema::decode;
use serde_json::Value;

use crate::validate::{entries, ip, list, resources, scheduling, text};

/// Checks a node. Upstream reports taints under `metadata`, and so do we.
pub(super) fn validate(node: &Value, errors: &mut ErrorList) {
    annotations(node, errors);
    scheduling::taints(
        list(&node["spec"], "taints"),
        &Path::new("metadata").child("taints"),
        errors,
    );
    amounts(node, errors);
    swap(node, errors);
    features(node, errors);
    let (cidrs, path) = (
        list(&node["spec"], "podCIDRs"),
        Path::new("spec").child("podCIDRs"),
    );
    for (index, cidr) in cidrs.iter().enumerate() {
        let cidr = cidr.as_str().unwrap_or_default();
        ip::range(cidr, &path.index(index), errors);
    }
    let families = cidrs.iter().map(|cidr| {
        let range = ip::sloppy_range(cidr.as_str().unwrap_or_default());
        range.map(|(address, _)| address.is_ipv4())
    });
    let invalid = |cidr: &&Value| ip::sloppy_range(cidr.as_str().unwrap_or_default()).is_none();
    if cidrs.len() > 1
        && let Some(index) = cidrs.iter().position(|cidr| invalid(&cidr))
    {
        let found = cidrs[index].as_str().unwrap_or_default();
        let detail = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{index}]: <nil> (invalid CIDR \
             address: {found})"
        );
        errors.push(Error::internal(&path, detail));
    }
    let one_each = match families.collect::<Vec<_>>().as_slice() {
        [] | [_] => true,
        [Some(one), Some(two)] => one != two,
        _ => false,
    };
    if !one_each {
        let detail = "may specify no more than one CIDR for each IP family";
        errors.push(Error::invalid(&path, &node["spec"]["podCIDRs"], detail));
    }
}

/// Node resources must not be negative, and integers where they are counted.
fn amounts(node: &Value, errors: &mut ErrorList) {
    for key in ["capacity", "allocatable"] {
        for (name, amount) in entries(&node["status"], key) {
            let path = Path::new("status").child(key).child(name);
            resources::resource_amount(name, amount, &path, errors);
        }
    }
}

/// The capacity of swap is positive if it is reported. Upstream's error names a path under `metadata`.
fn swap(node: &Value, errors: &mut ErrorList) {
    let size = node["status"]["nodeInfo"]["swap"]["capacity"].as_i64();
    if let Some(size) = size.filter(|size| *size <= 0) {
        let at = Path::new("metadata").child("nodeSwapStatus");
        let at = at.child("capacity");
        errors.push(Error::invalid(&at, size, "must be greater than zero"));
    }
}

/// Checks the alpha annotations that fields have replaced.
fn annotations(node: &Value, errors: &mut ErrorList) {
    const TAINTS: &str = "scheduler.alpha.kubernetes.io/taints";
    const AVOIDED: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";
    let path = Path::new("metadata").child("annotations");
    let annotations = &node["metadata"]["annotations"];
    let mut read = |key: &'static str, at: &Path| {
        let text = text(annotations, key);
        if text.is_empty() {
            return Value::Null;
        }
        match decode::decode_json(text.as_bytes(), None) {
            Ok(decoded) => decoded.value,
            Err(error) => {
                errors.push(Error::invalid(at, key, error.to_string()));
                Value::Null
            }
        }
    };
    let taints = read(TAINTS, &path);
    let avoided = read(AVOIDED, &path.child("AvoidPods"));
    let taints = taints.as_array().map(Vec::as_slice).unwrap_or_default();
    scheduling::taints(taints, &path.child(TAINTS), errors);
    let path = path.child(AVOIDED);
    for (index, avoided) in list(&avoided, "preferAvoidPods").iter().enumerate() {
        let controller = &avoided["podSignature"]["podController"];
        let at = path.index(index).child("PodSignature");
        if !controller.is_object() {
            errors.push(Error::required(&at, ""));
        } else if controller["controller"] == false {
            let at = at.child("PodController").child("Controller");
            errors.push(Error::invalid(&at, false, "must point to a controller"));
        }
    }
}

/// Checks a change of a node's status.
pub(super) fn validate_status(node: &Value, errors: &mut ErrorList) {
    annotations(node, errors);
    amounts(node, errors);
    features(node, errors);
    addresses(node, errors);
}

/// Declared features are names of one or more words, sorted and unique.
fn features(node: &Value, errors: &mut ErrorList) {
    const MAX_NAME: usize = 253;
    let path = Path::new("status").child("declaredFeatures");
    let named = list(&node["status"], "declaredFeatures").iter();
    let named: Vec<&str> = named.map(|it| it.as_str().unwrap_or_default()).collect();
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().all(|c| c.is_ascii_alphanumeric())
    };
    let is_more = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic())
            && word.chars().all(|c| c.is_ascii_alphanumeric())
    };
    for (index, name) in named.iter().enumerate() {
        let mut words = name.split('/');
        let valid = words.next().is_some_and(is_word) && words.all(is_more);
        let why = if name.len() > MAX_NAME {
            Some(format!("must be no more than {MAX_NAME} characters"))
        } else if !valid {
            Some(
                "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature \
                 or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
                    .to_owned(),
            )
        } else {
            None
        };
        if let Some(why) = why {
            let detail = format!("invalid feature name {}: {why}", quote(name));
            errors.push(Error::invalid(&path.index(index), *name, detail));
        }
        let Some(next) = named.get(index + 1) else {
            continue;
        };
        let at = path.index(index + 1);
        if name == next {
            errors.push(Error::duplicate(&at, *next));
        } else if name > next {
            let detail = "list must be sorted alphabetically";
            errors.push(Error::invalid(&at, *next, detail));
        }
    }
}

/// Addresses must be unique.
fn addresses(node: &Value, errors: &mut ErrorList) {
    let path = Path::new("status").child("addresses");
    let all = list(&node["status"], "addresses");
    let mut seen = HashSet::new();
    for (index, address) in all.iter().enumerate() {
        if !seen.insert((text(address, "type"), text(address, "address"))) {
            let shown = format!(
                "{{\"Type\":{},\"Address\":{}}}",
                address["type"], address["address"]
            );
            errors.push(Error::duplicate(&path.index(index), BadValue::raw(shown)));
        }
    }
}

/// Checks a change of a node.
pub(super) fn validate_update(node: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, before, path) = (&node["spec"], &old["spec"], Path::new("spec"));
    validate(node, errors);
    addresses(node, errors);
    if !list(before, "podCIDRs").is_empty() && spec["podCIDRs"] != before["podCIDRs"] {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(Error::forbidden(&path.child("podCIDRs"), detail));
    }
    let provider = text(before, "providerID");
    if !provider.is_empty() && provider != text(spec, "providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.push(Error::forbidden(&path.child("providerID"), detail));
    }
    if text(before, "externalID") != text(spec, "externalID") {
        let detail = "may not be updated";
        errors.push(Error::forbidden(&path.child("externalID"), detail));
    }
}
