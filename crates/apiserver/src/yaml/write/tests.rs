use serde_json::{Value, json};

use super::*;

/// The texts of `texts.json` as a kube-apiserver 1.36.2 wrote them.
#[test]
fn texts_are_quoted_and_folded_as_upstream_does() {
    let value: Value = serde_json::from_str(include_str!("texts.json")).expect("JSON");
    let expected = include_str!("texts.yaml");
    let found = write(&value);
    let mut pairs = found.lines().zip(expected.lines());
    if let Some((found, expected)) = pairs.find(|(found, expected)| found != expected) {
        panic!("{found}\ninstead of\n{expected}");
    }
    assert_eq!(found, expected);
}

/// Whatever it is, what reads YAML reads the same value.
#[test]
fn what_is_written_reads_as_it_was() {
    let mut texts: Value = serde_json::from_str(include_str!("texts.json")).expect("JSON");
    // The library reads booleans in any mixture of cases; upstream, which writes these without quotes, does not.
    let data = texts["data"].as_object_mut().expect("texts");
    let booleans = ["true", "false", "yes", "no", "on", "off"];
    data.retain(|_, text| !booleans.contains(&&*text.as_str().expect("a text").to_lowercase()));
    let value = json!({
        "a": [1, -2.5, true, null, "x", [], {}, [["b"], {"c": ["d", {"e": "f"}]}]], "b": {"c": {"d": "1"}, "e": {}}, "texts": texts,
    });
    let read = super::super::read(write(&value).as_bytes()).expect("YAML");
    assert_eq!(read.value, value);
}

/// What a kube-apiserver 1.36.2 wrote of numbers without a type.
#[test]
fn numbers_are_written_as_upstream_does() {
    let check = |number: &str, expected: &str| {
        let value: Value = serde_json::from_str(number).expect("JSON");
        assert_eq!(write(&value), format!("{expected}\n"), "{number}");
    };
    check("1.5", "1.5");
    check("0.00001", "1e-05");
    check("1e-7", "1e-07");
    check("1e19", "10000000000000000000");
    check("1e20", "1e+20");
    check("1e21", "1e+21");
    check("18446744073709551616", "1.8446744073709552e+19");
    check("123456789.125", "1.23456789125e+08");
    check("9223372036854775807", "9223372036854775807");
}
