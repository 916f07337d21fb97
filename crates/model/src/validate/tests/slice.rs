use super::*;
use crate::validate;

fn slice() -> Value {
    json!({
        "metadata": {"name": "s", "resourceVersion": "1"},
        "spec": {
            "driver": "d.example.com",
            "pool": {"name": "a/b", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n",
            "devices": [{"name": "gpu-0", "attributes": {"a": {"int": 1}}, "capacity": {"m": {"value": "10"}}}],
        },
    })
}

fn check(edits: &[(&str, Value)], expected: &[&str]) {
    assert_messages(
        create(Kind::ResourceSlice, &edited(slice(), edits)),
        expected,
    );
}

fn device(edits: &[(&str, Value)], expected: &[&str]) {
    let edits: Vec<_> = edits
        .iter()
        .map(|(key, value)| (format!("/spec/devices/0/{key}"), value.clone()))
        .collect();
    let edits: Vec<_> = edits
        .iter()
        .map(|(pointer, value)| (pointer.as_str(), value.clone()))
        .collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|text| format!("spec.devices[0]{text}"))
        .collect();
    check(
        &edits,
        &expected.iter().map(String::as_str).collect::<Vec<_>>(),
    );
}

fn update(edits: &[(&str, Value)], old: &[(&str, Value)], expected: &[&str]) {
    let old = edited(slice(), old);
    let new = edited(old.clone(), edits);
    assert_messages(
        validate::update(Kind::ResourceSlice, &new, &old, &Features::default()),
        expected,
    );
}

#[test]
fn a_good_slice_passes() {
    check(&[], &[]);
    check(&[("/spec/driver", json!("D.Example.com"))], &[]);
}

#[test]
fn drivers_and_pools_are_named() {
    check(
        &[("/spec/driver", json!(""))],
        &["spec.driver: Required value"],
    );
    check(
        &[("/spec/driver", json!("a".repeat(64)))],
        &["spec.driver: Too long: may not be more than 63 bytes"],
    );
    check(
        &[(
            "/spec/pool",
            json!({"name": "", "generation": -1, "resourceSliceCount": 0}),
        )],
        &[
            "spec.pool.name: Required value",
            "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
            "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
        ],
    );
    check(
        &[("/spec/pool/name", json!("a//b"))],
        &[r#"spec.pool.name: Invalid value: "": SUBDOMAIN"#],
    );
}

#[test]
fn exactly_one_field_says_where_the_devices_are() {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    check(
        &[("/spec/nodeName", Value::Null)],
        &[&format!("spec: Required value: {ONE}")],
    );
    check(
        &[("/spec/nodeName", json!(""))],
        &[
            r#"spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string"#,
            &format!("spec: Required value: {ONE}"),
        ],
    );
    check(
        &[("/spec/allNodes", json!(true))],
        &[&format!(
            "spec: Invalid value: \"{{`nodeName`, `allNodes`}}\": {ONE}, but multiple fields are set"
        )],
    );
    check(
        &[("/spec/allNodes", json!(false))],
        &["spec.allNodes: Invalid value: false: must be either unset or set to true"],
    );
    check(
        &[
            ("/spec/nodeName", Value::Null),
            ("/spec/nodeSelector", json!({"nodeSelectorTerms": [{}, {}]})),
        ],
        &[
            r#"spec.nodeSelector.nodeSelectorTerms: Invalid value: [{"MatchExpressions":null,"MatchFields":null},{"MatchExpressions":null,"MatchFields":null}]: must have exactly one node selector term"#,
        ],
    );
}

#[test]
fn node_selectors_are_well_formed() {
    let selector = |term: Value| {
        [
            ("/spec/nodeName", Value::Null),
            ("/spec/nodeSelector", json!({"nodeSelectorTerms": [term]})),
        ]
    };
    let path = "spec.nodeSelector.nodeSelectorTerms[0]";
    let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "k", "operator": operator, "values": values}]});
    let cases = [
        (
            expression("In", json!([])),
            format!(
                "{path}.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
            ),
        ),
        (
            expression("Exists", json!(["v"])),
            format!(
                "{path}.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            ),
        ),
        (
            expression("Gt", json!(["1", "2"])),
            format!(
                "{path}.matchExpressions[0].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'"
            ),
        ),
        (
            expression("Near", json!([])),
            format!(
                "{path}.matchExpressions[0].operator: Invalid value: \"Near\": not a valid selector operator"
            ),
        ),
        (
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}),
            format!(
                "{path}.matchFields[0].values: Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            ),
        ),
        (
            json!({"matchFields": [{"key": "spec.x", "operator": "In", "values": ["a"]}]}),
            format!(
                "{path}.matchFields[0].key: Invalid value: \"spec.x\": not a valid field selector key"
            ),
        ),
    ];
    for (term, expected) in cases {
        check(&selector(term), &[&expected]);
    }
}

