use super::*;

#[test]
fn accepts_what_upstream_accepts() {
    assert!(dns1123_label("a-1").is_empty());
    assert!(dns1123_subdomain("a.b-c.d9").is_empty());
    assert!(dns1035_label("svc-1").is_empty());
    assert!(c_identifier("_a9").is_empty());
    assert!(qualified_name("example.com/My_name.x").is_empty());
    assert!(label_value("").is_empty());
    assert!(condition_reason("A").is_empty());
    assert!(path_segment_name("system:node").is_empty());
}

#[test]
fn texts_are_upstreams() {
    assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
    assert_eq!(
        dns1123_subdomain("A"),
        [
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        ]
    );
    assert_eq!(
        dns1123_label("A"),
        [
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        ]
    );
    assert_eq!(
        dns1123_label(&"a".repeat(64)),
        ["must be no more than 63 characters"]
    );
    assert_eq!(
        qualified_name("/").first().map(String::as_str),
        Some("prefix part must be non-empty")
    );
    assert_eq!(path_segment_name(".."), ["may not be '..'"]);
}
