use serde_json::json;

use super::*;

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
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
