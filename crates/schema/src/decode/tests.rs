use serde_json::json;

use super::*;
use crate::types;

fn check(kind: (&str, &str, &str), text: &str, expected: Result<(Value, &[&str]), &str>) {
    let schema = types::lookup(kind.0, kind.1, kind.2).expect("known kind");
    let found = decode_json(text.as_bytes(), Some(schema));
    match (found, expected) {
        (Ok(found), Ok((value, strict))) => {
            assert_eq!(found.value, value, "{text}");
            assert_eq!(found.strict, strict, "{text}");
            let again = decode_value(found.value.clone(), schema).expect("decodes again");
            assert_eq!(again.value, found.value, "decoding is idempotent: {text}");
        }
        (Err(found), Err(expected)) => assert_eq!(found.to_string(), expected, "{text}"),
        (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
    }
}

const CONFIG_MAP: (&str, &str, &str) = ("", "v1", "ConfigMap");
const POD: (&str, &str, &str) = ("", "v1", "Pod");
const CLAIM: (&str, &str, &str) = ("resource.k8s.io", "v1", "ResourceClaim");

#[test]
fn unknown_and_duplicate_fields_are_named_in_order() {
    check(
        CLAIM,
        r#"{"metadata":{"name":"x","shade":"dark"},"spec":{"devices":{"requests":[{"name":"a","name":"b"}]},"colour":{"a":1,"a":2}}}"#,
        Ok((
            json!({"metadata":{"name":"x"},"spec":{"devices":{"requests":[{"name":"b"}]}},"status":{}}),
            &[
                r#"unknown field "metadata.shade""#,
                r#"duplicate field "spec.devices.requests[0].name""#,
                r#"unknown field "spec.colour""#,
            ],
        )),
    );
    check(
        POD,
        r#"{"spec":{"Containers":[]}}"#,
        Ok((
            json!({"metadata":{},"spec":{"containers":null},"status":{}}),
            &[r#"unknown field "spec.Containers""#],
        )),
    );
}

#[test]
fn zero_values_are_kept_as_go_keeps_them() {
    check(
        CONFIG_MAP,
        r#"{"metadata":{"name":"","labels":{},"creationTimestamp":null},"immutable":false,"data":{"q":null}}"#,
        Ok((
            json!({"metadata":{},"immutable":false,"data":{"q":""}}),
            &[],
        )),
    );
    check(
        POD,
        r#"{"spec":{"hostNetwork":false,"priority":0,"containers":[{"resources":null,"ports":[]}]}}"#,
        Ok((
            json!({"metadata":{},"spec":{"priority":0,"containers":[{"name":"","resources":{}}]},"status":{}}),
            &[],
        )),
    );
}

#[test]
fn bytes_are_also_read_from_numbers() {
    let read = |list: &str, expected: Result<&str, &str>| {
        let text = format!(r#"{{"binaryData":{{"x":{list}}}}}"#);
        let decoded = decode_json(text.as_bytes(), types::lookup("", "v1", "ConfigMap"));
        let found = decoded.map(|it| it.value["binaryData"]["x"].as_str().unwrap().to_owned());
        let expected = expected.map(str::to_owned).map_err(|found| {
            format!("json: cannot unmarshal {found} into Go struct field ConfigMap.binaryData of type uint8")
        });
        assert_eq!(found.map_err(|error| error.to_string()), expected, "{list}");
    };
    read("[]", Ok(""));
    read("[104, 105, null]", Ok("aGkA"));
    read("[{\"a\": {}}]", Err("object"));
    read("[\"x\"]", Err("string"));
    read("[256]", Err("number 256"));
    read("[-1]", Err("number -1"));
}

#[test]
fn misfits_use_the_words_of_go() {
    check(
        CONFIG_MAP,
        r#"{"data":"text"}"#,
        Err(
            "json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string",
        ),
    );
    check(
        CONFIG_MAP,
        r#"{"data":{"x":{"deep":1}}}"#,
        Err("json: cannot unmarshal object into Go struct field ConfigMap.data of type string"),
    );
    check(
        CONFIG_MAP,
        "[]",
        Err("json: cannot unmarshal array into Go value of type v1.ConfigMap"),
    );
    check(
        CONFIG_MAP,
        r#"{"binaryData":{"x":"abc!"}}"#,
        Err("illegal base64 data at input byte 3"),
    );
    check(
        CLAIM,
        r#"{"spec":{"devices":{"requests":[{"exactly":{"count":"1"}}]}}}"#,
        Err(
            "json: cannot unmarshal string into Go struct field ExactDeviceRequest.spec.devices.requests.exactly.count of type int64",
        ),
    );
    check(
        CLAIM,
        r#"{"spec":{"devices":[]}}"#,
        Err(
            "json: cannot unmarshal array into Go struct field ResourceClaimSpec.spec.devices of type v1.DeviceClaim",
        ),
    );
    check(
        POD,
        r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"many"}}}]}}"#,
        Err(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    );
    let lists = [
        (
            r#"{"spec":{"containers":[{"resources":{"limits":1}}]}}"#,
            "number into Go struct field ResourceRequirements.spec.containers.resources.limits",
        ),
        (
            r#"{"spec":{"overhead":[]}}"#,
            "array into Go struct field PodSpec.spec.overhead",
        ),
    ];
    for (pod, found) in lists {
        let expected = format!("json: cannot unmarshal {found} of type v1.ResourceList");
        check(POD, pod, Err(&expected));
    }
    check(
        CONFIG_MAP,
        "not json",
        Err("invalid character 'o' in literal null (expecting 'u')"),
    );
    check(
        CONFIG_MAP,
        "{bad",
        Err("invalid character 'b' looking for beginning of object key string"),
    );
    check(CONFIG_MAP, "{\"a\":", Err("unexpected end of JSON input"));
    check(
        CONFIG_MAP,
        r#"{"metadata":{"creationTimestamp":"yesterday"}}"#,
        Err(
            r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#,
        ),
    );
}

