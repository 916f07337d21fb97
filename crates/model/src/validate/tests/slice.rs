use super::*;
use crate::validate;

mod devices;

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
fn taints_that_did_not_change_are_not_judged_again() {
    let taint = json!([{"key": "k", "effect": "FromTheFuture"}]);
    let stored = [("/spec/devices/0/taints", taint)];
    update(&[("/spec/pool/generation", json!(2))], &stored, &[]);
    update(
        &[("/spec/devices/0/name", json!("other"))],
        &stored,
        &[
            r#"spec.devices[0].taints[0].effect: Unsupported value: "FromTheFuture": supported values: "NoExecute", "NoSchedule", "None""#,
        ],
    );
}

#[test]
fn capacities_that_did_not_change_are_judged_again() {
    let policy = json!({"m": {"value": "1", "requestPolicy": {}}});
    update(
        &[("/spec/pool/generation", json!(2))],
        &[("/spec/devices/0/capacity", policy)],
        &[
            "spec.devices[0].capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true",
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
