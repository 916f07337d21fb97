use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::*;

fn decode(body: &[u8]) -> Result<Value, Error> {
    let text = to_json(body, |_, _| true)?.text;
    Ok(serde_json::from_str(&text).expect("JSON"))
}

fn encode(object: &Value) -> Option<Vec<u8>> {
    super::encode(object, compact)
}

fn field(number: u32, content: &[u8]) -> Vec<u8> {
    // Numbers up to 15 fit one byte, the others here two.
    let tag = number << 3 | 2;
    let mut out = match u8::try_from(tag) {
        Ok(tag) if tag < 0x80 => vec![tag],
        _ => vec![(tag & 0x7f | 0x80) as u8, (tag >> 7) as u8],
    };
    out.push(u8::try_from(content.len()).unwrap());
    out.extend_from_slice(content);
    out
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), field(1, &meta), field(2, raw)].concat()
}

/// The extra attributes of users were lost: to Go clients, and of users that they asked about.
#[test]
fn regression_lists_in_maps_are_kept() {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "ann", "extra": {"a/b": ["x", "y"], "c/d": []}},
    });
    let body = encode(&review).unwrap();
    assert_eq!(
        decode(&body).unwrap()["spec"]["extra"],
        review["spec"]["extra"]
    );
    // As Go writes it.
    let values = [field(1, b"x"), field(1, b"y")].concat();
    let entry = field(5, &[field(1, b"a/b"), field(2, &values)].concat());
    assert!(body.windows(entry.len()).any(|it| it == entry));
}

#[test]
fn a_config_map() {
    let meta = field(1, b"c");
    let entry = [field(1, b"key"), field(2, b"value")].concat();
    let raw = [field(1, &meta), field(2, &entry)].concat();
    let got = decode(&envelope("v1", "ConfigMap", &raw)).unwrap();
    let want = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c"}, "data": {"key": "value"}});
    assert_eq!(got, want);
}

#[test]
fn garbage_is_an_error() {
    assert_eq!(decode(b"{}"), Err(Error::Magic));
    assert_eq!(
        decode(&envelope("v1", "Nothing", b"")),
        Err(Error::UnknownKind("Nothing".into(), "v1".into()))
    );
    assert_eq!(
        decode(&envelope("v1", "ConfigMap", &[0x0a, 200])),
        Err(Error::Truncated)
    );
}

/// A pod with fields that are separate messages in protobuf and among other fields in JSON.
#[test]
fn parts_of_volumes_probes_and_references() {
    let empty_dir = field(2, &field(1, b"Memory"));
    let volume = [field(1, b"v"), field(2, &empty_dir)].concat();
    let exec = field(1, &field(1, b"true"));
    let probe = [field(1, &exec), vec![3 << 3, 7]].concat();
    let key = [field(1, &field(1, b"maps")), field(2, b"key")].concat();
    let from = field(3, &key);
    let env = [field(1, b"E"), field(3, &from)].concat();
    let container = [field(1, b"c"), field(7, &env), field(10, &probe)].concat();
    let common = [field(1, b"debug"), field(2, b"image")].concat();
    let ephemeral = [field(1, &common), field(2, b"c")].concat();
    let spec = [
        field(1, &volume),
        field(2, &container),
        field(34, &ephemeral),
    ]
    .concat();
    let raw = [field(1, &field(1, b"p")), field(2, &spec)].concat();
    let got = decode(&envelope("v1", "Pod", &raw)).unwrap();
    let want = json!({
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
        "containers": [{
            "name": "c",
            "env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": "maps", "key": "key"}}}],
            "livenessProbe": {"exec": {"command": ["true"]}, "timeoutSeconds": 7},
        }],
        "ephemeralContainers": [{"name": "debug", "image": "image", "targetContainerName": "c"}],
    });
    assert_eq!(got["spec"], want);
}

