use super::*;

fn secret(kind: (&str, &str), data: &str) -> PullSecret {
    PullSecret {
        uid: "u".to_owned(),
        namespace: "ns".to_owned(),
        name: "pull".to_owned(),
        kind: kind.0.to_owned(),
        data: BTreeMap::from([(kind.1.to_owned(), data.as_bytes().to_vec())]),
    }
}

/// The users whose credentials fit an image, in order, with a keyring that has a user for each location.
fn check(locations: &[&str], image: &str, expected: &[&str]) {
    let mut keyring = Keyring::default();
    for location in locations {
        let credential = Credential {
            username: (*location).to_owned(),
            password: String::new(),
            source: None,
        };
        keyring.add(location, credential);
    }
    let name = crate::Reference::parse(image).unwrap().name();
    let found = keyring.lookup(&name);
    let users: Vec<&str> = found
        .iter()
        .map(|credential| credential.username.as_str())
        .collect();
    assert_eq!(users, expected, "{image} in {locations:?}");
}

#[test]
fn locations_match_as_in_the_kubelet() {
    check(
        &["quay.io", "quay.io/coreos"],
        "quay.io/coreos/etcd",
        &["quay.io/coreos", "quay.io"],
    );
    check(&["quay.io/coreos"], "quay.io/other/etcd", &[]);
    check(&["quay.io/co"], "quay.io/coreos/etcd", &["quay.io/co"]);
    check(
        &["https://quay.io/v1/", "http://quay.io/v2/team"],
        "quay.io/team/a",
        &["http://quay.io/v2/team", "https://quay.io/v1/"],
    );
    check(&["*.example.com"], "a.example.com/x", &["*.example.com"]);
    check(&["*.example.com"], "a.b.example.com/x", &[]);
    check(&["*.example.com"], "example.com/x", &[]);
    check(
        &["r*g.example.com"],
        "reg.example.com/x",
        &["r*g.example.com"],
    );
    // A location is a URL: a question mark begins its query.
    check(&["r?g.example.com"], "reg.example.com/x", &[]);
    check(&["host.io:5000"], "host.io:5000/x", &["host.io:5000"]);
    check(&["host.io"], "host.io:5000/x", &[]);
    check(&["host.io:*"], "host.io:5000/x", &[]);
    check(&["[::1]:5000"], "[::1]:5000/x", &["[::1]:5000"]);
    check(
        &["https://index.docker.io/v1/"],
        "busybox",
        &["https://index.docker.io/v1/"],
    );
    check(&["https://index.docker.io/v1/"], "quay.io/busybox", &[]);
    check(&["docker.io", "index.docker.io"], "busybox", &["docker.io"]);
    // Takes no time, regardless of the pattern.
    check(
        &[&format!("{}b.io", "*a".repeat(50))],
        &format!("{}.io/x", "a".repeat(60)),
        &[],
    );
}

#[test]
fn secrets_of_both_forms_are_read() {
    let json = r#"{"auths":{"host.io":{"auth":"bWU6d29y\nZDp4"},"other.io":{"username":"u","password":"p"}}}"#;
    let old = r#"{"old.io":{"auth":"bWU6dw==","email":"e"}}"#;
    let secrets = [
        secret(DOCKER_CONFIG_JSON, json),
        secret(DOCKER_CFG, old),
        secret(("Opaque", ".dockercfg"), "x"),
    ];
    let keyring = Keyring::from_secrets(&secrets).unwrap();
    let one = |name: &str| {
        let found = keyring.lookup(name);
        assert_eq!(found.len(), 1);
        (found[0].username.clone(), found[0].password.clone())
    };
    let pair = |name: &str, word: &str| (name.to_owned(), word.to_owned());
    assert_eq!(one("host.io/a"), pair("me", "word:x"));
    assert_eq!(one("other.io/a"), pair("u", "p"));
    assert_eq!(one("old.io/a"), pair("me", "w"));
    let source = keyring.lookup("host.io/a")[0].source.clone().unwrap();
    assert_eq!((source.namespace.as_str(), source.hash.len()), ("ns", 64));
    assert!(!format!("{keyring:?}").contains("word"));
}

#[test]
fn broken_secrets_are_told_without_their_content() {
    for data in [
        "{",
        r#"{"auths":{"a":{"auth":"c2VjcmV0"}}}"#,
        r#"{"auths":{"a":{"auth":"!secret"}}}"#,
        r#"{"auths":"secret"}"#,
    ] {
        let error = Keyring::from_secrets(&[secret(DOCKER_CONFIG_JSON, data)])
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("secret ns/pull: ") && !error.contains("secret\""),
            "{error}"
        );
        assert!(!error.contains("!secret"), "{error}");
    }
}
