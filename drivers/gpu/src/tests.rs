use serde_json::json;

use super::*;

#[test]
fn devices_have_the_documented_attributes_and_stay_the_same() {
    let found = devices("las1", 8);
    assert_eq!(found, devices("las1", 8));
    assert_ne!(found, devices("las2", 8));
    assert_eq!(found.len(), 8);
    let device = serde_json::to_value(&found[3]).unwrap();
    let uuid = device["attributes"]["uuid"]["string"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(uuid.len(), "gpu-94011f0b-8dcd-b4b0-cd99-40eab2e3c96a".len());
    assert_eq!(
        device,
        json!({
            "name": "gpu-3",
            "attributes": {
                "driverVersion": {"version": "1.0.0"},
                "index": {"int": 3},
                "model": {"string": "LATEST-GPU-MODEL"},
                "uuid": {"string": uuid},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        })
    );
    let unique: std::collections::BTreeSet<String> = found
        .iter()
        .map(|d| {
            d.attributes.as_ref().unwrap()["uuid"]
                .string
                .clone()
                .unwrap()
        })
        .collect();
    assert_eq!(unique.len(), 8);
}

/// The environment of `gpu-2` under these sharing parameters, or the error.
fn check(sharing: serde_json::Value, expected: Result<&[&str], &str>) {
    let mut parameters =
        json!({"apiVersion": "gpu.resource.example.com/v1alpha1", "kind": "GpuConfig"});
    if !sharing.is_null() {
        parameters["sharing"] = sharing;
    }
    match (GpuConfig::parse(&parameters), expected) {
        (Ok(config), Ok(expected)) => assert_eq!(config.environment(2, "gpu-2")[1..], *expected),
        (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
        (got, _) => panic!("{got:?}"),
    }
}

#[test]
fn parameters_become_environment() {
    let slicing = [
        "GPU_DEVICE_2_SHARING_STRATEGY=TimeSlicing",
        "GPU_DEVICE_2_TIMESLICE_INTERVAL=Default",
    ];
    check(json!(null), Ok(&slicing));
    check(json!({"strategy": "TimeSlicing"}), Ok(&slicing));
    check(
        json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}),
        Ok(&[
            "GPU_DEVICE_2_SHARING_STRATEGY=TimeSlicing",
            "GPU_DEVICE_2_TIMESLICE_INTERVAL=Long",
        ]),
    );
    check(
        json!({"strategy": "SpacePartitioning", "spacePartitioningConfig": {"partitionCount": 10}}),
        Ok(&[
            "GPU_DEVICE_2_SHARING_STRATEGY=SpacePartitioning",
            "GPU_DEVICE_2_PARTITION_COUNT=10",
        ]),
    );
    check(json!({"strategy": "Magic"}), Err("unknown variant"));
    check(
        json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Never"}}),
        Err("unknown variant"),
    );
    check(
        json!({"strategy": "TimeSlicing", "surprise": 1}),
        Err("unknown field"),
    );
    check(
        json!({"strategy": "SpacePartitioning", "spacePartitioningConfig": {"partitionCount": 0}}),
        Err("must be at least 1"),
    );
    let error = GpuConfig::parse(&json!({"apiVersion": "v1", "kind": "Pod"})).unwrap_err();
    assert!(
        error.to_string().contains("no kind \"Pod\" is registered"),
        "{error}"
    );
}
