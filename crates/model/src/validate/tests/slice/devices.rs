//! The devices of a slice.

use super::*;

#[test]
fn device_names_are_unique_labels() {
    check(
        &[(
            "/spec/devices",
            json!([{"name": "A"}, {"name": "b"}, {"name": "b"}]),
        )],
        &[
            r#"spec.devices[0].name: Invalid value: "A": LABEL"#,
            r#"spec.devices[2]: Duplicate value: "b""#,
        ],
    );
}

#[test]
fn attributes_have_one_value() {
    let attribute =
        |value: Value, expected: &[&str]| device(&[("attributes", json!({"a": value}))], expected);
    attribute(
        json!({}),
        &[r#".attributes[a]: Invalid value: "": exactly one value must be specified"#],
    );
    attribute(
        json!({"int": 1, "string": "<"}),
        &[
            r#".attributes[a]: Invalid value: {"IntValue":1,"BoolValue":null,"StringValue":"\u003c","VersionValue":null,"IntValues":null,"BoolValues":null,"StringValues":null,"VersionValues":null}: exactly one value must be specified"#,
        ],
    );
    attribute(
        json!({"ints": []}),
        &[".attributes[a].ints: Invalid value: []: must not be empty if specified"],
    );
    attribute(
        json!({"string": "x".repeat(65)}),
        &[".attributes[a].string: Too long: may not be more than 64 bytes"],
    );
    attribute(
        json!({"versions": ["1.0.0", "v1"]}),
        &[
            r#".attributes[a].versions[1]: Invalid value: "v1": must be a string compatible with semver.org spec 2.0.0"#,
        ],
    );
    for version in ["0.0.0", "1.2.3-alpha.1+build.5", "10.20.30"] {
        attribute(json!({"version": version}), &[]);
    }
    for version in ["1", "1.2", "01.0.0", "1.0.0-01", "1.0.0\n", ""] {
        let errors = create(
            Kind::ResourceSlice,
            &edited(
                slice(),
                &[(
                    "/spec/devices/0/attributes",
                    json!({"a": {"version": version}}),
                )],
            ),
        );
        assert_eq!(errors.len(), 1, "{version:?}");
    }
}

#[test]
fn members_and_values_are_counted() {
    let attributes = |count: usize, value: Value| {
        (0..count)
            .map(|index| (format!("a{index}"), value.clone()))
            .collect::<serde_json::Map<_, _>>()
    };
    device(
        &[("attributes", Value::from(attributes(32, json!({"int": 1}))))],
        &[": Invalid value: 33: the total number of attributes and capacities must not exceed 32"],
    );
    device(
        &[(
            "attributes",
            Value::from(attributes(7, json!({"ints": [1, 2, 3, 4, 5, 6, 7]}))),
        )],
        &[": Invalid value: 49: the total number of attribute values must not exceed 48"],
    );
}

#[test]
fn long_keys_are_shortened_in_paths() {
    let key = format!("{}/{}", "d".repeat(63), "i".repeat(40));
    let shown = format!("{}...{}/{}", "d".repeat(47), "d".repeat(5), "i".repeat(40));
    device(
        &[("attributes", json!({key: {}}))],
        &[
            ".attributes: Too long: may not be more than 32 bytes",
            &format!(
                r#".attributes[{shown}]: Invalid value: "": exactly one value must be specified"#
            ),
        ],
    );
}

#[test]
fn policies_fit_the_capacity() {
    let policy = |policy: Value, expected: &[&str]| {
        let expected: Vec<_> = expected
            .iter()
            .map(|text| format!(".capacity[m].requestPolicy{text}"))
            .collect();
        device(
            &[
                ("allowMultipleAllocations", json!(true)),
                (
                    "capacity",
                    json!({"m": {"value": "10", "requestPolicy": policy}}),
                ),
            ],
            &expected.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    };
    policy(json!({}), &[]);
    policy(json!({"default": "1", "validValues": ["1", "2"]}), &[]);
    policy(
        json!({"default": "4", "validRange": {"min": "2", "max": "8", "step": "2"}}),
        &[],
    );
    policy(
        json!({"validValues": ["1"], "validRange": {}}),
        &[
            r#": Forbidden: exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time"#,
        ],
    );
    policy(
        json!({"validValues": ["1"]}),
        &[".default: Required value: required when validValues is defined"],
    );
    policy(
        json!({"validRange": {}}),
        &[".default: Required value: required when validRange is defined"],
    );
    policy(
        json!({"default": "1", "validRange": {}}),
        &[".validRange.min: Required value: required when validRange is defined"],
    );
    policy(
        json!({"default": "3", "validValues": ["2", "1", "1", "11"]}),
        &[
            r#".validValues[1]: Invalid value: "1": values must be sorted in ascending order"#,
            r#".validValues[3]: Invalid value: "11": option is larger than capacity value: 10"#,
            r#".validValues[2]: Duplicate value: "1""#,
            r#".validValues: Invalid value: "3": default value is not valid according to the requestPolicy"#,
        ],
    );
    policy(
        json!({"default": "1", "validRange": {"min": "5", "max": "3", "step": "20"}}),
        &[
            r#".validRange.min: Invalid value: "1": default is less than min: 5"#,
            r#".validRange.max: Invalid value: "5": min is larger than max: 3"#,
            r#".validRange.step: Invalid value: "20": one step 25 is larger than capacity value: 10"#,
            r#".validRange.step: Invalid value: "1": value is not a multiple of a given step (20) from (5)"#,
            r#".validRange.step: Invalid value: "3": value is not a multiple of a given step (20) from (5)"#,
        ],
    );
    // A step of zero reaches nothing but the minimum; upstream would crash.
    policy(
        json!({"default": "2", "validRange": {"min": "2", "step": "0"}}),
        &[],
    );
    policy(
        json!({"default": "3", "validRange": {"min": "2", "step": "0"}}),
        &[
            r#".validRange.step: Invalid value: "3": value is not a multiple of a given step (0) from (2)"#,
        ],
    );
}

#[test]
fn only_shared_devices_have_policies() {
    device(
        &[(
            "capacity",
            json!({"m": {"value": "1", "requestPolicy": {}}}),
        )],
        &[".capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true"],
    );
}

#[test]
fn taints_are_well_formed() {
    device(
        &[(
            "taints",
            json!([{"key": "", "value": "a b", "effect": "Evict"}, {"key": "k"}]),
        )],
        &[
            r#".taints[0].key: Invalid value: "": name part must be non-empty"#,
            r#".taints[0].key: Invalid value: "": QUALIFIED"#,
            r#".taints[0].value: Invalid value: "a b": VALUE"#,
            r#".taints[0].effect: Unsupported value: "Evict": supported values: "NoExecute", "NoSchedule", "None""#,
            ".taints[1].effect: Required value",
        ],
    );
    device(
        &[("taints", repeated(&json!({}), 17))],
        &[".taints: Too many: 17: must have at most 16 items"],
    );
}

#[test]
fn consumption_names_sets_and_counters() {
    let consumes =
        |items: Value, expected: &[&str]| device(&[("consumesCounters", items)], expected);
    let item = json!({"counterSet": "c", "counters": {"x": {"value": "1"}}});
    consumes(json!([item]), &[]);
    consumes(
        json!([item, item]),
        &[r#".consumesCounters[1]: Duplicate value: "c""#],
    );
    consumes(
        json!([item, item, item]),
        &[".consumesCounters: Too many: 3: must have at most 2 items"],
    );
    consumes(
        json!([{"counters": {"X": {}}}]),
        &[
            ".consumesCounters[0].counterSet: Required value",
            r#".consumesCounters[0].counters: Invalid value: "X": LABEL"#,
        ],
    );
}

#[test]
fn devices_choose_nodes_when_the_slice_does_not() {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let per_device = |device: Value, expected: &[&str]| {
        let mut device = device;
        device["name"] = json!("d");
        check(
            &[
                ("/spec/nodeName", Value::Null),
                ("/spec/perDeviceNodeSelection", json!(true)),
                ("/spec/devices", json!([device])),
            ],
            expected,
        );
    };
    per_device(json!({"nodeName": "n"}), &[]);
    per_device(
        json!({}),
        &[&format!("spec.devices[0]: Required value: {ONE}")],
    );
    per_device(
        json!({"nodeName": "n", "allNodes": true}),
        &[&format!(
            "spec.devices[0]: Invalid value: \"{{`nodeName`, `allNodes`}}\": {ONE}"
        )],
    );
    per_device(
        json!({"nodeName": "", "allNodes": true}),
        &[r#"spec.devices[0].nodeName: Invalid value: "": must not be empty"#],
    );
    let term = |key: &str| json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
    per_device(
        json!({"nodeSelector": {"nodeSelectorTerms": [term("x")]}}),
        &[],
    );
    per_device(
        json!({"nodeSelector": {"nodeSelectorTerms": [{}, {}]}}),
        &[
            r#"spec.devices[0].nodeSelector.nodeSelectorTerms: Invalid value: [{"MatchExpressions":null,"MatchFields":null},{"MatchExpressions":null,"MatchFields":null}]: must have exactly one node selector term"#,
        ],
    );
    device(
        &[("allNodes", json!(false))],
        &[
            ": Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
        ],
    );
}

#[test]
fn binding_conditions_come_in_pairs() {
    let binding = |conditions: Value, failures: Value, expected: &[&str]| {
        device(
            &[
                ("bindingConditions", conditions),
                ("bindingFailureConditions", failures),
            ],
            expected,
        );
    };
    binding(json!(["a"]), json!(["b"]), &[]);
    binding(
        json!(["a"]),
        Value::Null,
        &[
            ".bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions",
        ],
    );
    binding(
        json!([]),
        json!(["b"]),
        &[
            ".bindingConditions: Invalid value: []: bindingConditions are required to use bindingFailureConditions",
        ],
    );
    binding(
        json!(["a", "a"]),
        json!(["a", "b!"]),
        &[
            r#".bindingFailureConditions[1]: Invalid value: "b!": QUALIFIED"#,
            r#".bindingConditions[1]: Duplicate value: "a""#,
            r#".bindingFailureConditions[0]: Invalid value: "a": bindingFailureConditions must not overlap with bindingConditions"#,
        ],
    );
}

#[test]
fn node_allocatable_mappings_are_complete() {
    let mapping = |mappings: Value, expected: &[&str]| {
        device(&[("nodeAllocatableResourceMappings", mappings)], expected)
    };
    mapping(
        json!({"cpu": {"capacityKey": "m"}, "hugepages-2Mi": {"allocationMultiplier": "2"}}),
        &[],
    );
    mapping(
        json!({"cpu": {}, "example.com/x": {"capacityKey": "zzz", "allocationMultiplier": "0"}, "memory": {"capacityKey": ""}}),
        &[
            r#".nodeAllocatableResourceMappings[cpu]: Invalid value: "": at least one of allocationMultiplier or capacityKey must be set"#,
            r#".nodeAllocatableResourceMappings[example.com/x]: Invalid value: "example.com/x": must be a node allocatable resource name"#,
            r#".nodeAllocatableResourceMappings[example.com/x].capacityKey: Not found: "zzz""#,
            r#".nodeAllocatableResourceMappings[example.com/x].allocationMultiplier: Invalid value: "0": must be positive"#,
            r#".nodeAllocatableResourceMappings[memory].capacityKey: Invalid value: "": capacityKey must not be an empty string"#,
        ],
    );
}
