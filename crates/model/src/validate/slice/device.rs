//! Validation of a device of a ResourceSlice.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use regex::Regex;
use serde_json::Value;

use super::super::common::{list, map, set};
use super::super::{capacity, names, node_selector, taint};
use super::SHOWN_KEY;
use crate::features::{Features, Release};
use crate::limits;
use crate::shape::{self, tables};
use crate::view::{Entries, View, texts};

const LIST_VALUES: [&str; 4] = ["bools", "ints", "strings", "versions"];

/// Whether a device uses a feature that lowers the limit of devices in a slice.
pub(super) fn is_advanced(device: &Value) -> bool {
    !device.list("taints").is_empty()
        || !device.list("consumesCounters").is_empty()
        || device
            .entries("attributes")
            .iter()
            .any(|(_, attribute)| LIST_VALUES.iter().any(|key| attribute.has(key)))
}

pub(super) fn device(
    device: &Value,
    old: Option<&Value>,
    per_device: bool,
    features: &Features,
    path: &Path,
) -> ErrorList {
    let mut errors = names::label(device.text("name"), &path.child("name"));
    let (attributes, capacities) = (device.entries("attributes"), device.entries("capacity"));
    let members = attributes.len() + capacities.len();
    if members > limits::ATTRIBUTES_AND_CAPACITIES {
        let text = format!(
            "the total number of attributes and capacities must not exceed {}",
            limits::ATTRIBUTES_AND_CAPACITIES
        );
        errors.push(Error::invalid(path, members, text));
    }
    let values = attributes
        .iter()
        .map(|(_, attribute)| attribute_values(attribute))
        .sum::<usize>();
    if values > limits::ATTRIBUTE_VALUES {
        let text = format!(
            "the total number of attribute values must not exceed {}",
            limits::ATTRIBUTE_VALUES
        );
        errors.push(Error::invalid(path, values, text));
    }
    errors.extend(map(
        attributes,
        usize::MAX,
        SHOWN_KEY,
        &path.child("attributes"),
        names::qualified,
        attribute,
    ));

    let unchanged =
        |key: &str, ty| old.is_some_and(|old| shape::equal(ty, old.at(key), device.at(key)));
    let shared = device.opt_bool("allowMultipleAllocations") == Some(true);
    // Since 1.37, values that were accepted once stay acceptable.
    if features.release() < Release::new(37) || !unchanged("capacity", tables::CAPACITY) {
        let check = |item: &Value, path: &Path| capacity::capacity(item, shared, features, path);
        errors.extend(map(
            capacities,
            usize::MAX,
            SHOWN_KEY,
            &path.child("capacity"),
            names::qualified,
            check,
        ));
    }
    if !unchanged("taints", tables::TAINTS) {
        let check = |item: &Value, path: &Path| taint::taint(item, None, path);
        errors.extend(list(
            device.list("taints"),
            limits::TAINTS,
            &path.child("taints"),
            check,
        ));
    }
    errors.extend(set(
        device.list("consumesCounters"),
        limits::COUNTER_CONSUMPTIONS,
        &path.child("consumesCounters"),
        |item, path| counters(item, "counterSet", limits::COUNTERS_PER_CONSUMPTION, path),
        |item| item.text("counterSet").to_owned(),
    ));
    errors.extend(device_nodes(device, per_device, path));
    errors.extend(binding(device, path));
    let mappings = device.entries("nodeAllocatableResourceMappings");
    errors.extend(node_allocatable(
        mappings,
        capacities,
        &path.child("nodeAllocatableResourceMappings"),
    ));
    errors
}

/// The number of values for which an attribute counts.
fn attribute_values(attribute: &Value) -> usize {
    LIST_VALUES
        .iter()
        .map(|key| attribute.list(key).len())
        .sum::<usize>()
        .max(1)
}

/// Matches versions of semver.org 2.0.0.
static SEMVER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    const NUMBER: &str = r"(0|[1-9][0-9]*)";
    const PRE: &str = r"(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)";
    const BUILD: &str = "[0-9a-zA-Z-]+";
    Regex::new(&format!(
        r"^{NUMBER}\.{NUMBER}\.{NUMBER}(-{PRE}(\.{PRE})*)?(\+{BUILD}(\.{BUILD})*)?$"
    ))
    .ok()
});

