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
        let found = args(flags).anonymous(all_is_allowed).unwrap();
        assert_eq!(found, expected, "{flags:?}");
    }
    let paths = file("anonymous: {enabled: true, conditions: [{path: /livez}]}");
    let found = args(&[&paths]).anonymous(true).unwrap();
    assert_eq!(found, Anonymous::At(vec!["/livez".to_owned()]));
    let both = args(&[&paths, "--anonymous-auth=true"]).anonymous(false);
    let refused = "anonymous: Forbidden: --anonymous-auth flag cannot be set";
    assert!(both.unwrap_err().to_string().starts_with(refused));
    let nothing = file("jwt: []");
    let found = args(&[&nothing, "--anonymous-auth=false"]).anonymous(false);
    assert_eq!(found.unwrap(), Anonymous::Nowhere);
    let issuers = file("jwt: [{issuer: {url: 'https://x', audiences: [a]}}]");
    let error = args(&[&issuers]).anonymous(false).unwrap_err();
    assert!(format!("{error:#}").contains("jwt: Forbidden"), "{error:#}");
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