#[test]
fn scalars_take_their_canonical_form() {
    check(
        POD,
        r#"{"metadata":{"creationTimestamp":"2024-01-01T02:00:00.5+02:00"},"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1000m","memory":1048576}}}]}}"#,
        Ok((
            json!({"metadata":{"creationTimestamp":"2024-01-01T00:00:00Z"},"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1","memory":"1048576"}}}]},"status":{}}),
            &[],
        )),
    );
}

#[test]
fn custom_resources_keep_everything() {
    let found = decode_json(br#"{"spec":{"a":1.0,"a":2.5,"n":null}}"#, None).expect("decodes");
    assert_eq!(found.value, json!({"spec":{"a":2.5,"n":null}}));
    assert_eq!(found.strict, [r#"duplicate field "spec.a""#]);
}

#[test]
fn regression_what_continues_a_large_object_is_not_compared_with_all_of_it() {
    // Each key of the second map with each of the first, or the first map copied for each repetition, takes minutes.
    let keys = |from: usize| (from..from + 100_000).map(|key| format!(r#""k{key}":"""#));
    let map = |from| format!(r#""data":{{{}}}"#, keys(from).collect::<Vec<_>>().join(","));
    let mut fields = vec![map(0), map(100_000)];
    fields.extend(std::iter::repeat_n(r#""data":{}"#.to_owned(), 100_000));
    let text = format!(r#"{{"metadata":{{"name":"x"}},{}}}"#, fields.join(","));
    let schema = types::lookup("", "v1", "ConfigMap").expect("known kind");
    let found = decode_json(text.as_bytes(), Some(schema)).expect("an object");
    assert_eq!(
        found.value["data"].as_object().expect("a map").len(),
        200_000
    );
    assert_eq!(found.strict, [r#"duplicate field "data""#]);
}

#[test]
fn lists_and_maps_that_were_sent_empty_are_told() {
    let schema = types::lookup(CLAIM.0, CLAIM.1, CLAIM.2).expect("known kind");
    let text = r#"{"metadata":{"labels":{},"finalizers":[]},"spec":{"devices":{"requests":[{"name":"a","firstAvailable":[],"exactly":{"deviceClassName":"c","capacity":{"requests":{}}}}],"config":null}}}"#;
    let found = decode_json(text.as_bytes(), Some(schema)).expect("an object");
    let request = json!({"name": "a", "exactly": {"deviceClassName": "c", "capacity": {}}});
    assert_eq!(
        found.value,
        json!({"metadata": {}, "spec": {"devices": {"requests": [request]}}, "status": {}})
    );
    let empty = |pointer: &str, value: Value| Empty {
        pointer: pointer.to_owned(),
        value,
    };
    assert_eq!(
        found.empties,
        [
            empty("/metadata/finalizers", json!([])),
            empty("/metadata/labels", json!({})),
            empty(
                "/spec/devices/requests/0/exactly/capacity/requests",
                json!({})
            ),
            empty("/spec/devices/requests/0/firstAvailable", json!([])),
        ]
    );
}

#[test]
fn regression_a_patch_sets_numbers_as_they_are_sent() {
    let schema = types::lookup("apps", "v1", "Deployment").expect("known kind");
    let patch = |number: &str| {
        let text = format!(r#"{{"spec":{{"replicas":{number}}}}}"#);
        let patch = decode_patch(text.as_bytes()).expect("JSON").value;
        decode_value(patch, schema).map(|it| it.value["spec"]["replicas"].clone())
    };
    assert_eq!(patch("2").unwrap(), 2);
    assert_eq!(patch("-0").unwrap(), 0);
    assert_eq!(
        patch("2.0").unwrap_err().to_string(),
        "json: cannot unmarshal number 2.0 into Go struct field DeploymentSpec.spec.replicas of type int32"
    );
}

#[test]
fn regression_numbers_are_shown_as_they_are_written() {
    let shown = |number: &str| {
        format!(
            "json: cannot unmarshal number {number} into Go struct field ObjectMeta.metadata.generation of type int64"
        )
    };
    for number in ["1e3", "1.0", "1.50", "-0.0", "99999999999999999999"] {
        let text = format!(r#"{{"metadata":{{"generation":{number}}}}}"#);
        check(CONFIG_MAP, &text, Err(&shown(number)));
    }
    check(
        CONFIG_MAP,
        r#"{"metadata":{"generation":-0}}"#,
        Ok((json!({"metadata":{}}), &[])),
    );
    let quota = r#"{"spec":{"hard":{"cpu":1e3,"memory":100000000000000000000}}}"#;
    let schema = types::lookup("", "v1", "ResourceQuota").expect("known kind");
    let decoded = decode_json(quota.as_bytes(), Some(schema)).expect("a quota");
    assert_eq!(
        decoded.value["spec"]["hard"],
        json!({"cpu":"1e3","memory":"100E"})
    );
}

#[test]
fn numbers_of_custom_objects_are_integers_with_a_sign_or_floats() {
    let text = br#"{"a":18446744073709551615,"b":2.0,"c":-9223372036854775808}"#;
    let decoded = decode_json(text, None).expect("JSON");
    assert_eq!(
        decoded.value,
        json!({"a":18_446_744_073_709_551_615_f64,"b":2,"c":i64::MIN})
    );
}