fn attribute(attribute: &Value, path: &Path) -> ErrorList {
    const ONE: &str = "exactly one value must be specified";
    let mut errors = ErrorList::new();
    let mut fields = ["bool", "int"]
        .iter()
        .filter(|key| attribute.has(key))
        .count();
    if let Some(text) = attribute.opt_text("string") {
        fields += 1;
        errors.extend(text_value(text, &path.child("string")));
    }
    if let Some(text) = attribute.opt_text("version") {
        fields += 1;
        errors.extend(version_value(text, &path.child("version")));
    }
    for key in LIST_VALUES.into_iter().filter(|key| attribute.has(key)) {
        fields += 1;
        let path = path.child(key);
        let values = attribute.list(key);
        if values.is_empty() {
            errors.push(Error::invalid(
                &path,
                BadValue::raw("[]"),
                "must not be empty if specified",
            ));
        }
        for (index, text) in texts(values).enumerate() {
            match key {
                "strings" => errors.extend(text_value(text, &path.index(index))),
                "versions" => errors.extend(version_value(text, &path.index(index))),
                _ => {}
            }
        }
    }
    match fields {
        0 => errors.push(Error::invalid(path, "", ONE)),
        1 => {}
        _ => {
            let shown = BadValue::raw(shape::quote(tables::ATTRIBUTE, attribute));
            errors.push(Error::invalid(path, shown, ONE));
        }
    }
    errors
}

fn text_value(text: &str, path: &Path) -> Option<Error> {
    (text.len() > limits::ATTRIBUTE_VALUE).then(|| Error::too_long(path, limits::ATTRIBUTE_VALUE))
}

/// Whether a text is a version of semver.org 2.0.0.
pub(crate) fn is_version(text: &str) -> bool {
    SEMVER.as_ref().is_some_and(|semver| semver.is_match(text))
}

fn version_value(text: &str, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    if !is_version(text) {
        errors.push(Error::invalid(
            path,
            text,
            "must be a string compatible with semver.org spec 2.0.0",
        ));
    }
    errors.extend(text_value(text, path));
    errors
}

/// Checks a counter set, or the counters that a device consumes from one; `name` is the field that names the set.
pub(super) fn counters(item: &Value, name: &str, max: usize, path: &Path) -> ErrorList {
    let name_path = path.child(name);
    let mut errors = match item.text(name) {
        "" => ErrorList::from([Error::required(&name_path, "")]),
        text => names::label(text, &name_path),
    };
    let counters = item.entries("counters");
    let counters_path = path.child("counters");
    if counters.len() == 0 {
        errors.push(Error::required(&counters_path, ""));
    } else {
        let any = |_: &Value, _: &Path| ErrorList::new();
        errors.extend(map(
            counters,
            max,
            limits::DNS_LABEL,
            &counters_path,
            names::label,
            any,
        ));
    }
    errors
}

/// Exactly one of three fields selects the nodes of a device, if the slice leaves that to its devices.
fn device_nodes(device: &Value, per_device: bool, path: &Path) -> ErrorList {
    const CHOICE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let mut errors = ErrorList::new();
    if !per_device {
        if ["nodeName", "nodeSelector", "allNodes"]
            .iter()
            .any(|key| device.has(key))
        {
            let text = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.push(Error::invalid(path, &Value::Null, text));
        }
        return errors;
    }
    let mut set = Vec::with_capacity(3);
    match device.opt_text("nodeName") {
        Some("") => errors.push(Error::invalid(
            &path.child("nodeName"),
            "",
            "must not be empty",
        )),
        Some(name) => {
            set.push("`nodeName`");
            errors.extend(names::subdomain(name, &path.child("nodeName")));
        }
        None => {}
    }
    if device.has("nodeSelector") {
        set.push("`nodeSelector`");
        let (selector, path) = (device.at("nodeSelector"), path.child("nodeSelector"));
        errors.extend(node_selector::node_selector(selector, &path));
        // Upstream's documentation allows one term; its validation accepts several, which no allocator can use.
        if selector.list("nodeSelectorTerms").len() > 1 {
            errors.push(super::not_one_term(selector, &path));
        }
    }
    match device.opt_bool("allNodes") {
        Some(true) => set.push("`allNodes`"),
        Some(false) => {
            errors.push(Error::invalid(
                &path.child("allNodes"),
                false,
                "must be either unset or set to true",
            ));
        }
        None => {}
    }
    match set.len() {
        0 => errors.push(Error::required(path, CHOICE)),
        1 => {}
        _ => errors.push(Error::invalid(
            path,
            format!("{{{}}}", set.join(", ")),
            CHOICE,
        )),
    }
    errors
}

