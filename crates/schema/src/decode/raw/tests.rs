use serde_json::{Value, json};

use super::{raw_texts, write_compact};
use crate::decode::decode_json;
use crate::types;

/// A claim with these parameters.
fn claim(parameters: &[&str]) -> String {
    let configs: Vec<String> = parameters
        .iter()
        .map(|text| format!(r#"{{"opaque":{{"driver":"d","parameters":{text}}}}}"#))
        .collect();
    format!(
        r#"{{"metadata":{{"name":"c"}},"spec":{{"devices":{{"config":[{}]}}}}}}"#,
        configs.join(",")
    )
}

fn check(parameters: &[&str], texts: &[&str]) {
    let schema = types::lookup("resource.k8s.io", "v1", "ResourceClaim").unwrap();
    let claim = claim(parameters);
    let decoded = decode_json(claim.as_bytes(), Some(schema)).unwrap();
    assert_eq!(decoded.strict, Vec::<String>::new());
    let found: Vec<&str> = decoded.raws.iter().map(|raw| raw.text.as_str()).collect();
    assert_eq!(found, texts);
    assert_eq!(raw_texts(claim.as_bytes(), schema), decoded.raws);
}

#[test]
fn texts_of_raw_fields_are_kept() {
    let odd = r#"{"z":12345678901234567890123,"a":0.1000,"a":1,"e":1e3}"#;
    check(&[odd], &[odd]);
    let spaced = "{ \"a\" : [ 1 ,\n\"x  \\\" y\\\\\" ] }";
    check(&[spaced], &[spaced]);
    check(&[r#"{"a":1}"#, r#"{"a":1}"#], &[r#"{"a":1}"#; 2]);
    check(&["null"], &[]);
    check(&[], &[]);
}

#[test]
fn values_of_raw_fields_are_read_as_before() {
    let schema = types::lookup("apps", "v1", "ControllerRevision").unwrap();
    let text = br#"{"data":{"b":1.0,"a":[2]},"revision":1}"#;
    let decoded = decode_json(text, Some(schema)).unwrap();
    assert_eq!(decoded.value["data"], json!({"a": [2], "b": 1.0}));
    assert_eq!(decoded.raws[0].value, decoded.value["data"]);
    let Value::Object(_) = decoded.value else {
        panic!("an object")
    };
}

#[test]
fn space_in_strings_stays() {
    let mut compact = Vec::new();
    let spaced = "{\n\t\"a b\" : \" \\\\\" , \"c\":\"\\\" é\"}";
    write_compact(&mut compact, spaced.as_bytes());
    let wanted = r#"{"a b":" \\","c":"\" é"}"#;
    assert_eq!(String::from_utf8(compact).unwrap(), wanted);
}
