use proptest::prelude::*;

use super::*;

fn check(text: &str, expected: &str) {
    let shown = match Reference::parse(text) {
        Ok(reference) => reference.to_string(),
        Err(Error::InvalidName { reason, .. }) => reason,
        Err(other) => other.to_string(),
    };
    assert_eq!(shown, expected, "{text}");
}

#[test]
fn names_are_completed_and_refused_as_upstream_does() {
    let digest = format!("sha256:{}", "a".repeat(64));
    let cases = [
        ("busybox", "docker.io/library/busybox"),
        ("busybox:1.36", "docker.io/library/busybox:1.36"),
        ("docker.io/busybox", "docker.io/library/busybox"),
        ("index.docker.io/busybox", "docker.io/library/busybox"),
        ("user/app", "docker.io/user/app"),
        ("localhost/app", "localhost/app"),
        ("localhost:5000/app:v1", "localhost:5000/app:v1"),
        ("[::1]:5000/app", "[::1]:5000/app"),
        ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
        ("Registry/app", "Registry/app"),
        ("a__b/c--d.e", "docker.io/a__b/c--d.e"),
        ("", "invalid reference format"),
        (
            "Busybox",
            "invalid reference format: repository name (library/Busybox) must be lowercase",
        ),
        (
            "host.io/App",
            "invalid reference format: repository name (App) must be lowercase",
        ),
        ("a//b", "invalid reference format"),
        ("a:b:c", "invalid reference format"),
        ("a b", "invalid reference format"),
        ("a:", "invalid reference format"),
        ("-a", "invalid reference format"),
        ("a___b", "invalid reference format"),
        ("a@sha256:abc", "invalid reference format"),
        ("http://a/b", "invalid reference format"),
        ("a\n", "invalid reference format"),
        ("a_b.io/app", "invalid reference format"),
    ];
    for (text, expected) in cases {
        check(text, expected);
    }
    check(
        &format!("busybox:1@{digest}"),
        &format!("docker.io/library/busybox:1@{digest}"),
    );
    check(
        &format!("busybox@{}", digest.to_uppercase()),
        "invalid reference format: repository name (library/busybox@SHA256) must be lowercase",
    );
    check(
        &format!("busybox@md5:{}", "a".repeat(32)),
        "unsupported digest algorithm",
    );
    check(
        &format!("busybox@sha256:{}", "a".repeat(40)),
        "invalid checksum digest length",
    );
    let hex = "a".repeat(64);
    check(
        &hex,
        &format!("invalid repository name ({hex}), cannot specify 64-byte hexadecimal strings"),
    );
    check(&"a/".repeat(200), "invalid reference format");
    check(
        &format!("h.io/{}", "a".repeat(256)),
        "repository name must not be more than 255 characters",
    );
    check(
        &format!("a:{}", "t".repeat(129)),
        "invalid reference format",
    );
    check(&"é".repeat(2000), "invalid reference format");
}

#[test]
fn tags_and_digests_decide_what_is_asked_for() {
    let digest = format!("sha256:{}", "b".repeat(64));
    let parse = |text: &str| Reference::parse(text).unwrap();
    assert_eq!(
        parse("app").with_default_tag().key(),
        "docker.io/library/app:latest"
    );
    assert_eq!(
        parse(&format!("app:1@{digest}")).key(),
        format!("docker.io/library/app@{digest}")
    );
    assert_eq!(parse(&format!("app:1@{digest}")).wanted(), digest);
    assert!(parse("app").is_latest() && parse("app:latest").is_latest());
    assert!(!parse("app:1").is_latest() && !parse(&format!("app:latest@{digest}")).is_latest());
}

proptest! {
    /// Accepted names are stable: their full form means the same.
    #[test]
    fn the_full_form_means_the_same(text in "([a-zA-Z0-9.:_-]{1,12}/)?[a-z0-9._/-]{1,20}(:[a-zA-Z0-9_.-]{1,10})?") {
        if let Ok(reference) = Reference::parse(&text) {
            prop_assert_eq!(Reference::parse(&reference.to_string()).unwrap(), reference.clone());
            let full = reference.clone().with_default_tag();
            prop_assert_eq!(Reference::parse(&full.key()).unwrap().key(), full.key());
            prop_assert!(!reference.path().is_empty() && !reference.domain().is_empty());
            prop_assert_eq!(reference.path().to_lowercase(), reference.path());
        }
    }

    #[test]
    fn any_text_is_survived(text in ".{0,300}") {
        let _ = Reference::parse(&text);
        let _ = Digest::parse(&text);
    }
}
