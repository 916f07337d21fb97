use serde_json::json;

use super::*;

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

/// A pod with what stands in messages of their own in protobuf and among other fields in JSON.
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
