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

/// Names and one device of a profile.
fn check_profile(profile: Profile, names: &[&str], name: &str, expected: serde_json::Value) {
    let found = profile.devices("las1");
    let all: Vec<&str> = found.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(all, names);
    let device = found.iter().find(|it| it.name == name).expect("a device");
    let mut device = serde_json::to_value(device).unwrap();
    let attributes = device["attributes"].as_object_mut().unwrap();
    for common in ["uuid", "model", "driverVersion", "index"] {
        assert!(attributes.remove(common).is_some());
    }
    assert_eq!(device, expected);
}

#[test]
fn profiles_are_those_of_the_example_driver() {
    let partitioned = Profile {
        gpus: 1,
        partitions: 3,
        shared: false,
        binding_conditions: false,
    };
    let names = [
        "gpu-0-partition-0",
        "gpu-0-partition-1",
        "gpu-0-partition-2",
        "gpu-0-full",
    ];
    let counters = json!({"memory": {"value": "27306Mi"}, "compute": {"value": "33"}});
    check_profile(
        partitioned,
        &names,
        "gpu-0-partition-1",
        json!({
            "name": "gpu-0-partition-1",
            "attributes": {"partition": {"int": 1}, "partitionable": {"bool": true}},
            "capacity": counters,
            "consumesCounters": [{"counterSet": "gpu-0-counters", "counters": counters}],
        }),
    );
    let shared = Profile {
        gpus: 1,
        partitions: 0,
        shared: true,
        binding_conditions: false,
    };
    let policy = |value: &str, least: &str| {
        let range = json!({"min": least, "max": value, "step": least});
        json!({"value": value, "requestPolicy": {"default": value, "validRange": range}})
    };
    check_profile(
        shared,
        &["gpu-0"],
        "gpu-0",
        json!({
            "name": "gpu-0", "attributes": {}, "allowMultipleAllocations": true,
            "capacity": {"memory": policy("80Gi", "1Gi"), "compute": policy("100", "1")},
        }),
    );
    let pool = Profile {
        gpus: 9,
        ..partitioned
    }
    .pool("las1");
    let sets: Vec<usize> = pool
        .slices
        .iter()
        .map(|it| it.shared_counters.len())
        .collect();
    assert_eq!(sets, [8, 1, 0]);
    let many = Profile {
        partitions: 81,
        ..partitioned
    };
    assert_eq!(
        many.check(),
        Err("a GPU has at most 80 partitions".to_owned())
    );
}

#[test]
fn containers_see_their_share() {
    let result: DeviceRequestAllocationResult = serde_json::from_value(json!({
        "request": "r", "driver": DRIVER_NAME, "pool": "p", "device": "gpu-0-partition-1",
        "consumedCapacity": {"memory": "10Gi", "compute": "5"},
    }))
    .unwrap();
    let mut seen = consumed(&result);
    seen.sort();
    assert_eq!(
        seen,
        [
            "GPU_DEVICE_0_PARTITION_1_COMPUTE=5",
            "GPU_DEVICE_0_PARTITION_1_MEMORY=10Gi"
        ]
    );
    let partitioned = Profile {
        gpus: 1,
        partitions: 2,
        shared: true,
        binding_conditions: true,
    };
    let devices = partitioned.devices("las1").into_iter();
    let gpus = Gpus {
        devices: devices.map(|it| (it.name.clone(), it)).collect(),
        device_status: true,
        status: StatusQueue::default(),
    };
    let status = serde_json::to_value(gpus.status_of(&result)).unwrap();
    let mut names: Vec<_> = status["data"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    names.sort();
    assert_eq!(names, ["driverVersion", "model", "uuid"]);
}

/// The environment of `gpu-2` under these sharing parameters, or the error.
fn check(sharing: serde_json::Value, expected: Result<&[&str], &str>) {
    let mut parameters =
        json!({"apiVersion": "gpu.resource.example.com/v1alpha1", "kind": "GpuConfig"});
    if !sharing.is_null() {
        parameters["sharing"] = sharing;
    }
    match (GpuConfig::parse(&parameters), expected) {
        (Ok(config), Ok(expected)) => assert_eq!(config.environment("gpu-2")[1..], *expected),
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
