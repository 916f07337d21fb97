//! The modelled hardware.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, DeviceCapacity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The GPUs of a node: names `gpu-0`, `gpu-1`, …; the UUIDs depend on the node's name and the index only.
pub fn devices(node: &str, count: usize) -> Vec<Device> {
    (0..count).map(|index| device(node, index)).collect()
}

fn device(node: &str, index: usize) -> Device {
    let text = |value: String| DeviceAttribute {
        string: Some(value),
        ..DeviceAttribute::default()
    };
    let attributes = BTreeMap::from([
        (
            "driverVersion".to_owned(),
            DeviceAttribute {
                version: Some("1.0.0".into()),
                ..Default::default()
            },
        ),
        (
            "index".to_owned(),
            DeviceAttribute {
                int: Some(index as i64),
                ..Default::default()
            },
        ),
        ("model".to_owned(), text("LATEST-GPU-MODEL".into())),
        (
            "uuid".to_owned(),
            text(format!("gpu-{}", uuid(node, index))),
        ),
    ]);
    let memory = DeviceCapacity {
        value: Quantity("80Gi".into()),
        ..DeviceCapacity::default()
    };
    Device {
        name: format!("gpu-{index}"),
        attributes: Some(attributes),
        capacity: Some(BTreeMap::from([("memory".to_owned(), memory)])),
        ..Device::default()
    }
}

/// Sixteen bytes that look random: a hash of the name seeds a small generator. Their quality does not matter.
fn uuid(node: &str, index: usize) -> uuid::Uuid {
    let seed = node.bytes().fold(0u64, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    let half = |n: u64| mix(seed.wrapping_add(mix(index as u64 * 2 + n)));
    uuid::Uuid::from_u64_pair(half(0), half(1))
}

/// The finalizer of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}
