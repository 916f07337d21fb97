use std::path::Path;

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(flags: &[&str]) -> Args {
    let line = Line::try_parse_from(std::iter::once(&"allot").chain(flags));
    line.unwrap().args
}

/// The file of a configuration with this line.
fn file(directory: &Path, line: &str) -> String {
    let file = directory.join("authentication.yaml");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n{line}\n"
    );
    std::fs::write(&file, text).unwrap();
    format!("--authentication-config={}", file.display())
}

#[test]
fn anonymous_requests_are_as_the_flag_or_the_file_says() {
    let directory = tempfile::tempdir().unwrap();
    let file = |line: &str| file(directory.path(), line);
    for (flags, all_is_allowed, expected) in [
        (&[][..], false, Anonymous::Everywhere),
        (&["--anonymous-auth=false"], false, Anonymous::Nowhere),
        // An authorizer that allows everything would allow it to all of the network.
        (&[], true, Anonymous::Nowhere),
        (&["--anonymous-auth=true"], true, Anonymous::Nowhere),
    ] {
        let found = args(flags)
            .authentication(all_is_allowed, &[])
            .unwrap()
            .anonymous;
        assert_eq!(found, expected, "{flags:?}");
    }
    let paths = file("anonymous: {enabled: true, conditions: [{path: /livez}]}");
    let found = args(&[&paths]).authentication(true, &[]).unwrap().anonymous;
    assert_eq!(found, Anonymous::At(vec!["/livez".to_owned()]));
    let both = args(&[&paths, "--anonymous-auth=true"]).authentication(false, &[]);
    let refused = "anonymous: Forbidden: --anonymous-auth flag cannot be set";
    assert!(both.err().unwrap().to_string().starts_with(refused));
    let nothing = file("jwt: []");
    let found = args(&[&nothing, "--anonymous-auth=false"]).authentication(false, &[]);
    assert_eq!(found.unwrap().anonymous, Anonymous::Nowhere);
}

#[test]
fn issuers_are_those_of_the_flags_or_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let own = ["https://own".to_owned()];
    let issuers = |flags: &[&str]| {
        let read = args(flags).authentication(false, &own);
        read.map(|it| it.issuers.len())
            .map_err(|error| format!("{error:#}"))
    };
    let (url, client) = ("--oidc-issuer-url=https://a", "--oidc-client-id=x");
    let file = file(
        directory.path(),
        "jwt: [{issuer: {url: 'https://x', audiences: [a]}, claimMappings: {username: {claim: sub, prefix: ''}}}]",
    );
    assert_eq!(issuers(&[]), Ok(0));
    assert_eq!(issuers(&[&file]), Ok(1));
    assert_eq!(
        issuers(&[
            url,
            client,
            "--oidc-username-prefix=-",
            "--oidc-groups-claim=groups",
            "--oidc-groups-prefix=oidc:",
            "--oidc-required-claim=a=b=c",
            "--oidc-required-claim=d=",
            "--oidc-signing-algs=RS256,ES384",
        ]),
        Ok(1)
    );
    let together = "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set";
    let certificates = directory.path().join("ca.crt");
    std::fs::write(&certificates, "").unwrap();
    let empty = format!("--oidc-ca-file={}", certificates.display());
    for (flags, expected) in [
        (&[url][..], together),
        (&["--oidc-groups-claim=groups"], together),
        (
            &[&file, client],
            "authentication-config file and oidc-* flags are mutually exclusive",
        ),
        (
            &["--oidc-issuer-url=http://a", client],
            "invalid authentication configuration: jwt[0].issuer.url: Invalid value: \"http://a\": URL scheme must be https",
        ),
        (
            &["--oidc-issuer-url=https://own", client],
            "invalid authentication configuration: jwt[0].issuer.url: Invalid value: \"https://own\": URL must not overlap with disallowed issuers: [https://own]",
        ),
        (
            &[url, client, "--oidc-signing-algs=none"],
            "oidc: unsupported signing alg: \"none\"",
        ),
        (
            &[url, client, "--oidc-required-claim=a"],
            "--oidc-required-claim: malformed pair, expect string=string: \"a\"",
        ),
        (
            &[url, client, &empty],
            &format!(
                "--oidc-ca-file: {}: there are no certificates",
                certificates.display()
            ),
        ),
    ] {
        assert_eq!(issuers(flags), Err(expected.to_owned()), "{flags:?}");
    }
    let shown = args(&[url, client]).shown();
    for (flag, value) in [
        ("oidc-issuer-url", "https://a"),
        ("oidc-username-claim", "sub"),
        ("oidc-signing-algs", "[RS256]"),
    ] {
        assert!(shown.contains(&(flag, value.to_owned())), "{flag}");
    }
}

#[test]
fn a_webhook_that_cannot_be_asked_is_refused_at_the_start() {
    assert!(args(&[]).webhook().unwrap().is_none());
    let none = "--authentication-token-webhook-config-file=/none";
    for (flags, expected) in [
        (
            &[none][..],
            "--authentication-token-webhook-config-file: /none: No such file or directory (os error 2)",
        ),
        (
            &[none, "--authentication-token-webhook-version=v2"],
            "unsupported authentication webhook version \"v2\", supported versions are \"v1\", \"v1beta1\"",
        ),
    ] {
        let error = args(flags).webhook().unwrap_err();
        assert_eq!(format!("{error:#}"), expected);
    }
    // A client certificate that is none.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    let text = "clusters: [{name: c, cluster: {server: 'https://h'}}]\nusers: [{name: u, user: {client-certificate-data: eA==, client-key-data: eA==}}]\n\
                contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n";
    std::fs::write(&file, text).unwrap();
    let flag = format!(
        "--authentication-token-webhook-config-file={}",
        file.display()
    );
    assert!(args(&[&flag]).webhook().is_err());
}
