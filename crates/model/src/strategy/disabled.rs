//! Dropping fields of disabled features.
//!
//! A field is dropped when its feature is off, unless the stored object already uses the feature: an update must not
//! lose what was accepted before.

use serde_json::Value;

use crate::features::{Feature, Features};
use crate::kind::Kind;
use crate::view::{View, items_mut, remove};

/// Removes the fields of `value` whose features are off and not in use by `old`, which is `None` for a new object.
pub fn drop_disabled_fields(
    kind: Kind,
    value: &mut Value,
    old: Option<&Value>,
    features: &Features,
) {
    match kind {
        Kind::DeviceClass => {
            let drop = disabled(features, &[Feature::DRAExtendedResource], old, |old| {
                old.at("spec").has("extendedResourceName")
            });
            if let (true, Some(spec)) = (drop, value.get_mut("spec")) {
                remove(spec, "extendedResourceName");
            }
        }
        Kind::ResourceClaim => {
            if let Some(spec) = value.get_mut("spec") {
                drop_from_claim_spec(spec, old.map(|old| old.at("spec")), old, features);
            }
            drop_from_claim_status(value, old, features);
        }
        Kind::ResourceClaimTemplate => {
            if let Some(spec) = value.pointer_mut("/spec/spec") {
                drop_from_claim_spec(
                    spec,
                    old.map(|old| old.at("spec").at("spec")),
                    None,
                    features,
                );
            }
        }
        Kind::ResourceSlice => drop_from_slice(value, old, features),
        Kind::DeviceTaintRule | Kind::ResourcePoolStatusRequest => {}
    }
}

fn disabled(
    features: &Features,
    needs: &[Feature],
    old: Option<&Value>,
    in_use: impl Fn(&Value) -> bool,
) -> bool {
    needs.iter().any(|feature| !features.enabled(*feature)) && !old.is_some_and(in_use)
}

fn requests(spec: &Value) -> &[Value] {
    spec.at("devices").list("requests")
}

/// Calls `f` with each part of a request that describes devices: `exactly` and the alternatives.
fn wanted(request: &Value) -> impl Iterator<Item = &Value> {
    request
        .get("exactly")
        .into_iter()
        .chain(request.list("firstAvailable"))
}

fn for_each_wanted(spec: &mut Value, f: impl Fn(&mut Value)) {
    let Some(devices) = spec.get_mut("devices") else {
        return;
    };
    for request in items_mut(devices, "requests") {
        if let Some(exactly) = request.get_mut("exactly") {
            f(exactly);
        }
        items_mut(request, "firstAvailable").for_each(&f);
    }
}

/// `claim` is the stored claim whose status may use a feature, too; templates have none.
fn drop_from_claim_spec(
    spec: &mut Value,
    old: Option<&Value>,
    claim: Option<&Value>,
    features: &Features,
) {
    if disabled(features, &[Feature::DRAPrioritizedList], old, |old| {
        requests(old)
            .iter()
            .any(|request| !request.list("firstAvailable").is_empty())
    }) && let Some(devices) = spec.get_mut("devices")
    {
        items_mut(devices, "requests").for_each(|request| remove(request, "firstAvailable"));
    }
    if disabled(features, &[Feature::DRADeviceTaints], old, |old| {
        requests(old)
            .iter()
            .flat_map(wanted)
            .any(|wanted| !wanted.list("tolerations").is_empty())
    }) {
        for_each_wanted(spec, |wanted| remove(wanted, "tolerations"));
    }
    if disabled(features, &[Feature::DRAAdminAccess], old, uses_admin_access)
        && !claim.is_some_and(status_uses_admin_access)
    {
        for_each_wanted(spec, |wanted| remove(wanted, "adminAccess"));
    }
    if disabled(
        features,
        &[Feature::DRAConsumableCapacity],
        old,
        uses_consumable_capacity,
    ) && !claim.is_some_and(status_uses_consumable_capacity)
    {
        for_each_wanted(spec, |wanted| remove(wanted, "capacity"));
        if let Some(devices) = spec.get_mut("devices") {
            items_mut(devices, "constraints")
                .for_each(|constraint| remove(constraint, "distinctAttribute"));
        }
    }
}

fn uses_admin_access(spec: &Value) -> bool {
    requests(spec)
        .iter()
        .any(|request| request.at("exactly").has("adminAccess"))
}

fn uses_consumable_capacity(spec: &Value) -> bool {
    spec.at("devices")
        .list("constraints")
        .iter()
        .any(|constraint| constraint.has("distinctAttribute"))
        || requests(spec)
            .iter()
            .flat_map(wanted)
            .any(|wanted| wanted.has("capacity"))
}

fn results(claim: &Value) -> &[Value] {
    super::results(claim)
}

fn status_uses_admin_access(claim: &Value) -> bool {
    results(claim)
        .iter()
        .any(|result| result.has("adminAccess"))
}

fn status_uses_consumable_capacity(claim: &Value) -> bool {
    results(claim)
        .iter()
        .any(|result| result.has("shareID") || !result.at("consumedCapacity").is_null())
        || claim
            .at("status")
            .list("devices")
            .iter()
            .any(|device| device.has("shareID"))
}