#[test]
fn the_configuration_of_a_claim() {
    let opaque = field(
        1,
        &[
            field(1, b"gpu.example.com"),
            field(2, &field(1, b"{\"a\":1}")),
        ]
        .concat(),
    );
    let config = [field(1, b"r"), field(2, &opaque)].concat();
    let spec = field(1, &field(3, &config));
    let raw = [field(1, &field(1, b"c")), field(2, &spec)].concat();
    let got = decode(&envelope("resource.k8s.io/v1", "ResourceClaim", &raw)).unwrap();
    let want = json!([{"requests": ["r"], "opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}}]);
    assert_eq!(got["spec"]["devices"]["config"], want);
}

#[test]
fn the_rules_of_a_webhook_policy_are_two_parts_deep() {
    let rule = [field(1, b"apps"), field(3, b"deployments")].concat();
    let with_operations = [field(1, b"CREATE"), field(2, &rule)].concat();
    let named = [field(1, b"n"), field(2, &with_operations)].concat();
    let constraints = field(2, &field(3, &named));
    let raw = [field(1, &field(1, b"p")), field(2, &constraints)].concat();
    let got = decode(&envelope(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        &raw,
    ))
    .unwrap();
    let want = json!([{"resourceNames": ["n"], "operations": ["CREATE"], "apiGroups": ["apps"], "resources": ["deployments"]}]);
    assert_eq!(got["spec"]["matchConstraints"]["resourceRules"], want);
}

/// Host and paths were taken for the same field, and the paths of Go clients were lost.
#[test]
fn regression_the_rules_of_an_ingress() {
    let path = [field(1, b"/"), field(3, b"Prefix")].concat();
    let http = field(1, &field(1, &path));
    let rule = [field(1, b"example.com"), field(2, &http)].concat();
    let raw = [field(1, &field(1, b"i")), field(2, &field(3, &rule))].concat();
    let got = decode(&envelope("networking.k8s.io/v1", "Ingress", &raw)).unwrap();
    let want =
        json!([{"host": "example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix"}]}}]);
    assert_eq!(got["spec"]["rules"], want);
    check_round_trip(&got);
}

/// What is written is read as the same object, with the empty fields that upstream's encoder writes as well.
fn check_round_trip(object: &serde_json::Value) {
    let bytes = encode(object).unwrap();
    let read = decode(&bytes).unwrap();
    assert!(holds(&read, object), "{object} came back as {read}");
    // Nothing is lost or added by another round.
    assert_eq!(decode(&encode(&read).unwrap()).unwrap(), read);
}

/// Whether everything in `part` is in `whole`.
fn holds(whole: &serde_json::Value, part: &serde_json::Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, part)| whole.get(key).is_some_and(|whole| holds(whole, part))),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(a, b)| holds(a, b))
        }
        (whole, part) => whole == part,
    }
}

#[test]
fn a_pod_survives_the_round_trip_through_protobuf() {
    check_round_trip(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "labels": {"b": "2", "a": "1"}, "creationTimestamp": "2026-01-02T03:04:05Z",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true}],
            "managedFields": [{
                "manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:nodeName": {}}},
            }],
        },
        "spec": {
            "terminationGracePeriodSeconds": -1,
            "volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
            "containers": [{
                "name": "c", "image": "i",
                "env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": "maps", "key": "key"}}}],
                "resources": {"requests": {"cpu": "100m"}},
                "livenessProbe": {"httpGet": {"port": "web", "path": "/"}, "timeoutSeconds": 7},
            }],
            "ephemeralContainers": [{"name": "debug", "image": "image", "targetContainerName": "c"}],
        },
        "status": {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]},
    }));
}

#[test]
fn kinds_with_bytes_and_schemas_come_back() {
    check_round_trip(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "AAEC"}, "type": "Opaque",
    }));
    check_round_trip(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "d"},
        "spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
            "type": "object", "default": {"a": [1, null]},
            "properties": {"l": {"type": "array", "items": {"type": "string"}}},
            "additionalProperties": {"type": "integer", "minimum": 1.5},
        }}}]},
    }));
}

/// A claim's bytes as upstream's encoder makes them: empty fields that are no pointers are there.
#[test]
fn empty_fields_are_written() {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let meta = [
        field(1, b"c"),
        field(2, b""),
        field(3, b""),
        field(4, b""),
        field(5, b""),
        field(6, b""),
        vec![7 << 3, 0],
        field(8, b""),
    ];
    let type_meta = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
    let raw = field(1, &meta.concat());
    let want = [
        MAGIC.to_vec(),
        field(1, &type_meta),
        field(2, &raw),
        field(3, b""),
        field(4, b""),
    ];
    assert_eq!(encode(&object).unwrap(), want.concat());
}

/// Go writes `null` for lists that it does not have.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let some = map.into_iter().filter(|(_, value)| !value.is_null());
            let some = some.map(|(key, value)| (key, without_nulls(value)));
            Value::Object(some.collect())
        }
        Value::Array(all) => all.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// Objects as Kubernetes' own types write them, empty, full and half full (`tests/interop/goserver/protobuf`): what is read
/// is their JSON, and what is written of that are their bytes.
#[test]
fn every_kind_is_read_and_written_as_upstream_does() {
    let mut count = 0;
    for line in include_str!("tests/objects.txt").lines() {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().expect("three words");
        let (kind, body, text) = (word(), word(), word());
        let body = STANDARD.decode(body).expect("base64");
        let want = without_nulls(serde_json::from_str(text).expect("JSON"));
        let read = decode(&body).unwrap_or_else(|error| panic!("{kind}: {error}"));
        let read = without_nulls(read);
        assert_eq!(read, want, "{kind}, read");
        let wrote = encode(&want).unwrap_or_else(|| panic!("{kind} has no protobuf form"));
        assert_eq!(wrote, body, "{kind}, written");
        assert!(is_whole(&want), "{kind} has unknown fields");
        count += 1;
    }
    assert_eq!(count, 37 * 3);
}

