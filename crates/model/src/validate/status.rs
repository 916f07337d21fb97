//! The status of ResourceClaims: allocation, consumers and device status.

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::quote::go_json;
use serde_json::Value;

use super::claim::{self, RequestNames};
use super::common::{itself, list, set};
use super::{conditions, meta, names, node_selector, opaque, slice};
use crate::limits;
use crate::shape::tables;
use crate::strategy::{DeviceKey, results};
use crate::view::View;

mod network;

/// Checks a status that replaces that of `old`.
pub(super) fn update(claim: &Value, old: &Value) -> ErrorList {
    let mut errors = meta::object_meta_update(
        claim.at("metadata"),
        old.at("metadata"),
        &Path::new("metadata"),
    );
    let path = Path::new("status");
    let (status, old_status) = (claim.at("status"), old.at("status"));
    let reserved_path = path.child("reservedFor");
    let reserved = status.list("reservedFor");
    errors.extend(set(
        reserved,
        limits::RESERVED_FOR,
        &reserved_path,
        consumer,
        |consumer| Uid(consumer.text("uid").to_owned()),
    ));
    errors.extend(devices(claim, &path.child("devices")));

    let allocated = status.has("allocation");
    if !reserved.is_empty() {
        let deleted = claim.at("metadata").has("deletionTimestamp");
        let added = || {
            reserved
                .iter()
                .any(|entry| !old_status.list("reservedFor").contains(entry))
        };
        if !allocated {
            errors.push(Error::forbidden(
                &reserved_path,
                "may not be specified when `allocated` is not set",
            ));
        } else if deleted && added() {
            let text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.push(Error::forbidden(&reserved_path, text));
        }
    }

    let allocation_path = path.child("allocation");
    let (allocation, old_allocation) = (status.at("allocation"), old_status.at("allocation"));
    match (allocated, old_status.has("allocation")) {
        (true, true) => {
            errors.extend(claim::immutable(
                tables::ALLOCATION,
                allocation,
                old_allocation,
                &allocation_path,
            ));
        }
        // Only a new allocation is validated: the rules are stricter than they once were.
        (true, false) => errors.extend(self::allocation(allocation, claim, &allocation_path)),
        (false, _) => {}
    }
    errors
}

/// A UID shown the way upstream shows values of its UID type.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Uid(String);

impl From<Uid> for BadValue {
    fn from(uid: Uid) -> BadValue {
        BadValue::raw(go_json(&Value::from(uid.0)))
    }
}

impl From<DeviceKey> for BadValue {
    fn from(key: DeviceKey) -> BadValue {
        let text = |text: String| go_json(&Value::from(text));
        BadValue::raw(format!(
            r#"{{"Driver":{},"Pool":{},"Device":{},"ShareID":{}}}"#,
            text(key.driver),
            text(key.pool),
            text(key.device),
            text(key.share)
        ))
    }
}

fn consumer(consumer: &Value, path: &Path) -> ErrorList {
    ["resource", "name", "uid"]
        .into_iter()
        .filter(|key| consumer.text(key).is_empty())
        .map(|key| Error::required(&path.child(key), ""))
        .collect()
}

fn devices(claim: &Value, path: &Path) -> ErrorList {
    let allocated: Vec<_> = results(claim).iter().map(DeviceKey::of).collect();
    let devices = claim.at("status").list("devices");
    set(
        devices,
        usize::MAX,
        path,
        |device, path| self::device(device, &allocated, path),
        DeviceKey::of,
    )
}

fn device(device: &Value, allocated: &[DeviceKey], path: &Path) -> ErrorList {
    let mut errors = names::driver(device.text("driver"), &path.child("driver"));
    errors.extend(names::pool(device.text("pool"), &path.child("pool")));
    errors.extend(names::label(device.text("device"), &path.child("device")));
    if let Some(share) = device.opt_text("shareID") {
        errors.extend(names::uid(share, &path.child("shareID")));
    }
    let key = DeviceKey::of(device);
    if !allocated.contains(&key) {
        errors.push(Error::invalid(
            path,
            key,
            "must be an allocated device in the claim",
        ));
    }
    let conditions = device.list("conditions");
    let conditions_path = path.child("conditions");
    if conditions.len() > limits::DEVICE_CONDITIONS {
        errors.push(Error::too_many(
            &conditions_path,
            conditions.len(),
            limits::DEVICE_CONDITIONS,
        ));
    }
    errors.extend(conditions::conditions(conditions, &conditions_path));
    if device.has("data") {
        errors.extend(opaque::raw_object(
            device.at("data"),
            &path.child("data"),
            false,
        ));
    }
    errors.extend(network_data(
        device.at("networkData"),
        &path.child("networkData"),
    ));
    errors
}

fn network_data(data: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    for (key, max) in [
        ("interfaceName", limits::INTERFACE_NAME),
        ("hardwareAddress", limits::HARDWARE_ADDRESS),
    ] {
        if data.text(key).len() > max {
            errors.push(Error::too_long(&path.child(key), max));
        }
    }
    let check =
        |ip: &Value, path: &Path| network::interface_address(ip.as_str().unwrap_or_default(), path);
    errors.extend(set(
        data.list("ips"),
        limits::NETWORK_IPS,
        &path.child("ips"),
        check,
        itself,
    ));
    errors
}

fn allocation(allocation: &Value, claim: &Value, path: &Path) -> ErrorList {
    let names = RequestNames::of(claim.at("spec").at("devices"));
    let devices = allocation.at("devices");
    let devices_path = path.child("devices");
    let results_path = devices_path.child("results");
    let mut errors = list(
        devices.list("results"),
        limits::ALLOCATION_RESULTS,
        &results_path,
        |item, path| result(item, &names, path),
    );
    let config_path = devices_path.child("config");
    errors.extend(list(
        devices.list("config"),
        limits::ALLOCATION_CONFIGS,
        &config_path,
        |item, path| config(item, &names, path),
    ));
    if allocation.has("nodeSelector") {
        errors.extend(node_selector::node_selector(
            allocation.at("nodeSelector"),
            &path.child("nodeSelector"),
        ));
    }
    errors
}

fn result(result: &Value, names: &RequestNames<'_>, path: &Path) -> ErrorList {
    let mut errors = names.reference(result.text("request"), &path.child("request"));
    errors.extend(names::driver(result.text("driver"), &path.child("driver")));
    errors.extend(names::pool(result.text("pool"), &path.child("pool")));
    errors.extend(names::label(result.text("device"), &path.child("device")));
    errors.extend(slice::binding(result, path));
    // Tolerations are a copy of the request's, which upstream trusts.
    if let Some(share) = result.opt_text("shareID") {
        errors.extend(names::uid(share, &path.child("shareID")));
    }
    errors
}

fn config(config: &Value, names: &RequestNames<'_>, path: &Path) -> ErrorList {
    let source_path = path.child("source");
    let mut errors = match config.text("source") {
        "" => ErrorList::from([Error::required(&source_path, "")]),
        "FromClaim" | "FromClass" => ErrorList::new(),
        source => ErrorList::from([claim::not_supported(
            &source_path,
            source,
            &["FromClaim", "FromClass"],
        )]),
    };
    errors.extend(names.references(config.list("requests"), &path.child("requests")));
    errors.extend(opaque::configuration(config, path, false));
    errors
}
