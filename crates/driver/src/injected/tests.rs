use serde_json::json;

use super::*;

fn devices(count: usize) -> Resources {
    let devices = (0..count).map(|index| Device {
        name: format!("led-{index}"),
        ..Device::default()
    });
    Resources::pool("node-0", Pool::new(devices))
}

fn failures(text: serde_json::Value) -> Failures {
    serde_json::from_value(text).expect("failures")
}

/// Names of the published devices, each with the effect of its taint.
fn published(resources: &Resources) -> Vec<String> {
    let slices = &resources.pools["node-0"].slices;
    let devices = slices.iter().flat_map(|slice| &slice.devices);
    devices
        .map(|device| match device.taints.as_deref() {
            Some([taint]) => format!("{} {}={}", device.name, taint.key, taint.effect),
            _ => device.name.clone(),
        })
        .collect()
}

fn reports(list: &[DeviceHealth]) -> Vec<(&str, Health, &str)> {
    let reports = list.iter();
    reports
        .map(|it| (it.device.as_str(), it.health, it.message.as_str()))
        .collect()
}

#[test]
fn failed_devices_are_tainted_or_gone() {
    let failures = failures(json!({
        "led-0": {"taint": "NoSchedule"},
        "led-1": {"unplugged": true},
        "led-2": {"unhealthy": "hot"},
        "led-3": {"taint": "Sometimes"},
        "led-9": {"taint": "NoExecute"},
    }));
    assert_eq!(
        published(&apply(&devices(5), &failures)),
        [
            "led-0 allot.dev/hardware-failed=NoSchedule",
            "led-2",
            "led-3",
            "led-4"
        ]
    );
    let many = apply(&devices(128), &failures);
    let sizes = many.pools["node-0"].slices.iter();
    assert_eq!(
        sizes.map(|slice| slice.devices.len()).collect::<Vec<_>>(),
        [64, 63]
    );
    assert_eq!(apply(&devices(3), &Failures::default()), devices(3));
}

#[test]
fn failed_devices_are_unhealthy() {
    let failures = failures(json!({
        "led-0": {"taint": "NoSchedule"},
        "led-1": {"unplugged": true},
        "led-2": {"unhealthy": "hot"},
    }));
    assert_eq!(
        reports(&health(&devices(3), None, &failures, 7)),
        [
            ("led-0", Health::Healthy, ""),
            ("led-1", Health::Unhealthy, "unplugged"),
            ("led-2", Health::Unhealthy, "hot"),
        ]
    );
    let long = "é".repeat(600);
    assert_eq!(shortened(&long), "é".repeat(512));
    // A driver that reports by itself is believed about the others.
    let own = ["led-0", "led-2"].map(|device| DeviceHealth {
        pool: "node-0".into(),
        device: device.into(),
        health: Health::Unknown,
        message: "asleep".into(),
        ..DeviceHealth::default()
    });
    assert_eq!(
        reports(&health(&devices(4), Some(own.into()), &failures, 7)),
        [
            ("led-0", Health::Unknown, "asleep"),
            ("led-1", Health::Unhealthy, "unplugged"),
            ("led-2", Health::Unhealthy, "hot"),
        ]
    );
}

#[test]
fn an_annotation_is_for_several_drivers_and_may_be_wrong() {
    let of = |text: &str| {
        let mut node = PartialObjectMeta::<Node>::default();
        let annotations = BTreeMap::from([(INJECTED_FAILURES.to_owned(), text.to_owned())]);
        node.metadata.annotations = Some(annotations);
        of_node(&node, "leds.example.com")
    };
    let other = r#"{"fans.example.com": {"fan-0": {"unplugged": true}}}"#;
    assert_eq!(of(other), Failures::default());
    let own = r#"{"leds.example.com": {"led-0": {"unhealthy": "hot", "later": 1}}}"#;
    assert_eq!(of(own), failures(json!({"led-0": {"unhealthy": "hot"}})));
    for wrong in ["", "[]", "{\"leds.example.com\": 1}", &"[".repeat(100_000)] {
        assert_eq!(of(wrong), Failures::default());
    }
    assert_eq!(
        of_node(&PartialObjectMeta::default(), "leds.example.com"),
        Failures::default()
    );
}