#[test]
fn fields_that_no_message_has_are_told_of() {
    let claim = |spec: Value| json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec});
    assert!(is_whole(&claim(
        json!({"devices": {"requests": [{"name": "r", "exactly": {"count": 1}}]}})
    )));
    let strange = [
        json!({"devices": {"requests": [{"name": "r", "later": true}]}}),
        json!({"devices": {"requests": [{"name": "r", "exactly": {"count": "1"}}]}}),
        json!({"devices": {"requests": {}}}),
        json!({"later": {}}),
    ];
    for spec in strange {
        assert!(!is_whole(&claim(spec.clone())), "{spec}");
    }
    assert!(!is_whole(
        &json!({"apiVersion": "example.com/v1", "kind": "Thing"})
    ));
}

#[test]
fn numbers_that_do_not_fit_are_told_of() {
    const BIG: i64 = (1 << 32) + 80;
    let pod = |port: i64, probed: i64| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{
            "name": "c", "ports": [{"containerPort": port}], "livenessProbe": {"httpGet": {"port": probed}},
        }]}})
    };
    assert!(is_whole(&pod(80, 80)));
    assert!(!is_whole(&pod(BIG, 80)));
    assert!(!is_whole(&pod(80, BIG)));
}

#[test]
fn nesting_is_read_to_its_limit() {
    let definition = |depth: usize| {
        let mut schema = json!({"type": "string"});
        for _ in 0..depth {
            schema = json!({"type": "object", "properties": {"a": schema}});
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "d"},
            "spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]},
        })
    };
    check_round_trip(&definition(50));
    assert_eq!(
        decode(&encode(&definition(100)).unwrap()),
        Err(Error::TooDeep)
    );
}

#[test]
fn fields_that_are_not_kept_are_left_out() {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "uid": "u"}, "data": {"k": "v"},
    });
    let body = encode(&object).unwrap();
    let read = to_json(&body, |of, field| {
        (of, field) != ("ConfigMap", "data") && field != "uid"
    });
    assert_eq!(
        read.unwrap().text,
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c"}}"#
    );
}

/// Other writers may write fields in any order, and more than once.
#[test]
fn fields_come_in_any_order() {
    let entry = |key: &[u8]| field(2, &[field(1, key), field(2, b"v")].concat());
    let meta = [field(5, b"u"), field(1, b"first"), field(1, b"c")].concat();
    let raw = [entry(b"a"), field(1, &meta), entry(b"b")].concat();
    let read = decode(&envelope("v1", "ConfigMap", &raw)).unwrap();
    let want = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "uid": "u"}, "data": {"a": "v", "b": "v"},
    });
    assert_eq!(read, want);
}

/// Text inside of an object cannot add members to it.
#[test]
fn raw_fields_that_are_no_json_are_null() {
    let parameters = |text: &[u8]| {
        let opaque = field(1, &[field(1, b"d"), field(2, &field(1, text))].concat());
        let configuration = field(2, &opaque);
        let spec = field(1, &field(3, &configuration));
        let body = envelope("resource.k8s.io/v1", "ResourceClaim", &field(2, &spec));
        let read = decode(&body).unwrap();
        read["spec"]["devices"]["config"][0]["opaque"]["parameters"].clone()
    };
    assert_eq!(parameters(b"{\"a\": 1}"), json!({"a": 1}));
    assert_eq!(parameters(b"1}, {\"name\": \"x\""), Value::Null);
    assert_eq!(parameters(b"\xff"), Value::Null);
}

#[test]
fn events_of_watches_come_back() {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let frame = frame("ADDED", &object, compact).unwrap();
    let (length, message) = frame.split_first_chunk().unwrap();
    assert_eq!(u32::from_be_bytes(*length) as usize, message.len());
    let (kind, body) = event(message).unwrap();
    assert_eq!((kind, decode(body)), ("ADDED", Ok(object)));
}

proptest! {
    #[test]
    fn no_body_is_too_strange(bytes: Vec<u8>) {
        for kind in ["Pod", "Secret", "Status"] {
            if let Ok(read) = to_json(&envelope("v1", kind, &bytes), |_, _| true) {
                prop_assert!(serde_json::from_str::<IgnoredAny>(&read.text).is_ok(), "{}", read.text);
            }
        }
        let _ = event(&bytes);
    }
}