fn drop_from_claim_status(claim: &mut Value, old: Option<&Value>, features: &Features) {
    let devices = disabled(
        features,
        &[Feature::DRAResourceClaimDeviceStatus],
        old,
        |old| !old.at("status").list("devices").is_empty(),
    );
    let admin_access = disabled(features, &[Feature::DRAAdminAccess], old, |old| {
        uses_admin_access(old.at("spec")) || status_uses_admin_access(old)
    });
    let capacity = disabled(features, &[Feature::DRAConsumableCapacity], old, |old| {
        uses_consumable_capacity(old.at("spec")) || status_uses_consumable_capacity(old)
    });
    let binding = disabled(
        features,
        &[
            Feature::DRADeviceBindingConditions,
            Feature::DRAResourceClaimDeviceStatus,
        ],
        old,
        |old| {
            results(old).iter().any(|result| {
                !result.list("bindingConditions").is_empty()
                    || !result.list("bindingFailureConditions").is_empty()
            }) || old.at("status").at("allocation").has("allocationTimestamp")
        },
    );
    let Some(status) = claim.get_mut("status") else {
        return;
    };
    if devices {
        remove(status, "devices");
    }
    if capacity {
        items_mut(status, "devices").for_each(|device| remove(device, "shareID"));
    }
    let Some(allocation) = status.get_mut("allocation") else {
        return;
    };
    if binding {
        remove(allocation, "allocationTimestamp");
    }
    let Some(devices) = allocation.get_mut("devices") else {
        return;
    };
    for result in items_mut(devices, "results") {
        if admin_access {
            remove(result, "adminAccess");
        }
        if capacity {
            remove(result, "shareID");
            remove(result, "consumedCapacity");
        }
        if binding {
            remove(result, "bindingConditions");
            remove(result, "bindingFailureConditions");
        }
    }
}

const DEVICE_NODE_FIELDS: [&str; 3] = ["nodeName", "nodeSelector", "allNodes"];
const LIST_ATTRIBUTES: [&str; 4] = ["ints", "bools", "strings", "versions"];

fn drop_from_slice(slice: &mut Value, old: Option<&Value>, features: &Features) {
    let old = old.map(|old| old.at("spec"));
    let any_device =
        |spec: &Value, uses: &dyn Fn(&Value) -> bool| spec.list("devices").iter().any(uses);
    let taints = disabled(features, &[Feature::DRADeviceTaints], old, |old| {
        any_device(old, &|device| !device.list("taints").is_empty())
    });
    let partitions = disabled(features, &[Feature::DRAPartitionableDevices], old, |old| {
        !old.list("sharedCounters").is_empty()
            || old.has("perDeviceNodeSelection")
            || any_device(old, &|device| {
                !device.list("consumesCounters").is_empty()
                    || DEVICE_NODE_FIELDS.iter().any(|key| device.has(key))
            })
    });
    let binding = disabled(
        features,
        &[
            Feature::DRADeviceBindingConditions,
            Feature::DRAResourceClaimDeviceStatus,
        ],
        old,
        |old| {
            any_device(old, &|device| {
                !device.list("bindingConditions").is_empty()
                    || !device.list("bindingFailureConditions").is_empty()
                    || device.has("bindsToNode")
            })
        },
    );
    let consumable = disabled(features, &[Feature::DRAConsumableCapacity], old, |old| {
        any_device(old, &|device| {
            device.has("allowMultipleAllocations")
                || device
                    .entries("capacity")
                    .iter()
                    .any(|(_, capacity)| capacity.has("requestPolicy"))
        })
    });
    let allocatable = disabled(
        features,
        &[Feature::DRANodeAllocatableResources],
        old,
        |old| {
            any_device(old, &|device| {
                device.entries("nodeAllocatableResourceMappings").len() > 0
            })
        },
    );
    let lists = disabled(features, &[Feature::DRAListTypeAttributes], old, |old| {
        any_device(old, &|device| {
            device
                .entries("attributes")
                .iter()
                .any(|(_, attribute)| LIST_ATTRIBUTES.iter().any(|key| attribute.has(key)))
        })
    });

    let Some(spec) = slice.get_mut("spec") else {
        return;
    };
    if partitions {
        remove(spec, "sharedCounters");
        remove(spec, "perDeviceNodeSelection");
    }
    for device in items_mut(spec, "devices") {
        let mut drop = |condition: bool, keys: &[&str]| {
            if condition {
                keys.iter().for_each(|key| remove(device, key));
            }
        };
        drop(taints, &["taints"]);
        drop(partitions, &["consumesCounters"]);
        drop(partitions, &DEVICE_NODE_FIELDS);
        drop(
            binding,
            &[
                "bindingConditions",
                "bindingFailureConditions",
                "bindsToNode",
            ],
        );
        drop(consumable, &["allowMultipleAllocations"]);
        drop(allocatable, &["nodeAllocatableResourceMappings"]);
        let members = |device: &mut Value, key: &str, strip: &[&str]| {
            for (_, member) in device
                .get_mut(key)
                .and_then(Value::as_object_mut)
                .into_iter()
                .flatten()
            {
                strip.iter().for_each(|key| remove(member, key));
            }
        };
        if consumable {
            members(device, "capacity", &["requestPolicy"]);
        }
        if lists {
            members(device, "attributes", &LIST_ATTRIBUTES);
        }
    }
}