/// Checks the binding conditions of a device or of an allocation result.
pub(in super::super) fn binding(holder: &Value, path: &Path) -> ErrorList {
    let (conditions, failures) = (
        holder.list("bindingConditions"),
        holder.list("bindingFailureConditions"),
    );
    let (conditions_path, failures_path) = (
        path.child("bindingConditions"),
        path.child("bindingFailureConditions"),
    );
    let check =
        |item: &Value, path: &Path| names::label_name(item.as_str().unwrap_or_default(), path);
    let mut errors = list(
        conditions,
        limits::BINDING_CONDITIONS,
        &conditions_path,
        check,
    );
    errors.extend(list(
        failures,
        limits::BINDING_FAILURE_CONDITIONS,
        &failures_path,
        check,
    ));
    // These run even when there are too many.
    let all: BTreeSet<&str> = texts(conditions).collect();
    for (items, path) in [(conditions, &conditions_path), (failures, &failures_path)] {
        let mut seen = BTreeSet::new();
        for (index, text) in texts(items).enumerate() {
            if !seen.insert(text) {
                errors.push(Error::duplicate(&path.index(index), text));
            }
            if path == &failures_path && all.contains(text) {
                let detail = "bindingFailureConditions must not overlap with bindingConditions";
                errors.push(Error::invalid(&path.index(index), text, detail));
            }
        }
    }
    let missing = |key: &str| BadValue::raw(if holder.has(key) { "[]" } else { "null" });
    if conditions.is_empty() && !failures.is_empty() {
        let text = "bindingConditions are required to use bindingFailureConditions";
        errors.push(Error::invalid(
            &conditions_path,
            missing("bindingConditions"),
            text,
        ));
    }
    if failures.is_empty() && !conditions.is_empty() {
        let text = "bindingFailureConditions are required to use bindingConditions";
        errors.push(Error::invalid(
            &failures_path,
            missing("bindingFailureConditions"),
            text,
        ));
    }
    errors
}

/// Resources of a node that a device can account for.
fn is_node_allocatable(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
}

fn node_allocatable(mappings: Entries<'_>, capacities: Entries<'_>, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    for (name, mapping) in mappings.iter() {
        let path = path.key(name);
        if !is_node_allocatable(name) {
            let shown = BadValue::raw(allot_apimachinery::quote::go_json(&Value::from(name)));
            errors.push(Error::invalid(
                &path,
                shown,
                "must be a node allocatable resource name",
            ));
        }
        let key_path = path.child("capacityKey");
        match mapping.opt_text("capacityKey") {
            Some("") => errors.push(Error::invalid(
                &key_path,
                "",
                "capacityKey must not be an empty string",
            )),
            Some(key) if !capacities.contains(key) => {
                let shown = BadValue::raw(allot_apimachinery::quote::go_json(&Value::from(key)));
                errors.push(Error::not_found(&key_path, shown));
            }
            Some(_) => {}
            None if !mapping.has("allocationMultiplier") => {
                let text = "at least one of allocationMultiplier or capacityKey must be set";
                errors.push(Error::invalid(&path, "", text));
            }
            None => {}
        }
        if let Some(multiplier) = shape::quantity(mapping.at("allocationMultiplier"))
            && !capacity::is_positive(&multiplier)
        {
            let path = path.child("allocationMultiplier");
            errors.push(Error::invalid(
                &path,
                multiplier.to_string(),
                "must be positive",
            ));
        }
    }
    errors
}
