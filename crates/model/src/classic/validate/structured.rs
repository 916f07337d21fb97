//! The structured parameters of 1.30: named resources, requests for them and filters.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::{reference, several};
use crate::limits;
use crate::validate::{names, slice::is_version};
use crate::view::View;

/// Checks the one-of over models, of which there is only one: `member` must be set.
fn model(
    holder: &Value,
    member: &str,
    path: &Path,
    check: impl Fn(&Value, &Path) -> ErrorList,
) -> ErrorList {
    if holder.has(member) {
        return check(holder.at(member), &path.child(member));
    }
    ErrorList::from([Error::required(
        path,
        "exactly one structured model field must be set",
    )])
}

pub(super) fn slice(slice: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let node = slice.text("nodeName");
    if !node.is_empty() {
        errors.extend(names::subdomain(node, &Path::new("nodeName")));
    }
    errors.extend(names::driver(
        slice.text("driverName"),
        &Path::new("driverName"),
    ));
    errors.extend(model(
        slice,
        "namedResources",
        &Path::root(),
        |resources, path| {
            let path = path.child("instances");
            let mut errors = ErrorList::new();
            let mut seen = BTreeSet::new();
            for (index, instance) in resources.list("instances").iter().enumerate() {
                let path = path.index(index);
                errors.extend(unique_name(instance, &mut seen, &path));
                errors.extend(attributes(
                    instance.list("attributes"),
                    &path.child("attributes"),
                ));
            }
            errors
        },
    ));
    errors
}

/// A subdomain that occurs once.
fn unique_name<'a>(item: &'a Value, seen: &mut BTreeSet<&'a str>, path: &Path) -> ErrorList {
    let name = item.text("name");
    let path = path.child("name");
    let mut errors = names::subdomain(name, &path);
    if !seen.insert(name) {
        errors.push(Error::duplicate(&path, name));
    }
    errors
}

fn attributes(attributes: &[Value], path: &Path) -> ErrorList {
    const VALUES: [&str; 7] = [
        "quantity",
        "bool",
        "int",
        "intSlice",
        "string",
        "stringSlice",
        "version",
    ];
    let mut errors = ErrorList::new();
    let mut seen = BTreeSet::new();
    for (index, attribute) in attributes.iter().enumerate() {
        let path = path.index(index);
        errors.extend(unique_name(attribute, &mut seen, &path));
        let set: Vec<&str> = VALUES
            .into_iter()
            .filter(|key| attribute.has(key))
            .collect();
        if let Some(version) = attribute.opt_text("version")
            && !is_version(version)
        {
            let text = "must be a string compatible with semver.org spec 2.0.0";
            errors.push(Error::invalid(&path.child("version"), version, text));
        }
        match set.len() {
            0 => errors.push(Error::required(&path, "exactly one value must be set")),
            1 => {}
            _ => errors.push(Error::invalid(
                &path,
                several(&set),
                "exactly one field must be set, not several",
            )),
        }
    }
    errors
}

fn selector(resources: &Value, path: &Path) -> ErrorList {
    let path = path.child("selector");
    match resources.text("selector") {
        "" => ErrorList::from([Error::required(&path, "")]),
        expression if expression.len() > limits::CEL_EXPRESSION => {
            ErrorList::from([Error::too_long(&path, limits::CEL_EXPRESSION)])
        }
        expression => match allot_cel::named_resources::compile(expression) {
            Ok(_) => ErrorList::new(),
            Err(error) => ErrorList::from([Error::invalid(&path, expression, error.to_string())]),
        },
    }
}

/// A driver name that occurs once.
fn unique_driver<'a>(item: &'a Value, seen: &mut BTreeSet<&'a str>, path: &Path) -> ErrorList {
    let driver = item.text("driverName");
    let path = path.child("driverName");
    let mut errors = names::driver(driver, &path);
    if !seen.insert(driver) {
        errors.push(Error::duplicate(&path, driver));
    }
    errors
}

pub(super) fn claim_parameters(parameters: &Value) -> ErrorList {
    let mut errors = reference(
        parameters.at("generatedFrom"),
        false,
        &Path::new("generatedFrom"),
    );
    let path = Path::new("driverRequests");
    let mut seen = BTreeSet::new();
    for (index, per_driver) in parameters.list("driverRequests").iter().enumerate() {
        let path = path.index(index);
        errors.extend(unique_driver(per_driver, &mut seen, &path));
        let requests = per_driver.list("requests");
        let path = path.child("requests");
        if requests.is_empty() {
            errors.push(Error::required(
                &path,
                "empty entries with no requests are not allowed",
            ));
        }
        for (index, request) in requests.iter().enumerate() {
            errors.extend(model(
                request,
                "namedResources",
                &path.index(index),
                selector,
            ));
        }
    }
    errors
}

pub(super) fn class_parameters(parameters: &Value) -> ErrorList {
    let mut errors = reference(
        parameters.at("generatedFrom"),
        true,
        &Path::new("generatedFrom"),
    );
    let path = Path::new("filters");
    let mut seen = BTreeSet::new();
    for (index, filter) in parameters.list("filters").iter().enumerate() {
        let path = path.index(index);
        errors.extend(unique_driver(filter, &mut seen, &path));
        errors.extend(model(filter, "namedResources", &path, selector));
    }
    let path = Path::new("vendorParameters");
    let mut seen = BTreeSet::new();
    for (index, vendor) in parameters.list("vendorParameters").iter().enumerate() {
        errors.extend(unique_driver(vendor, &mut seen, &path.index(index)));
    }
    errors
}

/// Checks an allocation of the scheduler of 1.30.
pub(super) fn handle(handle: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let node = handle.text("nodeName");
    if !node.is_empty() {
        errors.extend(names::subdomain(node, &path.child("nodeName")));
    }
    let path = path.child("results");
    for (index, result) in handle.list("results").iter().enumerate() {
        errors.extend(model(
            result,
            "namedResources",
            &path.index(index),
            |named, path| names::subdomain(named.text("name"), &path.child("name")),
        ));
    }
    errors
}
