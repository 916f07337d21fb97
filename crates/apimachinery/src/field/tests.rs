use super::*;

#[test]
fn texts_are_upstreams() {
    let path = Path::new("spec").child("foo").index(0).key("a/b");
    let check = |error: Error, text: &str| assert_eq!(error.to_string(), text);
    check(
        Error::invalid(&path, "x\"", "is bad"),
        r#"spec.foo[0][a/b]: Invalid value: "x\"": is bad"#,
    );
    check(
        Error::invalid(&path, 7, ""),
        "spec.foo[0][a/b]: Invalid value: 7",
    );
    check(
        Error::required(&path, ""),
        "spec.foo[0][a/b]: Required value",
    );
    check(
        Error::forbidden(&path, "no"),
        "spec.foo[0][a/b]: Forbidden: no",
    );
    check(
        Error::too_long(&path, 10),
        "spec.foo[0][a/b]: Too long: may not be more than 10 bytes",
    );
    check(
        Error::too_many(&path, 3, 1),
        "spec.foo[0][a/b]: Too many: 3: must have at most 1 item",
    );
    check(
        Error::not_supported(&path, "z", &["a", "b"]),
        r#"spec.foo[0][a/b]: Unsupported value: "z": supported values: "a", "b""#,
    );
    check(
        Error::duplicate(&path, &serde_json::json!({"k": 1})),
        r#"spec.foo[0][a/b]: Duplicate value: {"k":1}"#,
    );
}

#[test]
fn aggregates_join_and_deduplicate() {
    let (a, b) = (
        Error::required(&Path::new("a"), ""),
        Error::required(&Path::new("b"), ""),
    );
    assert_eq!(aggregate(&ErrorList::new()), None);
    assert_eq!(aggregate(&[a.clone()].into()).unwrap(), "a: Required value");
    assert_eq!(
        aggregate(&[a.clone(), b, a].into()).unwrap(),
        "[a: Required value, b: Required value]"
    );
}

#[test]
fn lists_are_bounded_and_remember_it() {
    let error = |number: usize| Error::required(&Path::new("ports").index(number), "");
    let mut errors: ErrorList = (0..300_000).map(error).collect();
    assert!(errors.is_full());
    assert!(errors.len() < 20_000, "{}", errors.len());
    let text = aggregate(&errors).unwrap();
    assert!(text.len() < 2 * MOST_TEXT, "{}", text.len());
    assert!(text.contains(", and at least "), "{text}");

    let mut whole = ErrorList::new();
    whole.append(errors.clone());
    assert_eq!(whole, errors);
    let (front, rest) = {
        let mut front = errors.clone();
        let rest = front.split_off(10);
        (front, rest)
    };
    assert_eq!(
        (front.len(), front.is_full(), rest.is_full()),
        (10, false, true)
    );

    // What was not kept may be what counts.
    errors.retain(|_| false);
    assert!(!errors.is_empty());
    assert_eq!(aggregate(&errors).unwrap(), "and more errors");
    let mut around = ErrorList::new();
    around.append(errors);
    assert!(!around.is_empty());
}

#[test]
fn what_fits_is_told_as_it_is() {
    let error = |number: usize| Error::required(&Path::new("ports").index(number), "");
    let errors: ErrorList = (0..1000).map(error).collect();
    assert!(!errors.is_full());
    let text = aggregate(&errors).unwrap();
    assert!(text.ends_with("ports[999]: Required value]"), "{text}");
}
