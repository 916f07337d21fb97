//! Texts and what upstream's parser makes of them, which a program on its Go modules has told.

use serde::Deserialize;
use serde_json::Value;

use super::super::build::MAX_REPEATED;
use super::*;

/// A text, and what sigs.k8s.io/yaml v1.6.0 (`YAMLToJSON`, `YAMLToJSONStrict`) makes of it.
#[derive(Deserialize)]
struct Case {
    r#in: String,
    out: Option<String>,
    err: Option<String>,
    strict: Option<String>,
}

#[test]
fn texts_mean_what_they_mean_upstream() {
    let mut wrong = Vec::new();
    for line in include_str!("cases.jsonl").lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let found = super::super::read(case.r#in.as_bytes());
        let out = case
            .out
            .map(|out| serde_json::from_str::<Value>(&out).unwrap());
        let expected = out.ok_or_else(|| case.err.unwrap_or_default());
        let (value, repeated) = match found {
            Ok(read) => (Ok(read.value), read.repeated),
            Err(error) => (Err(error), None),
        };
        if value != expected {
            wrong.push(format!(
                "{:?}: {value:?}, upstream: {expected:?}",
                case.r#in
            ));
        } else if value.is_ok() && repeated != case.strict {
            wrong.push(format!(
                "{:?}: {repeated:?}, upstream: {:?}",
                case.r#in, case.strict
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The mode of a file is octal in YAML.
#[test]
fn regression_numbers_that_begin_with_zero_are_octal() {
    let read = parse(b"defaultMode: 0644\nmode: 0o755\nname: \"0644\"\n").unwrap();
    let expected = serde_json::json!({"defaultMode": 420, "mode": 493, "name": "0644"});
    assert_eq!(read.value, expected);
}

/// The parser panicked, and a document whose last line has no line break was refused.
#[test]
fn regression_a_block_scalar_at_the_end_of_the_text_is_read() {
    let check = |text: &str, expected: &str| {
        let read = parse(text.as_bytes()).unwrap();
        assert_eq!(read.value["k"], expected, "{text:?}");
    };
    check("k: |\n  a\n  b", "a\nb");
    check("k: |+\n  a", "a");
    check("k: >-\n  a\n  b", "a b");
    check("\u{feff}k: |\n  a", "a");
    check("k: |\n  a\n# b", "a\n");
}

/// The parser panicked, and the request was answered with 500.
#[test]
fn regression_a_tag_before_a_comma_is_an_error() {
    let check = |text: &str, place: &str| {
        let error = parse(text.as_bytes()).unwrap_err();
        let expected = format!("yaml: {place}did not find expected whitespace or line break");
        assert_eq!(error, expected, "{text}");
    };
    check("[!a,b]", "");
    check("a: 1\nb: {c: !!str,d: 1}\n", "line 2: ");
}

#[test]
fn attack_texts_take_bounded_time_and_memory() {
    let error = |text: &[u8]| parse(text).unwrap_err();
    for deep in ["[", "{a: ", "- ", "? ", "{{", "[{a: ["] {
        let found = error(deep.repeat((3 << 20) / deep.len()).as_bytes());
        assert!(found.contains("exceeded max depth"), "{deep}: {found}");
    }
    let laughs: String = (1..30)
        .map(|level| {
            let before = vec![format!("*a{}", level - 1); 9].join(", ");
            format!("a{level}: &a{level} [{before}]\n")
        })
        .collect();
    let aliasing = "yaml: document contains excessive aliasing";
    assert_eq!(error(format!("a0: &a0 x\n{laughs}").as_bytes()), aliasing);
    let long = format!(
        "a: &a {}\nb: [{}]\n",
        "x".repeat(1 << 20),
        "*a, ".repeat(1 << 18)
    );
    assert_eq!(error(long.as_bytes()), aliasing);
    let nested = format!("{}{}", "&a [".repeat(200), "x".repeat(1 << 20));
    let nested = format!("{nested}{}", "]".repeat(200));
    assert_eq!(error(nested.as_bytes()), aliasing);
    let directives = "%TAG !a! tag:a\n".repeat(200_000);
    assert_eq!(
        error(directives.as_bytes()),
        "yaml: more than 64 directives"
    );
    let key = format!("{{{}: 1}}: 2", "k".repeat(1000).repeat(1000));
    assert!(error(key.as_bytes()).len() < 2 * super::super::go::MAX_SHOWN + 100);
    let repeated = parse("a: 1\n".repeat(100_000).as_bytes()).unwrap();
    assert_eq!(repeated.repeated.len(), MAX_REPEATED);
}
