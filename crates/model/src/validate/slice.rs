//! ResourceSlices: pools, devices, attributes, counters.

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names as rules;
use serde_json::Value;

mod device;

pub(super) use device::binding;
pub(crate) use device::is_version;
use device::{counters, device, is_advanced};

use super::common::set;
use super::{meta, names, node_selector};
use crate::features::Features;
use crate::limits;
use crate::shape::{self, tables};
use crate::view::View;

/// Keys of attributes and capacities are shortened in paths beyond this length.
const SHOWN_KEY: usize = limits::QUALIFIED_DOMAIN + 1 + limits::QUALIFIED_IDENTIFIER;

pub(super) fn create(slice: &Value, features: &Features) -> ErrorList {
    let mut errors = meta::object_meta(
        slice.at("metadata"),
        false,
        rules::dns1123_subdomain,
        &Path::new("metadata"),
    );
    errors.extend(spec(slice.at("spec"), None, features));
    errors
}

pub(super) fn update(slice: &Value, old: &Value, features: &Features) -> ErrorList {
    let mut errors = meta::object_meta_update(
        slice.at("metadata"),
        old.at("metadata"),
        &Path::new("metadata"),
    );
    errors.extend(spec(slice.at("spec"), Some(old.at("spec")), features));
    errors
}

fn spec(spec: &Value, old: Option<&Value>, features: &Features) -> ErrorList {
    let path = Path::new("spec");
    let mut errors = names::driver(spec.text("driver"), &path.child("driver"));
    errors.extend(pool(spec.at("pool"), &path.child("pool")));
    if let Some(old) = old {
        let mut immutable = |new: BadValue, same: bool, path: Path| {
            if !same {
                errors.push(Error::invalid(&path, new, "field is immutable"));
            }
        };
        let name = |spec: &Value| spec.at("pool").text("name").to_owned();
        let (new_name, old_name) = (name(spec), name(old));
        let same = new_name == old_name;
        immutable(new_name.into(), same, path.child("pool").child("name"));
        let driver = spec.text("driver");
        immutable(
            driver.into(),
            driver == old.text("driver"),
            path.child("driver"),
        );
        // Here none is not the same as an empty one.
        let node = spec.at("nodeName");
        immutable(
            node.into(),
            node == old.at("nodeName"),
            path.child("nodeName"),
        );
    }
    errors.extend(node_choice(spec, &path));
    if spec.has("sharedCounters") && spec.has("devices") {
        errors.push(Error::invalid(
            &path,
            "",
            "only one of `sharedCounters` or `devices` is allowed",
        ));
    }
    let devices = spec.list("devices");
    let max = if devices.iter().any(is_advanced) {
        limits::DEVICES_ADVANCED
    } else {
        limits::DEVICES
    };
    let per_device = spec.opt_bool("perDeviceNodeSelection") == Some(true);
    errors.extend(set(
        devices,
        max,
        &path.child("devices"),
        |device, path| {
            let name = device.text("name");
            let old = old.and_then(|old| {
                old.list("devices")
                    .iter()
                    .find(|old| old.text("name") == name)
            });
            self::device(device, old, per_device, features, path)
        },
        |device| device.text("name").to_owned(),
    ));
    let counters_path = path.child("sharedCounters");
    errors.extend(set(
        spec.list("sharedCounters"),
        limits::COUNTER_SETS,
        &counters_path,
        |item, path| counters(item, "name", limits::COUNTERS_PER_SET, path),
        |item| item.text("name").to_owned(),
    ));
    errors
}

fn pool(pool: &Value, path: &Path) -> ErrorList {
    let mut errors = names::pool(pool.text("name"), &path.child("name"));
    let count = pool.int("resourceSliceCount");
    if count <= 0 {
        errors.push(Error::invalid(
            &path.child("resourceSliceCount"),
            count,
            "must be greater than zero",
        ));
    }
    let generation = pool.int("generation");
    if generation < 0 {
        let text = "must be greater than or equal to zero";
        errors.push(Error::invalid(&path.child("generation"), generation, text));
    }
    errors
}

/// The error of a node selector that has not exactly one term.
fn not_one_term(selector: &Value, path: &Path) -> Error {
    let terms = selector.at("nodeSelectorTerms");
    let shown = BadValue::raw(shape::quote(tables::NODE_SELECTOR_TERMS, terms));
    let text = "must have exactly one node selector term";
    Error::invalid(&path.child("nodeSelectorTerms"), shown, text)
}

/// Exactly one of four fields selects the nodes of the devices.
fn node_choice(spec: &Value, path: &Path) -> ErrorList {
    const CHOICE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut errors = ErrorList::new();
    let mut set = Vec::with_capacity(4);
    match spec.opt_text("nodeName") {
        Some("") => {
            let text = "must be either unset or set to a non-empty string";
            errors.push(Error::invalid(&path.child("nodeName"), "", text));
        }
        Some(name) => {
            set.push("`nodeName`");
            errors.extend(names::subdomain(name, &path.child("nodeName")));
        }
        None => {}
    }
    if spec.has("nodeSelector") {
        set.push("`nodeSelector`");
        let selector = spec.at("nodeSelector");
        let selector_path = path.child("nodeSelector");
        errors.extend(node_selector::node_selector(selector, &selector_path));
        if selector.list("nodeSelectorTerms").len() != 1 {
            errors.push(not_one_term(selector, &selector_path));
        }
    }
    for (key, shown) in [
        ("allNodes", "`allNodes`"),
        ("perDeviceNodeSelection", "`perDeviceNodeSelection`"),
    ] {
        match spec.opt_bool(key) {
            Some(true) => set.push(shown),
            Some(false) => {
                errors.push(Error::invalid(
                    &path.child(key),
                    false,
                    "must be either unset or set to true",
                ));
            }
            None => {}
        }
    }
    match set.len() {
        0 => errors.push(Error::required(path, CHOICE)),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", set.join(", "));
            errors.push(Error::invalid(
                path,
                shown,
                format!("{CHOICE}, but multiple fields are set"),
            ));
        }
    }
    errors
}