#[test]
fn counters_and_devices_live_in_different_slices() {
    check(
        &[("/spec/sharedCounters", json!([]))],
        &[r#"spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed"#],
    );
}

#[test]
fn counter_sets_have_names_and_counters() {
    let set = |name: &str| json!({"name": name, "counters": {"c": {"value": "1"}}});
    let sets = |sets: Value| {
        [
            ("/spec/devices", Value::Null),
            ("/spec/sharedCounters", sets),
        ]
    };
    check(&sets(json!([set("a"), set("b")])), &[]);
    check(
        &sets(json!([set("a"), set("a")])),
        &[r#"spec.sharedCounters[1]: Duplicate value: "a""#],
    );
    check(
        &sets(json!([{}])),
        &[
            "spec.sharedCounters[0].name: Required value",
            "spec.sharedCounters[0].counters: Required value",
        ],
    );
    check(
        &sets(named(9, set("x"))),
        &["spec.sharedCounters: Too many: 9: must have at most 8 items"],
    );
    let mut wide = set("a");
    wide["counters"] = (0..33)
        .map(|index| (format!("c{index}"), json!({})))
        .collect();
    check(
        &sets(json!([wide])),
        &["spec.sharedCounters[0].counters: Too many: 33: must have at most 32 items"],
    );
}

#[test]
fn slices_hold_a_limited_number_of_devices() {
    check(&[("/spec/devices", named(128, json!({})))], &[]);
    check(
        &[("/spec/devices", named(129, json!({})))],
        &["spec.devices: Too many: 129: must have at most 128 items"],
    );
    let many = |device: Value| {
        let mut devices = named(65, json!({}));
        let name = devices[64]["name"].clone();
        devices[64] = device;
        devices[64]["name"] = name;
        check(
            &[("/spec/devices", devices)],
            &["spec.devices: Too many: 65: must have at most 64 items"],
        );
    };
    many(json!({"taints": [{"key": "k", "effect": "None"}]}));
    many(json!({"consumesCounters": [{"counterSet": "c"}]}));
    many(json!({"attributes": {"a": {"ints": [1]}}}));
}

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

#[test]
fn driver_pool_and_node_are_immutable() {
    update(
        &[
            ("/spec/driver", json!("e.example.com")),
            ("/spec/pool/name", json!("c")),
            ("/spec/nodeName", Value::Null),
            ("/spec/allNodes", json!(true)),
        ],
        &[],
        &[
            r#"spec.pool.name: Invalid value: "c": field is immutable"#,
            r#"spec.driver: Invalid value: "e.example.com": field is immutable"#,
            "spec.nodeName: Invalid value: null: field is immutable",
        ],
    );
    update(
        &[("/spec/driver", Value::Null)],
        &[],
        &[
            "spec.driver: Required value",
            r#"spec.driver: Invalid value: "": field is immutable"#,
        ],
    );
}

#[test]
fn what_did_not_change_is_not_judged_again() {
    let taint = json!([{"key": "k", "effect": "FromTheFuture"}]);
    let policy = json!({"m": {"value": "1", "requestPolicy": {}}});
    let stored = [
        ("/spec/devices/0/taints", taint.clone()),
        ("/spec/devices/0/capacity", policy),
    ];
    update(&[("/spec/pool/generation", json!(2))], &stored, &[]);
    update(
        &[("/spec/devices/0/name", json!("other"))],
        &stored[..1],
        &[
            r#"spec.devices[0].taints[0].effect: Unsupported value: "FromTheFuture": supported values: "NoExecute", "NoSchedule", "None""#,
        ],
    );
}

#[test]
fn upper_case_drivers_are_warned_about() {
    let slice = edited(slice(), &[("/spec/driver", json!("D.Example.com"))]);
    assert_eq!(
        validate::warnings(Kind::ResourceSlice, &slice),
        [
            r#"spec.driver: driver names should be lowercase; "D.Example.com" contains uppercase characters"#
        ]
    );
}
