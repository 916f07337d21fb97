use super::*;

#[test]
fn plain_http_is_for_loopback_unless_told() {
    let plain = |file: &str, domain: &str| {
        let registries = Registries::parse(file).unwrap();
        registries.endpoints(domain).last().unwrap().plain_http
    };
    for (domain, expected) in [
        ("localhost:5000", true),
        ("127.0.0.1:5000", true),
        ("127.9.9.9", true),
        ("[::1]:5000", true),
        ("localhost.example.com", false),
        ("128.0.0.1:5000", false),
        ("docker.io", false),
    ] {
        assert_eq!(plain("{}", domain), expected, "{domain}");
    }
    assert!(plain("registries: {host.io: {plainHTTP: true}}", "host.io"));
    assert!(!plain(
        "registries: {localhost: {plainHTTP: false}}",
        "localhost"
    ));
}

#[test]
fn mirrors_come_first() {
    let file = "registries:\n  docker.io:\n    mirrors: ['https://m.io', 'http://n.io:80/']\n  '*':\n    mirrors: ['https://all.io']\n    fallback: false\n";
    let registries = Registries::parse(file).unwrap();
    let shown = |domain: &str| -> Vec<String> {
        let endpoints = registries.endpoints(domain).into_iter();
        endpoints
            .map(|endpoint| {
                format!(
                    "{} {} {}",
                    endpoint.authority, endpoint.plain_http, endpoint.mirror
                )
            })
            .collect()
    };
    assert_eq!(
        shown("docker.io"),
        [
            "m.io false true",
            "n.io:80 true true",
            "registry-1.docker.io false false"
        ]
    );
    assert_eq!(shown("quay.io"), ["all.io false true"]);
}

#[test]
fn faults_of_the_file_are_told() {
    for (file, part) in [
        (
            "registries: {a.io: {mirror: [x]}}",
            "unknown field `mirror`",
        ),
        ("registry: {}", "unknown field `registry`"),
        (
            "registries: {a.io: {mirrors: [m.io]}}",
            "registries[a.io].mirrors: \"m.io\": has to begin with https:// or http://",
        ),
        (
            "registries: {a.io: {mirrors: ['https://m.io/path']}}",
            "without a path",
        ),
        ("registries: {'http://a.io': {}}", "has to be a host"),
        (
            "registries: {a.io: {fallback: false}}",
            "registries[a.io].fallback",
        ),
        ("registries: {a.io: {plainHTTP: maybe}}", "line 1"),
        ("registries: [", "line 1"),
    ] {
        let error = Registries::parse(file).unwrap_err().to_string();
        assert!(
            error.contains(part) && !error.contains('\n'),
            "{file}: {error}"
        );
    }
}
