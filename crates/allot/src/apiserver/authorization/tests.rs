use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn authorizers(flags: &[&str]) -> Result<Authorizers, String> {
    let line = Line::try_parse_from(std::iter::once(&"allot").chain(flags)).unwrap();
    line.args
        .authorizers()
        .map_err(|error| format!("{error:#}"))
}

#[test]
fn flags_that_do_not_go_together_are_refused_as_upstream() {
    for (flags, expected) in [
        (
            &["--authorization-mode=ABAC"][..],
            "authorization-mode ABAC's authorization policy file not passed",
        ),
        (
            &["--authorization-mode=Webhook"],
            "authorization-mode Webhook's authorization config file not passed",
        ),
        (
            &["--authorization-mode=RBAC,Own"],
            "authorization-mode \"Own\" is not a valid mode",
        ),
        (
            &["--authorization-policy-file=f"],
            "cannot specify --authorization-policy-file without mode ABAC",
        ),
        (
            &["--authorization-webhook-config-file=f"],
            "cannot specify --authorization-webhook-config-file without mode Webhook",
        ),
        (
            &["--authorization-mode=RBAC,RBAC"],
            "authorization-mode [\"RBAC\" \"RBAC\"] has mode specified more than once",
        ),
        (
            &[
                "--authorization-config=f",
                "--authorization-webhook-version=v1",
            ],
            "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined",
        ),
        (
            &[
                "--authorization-mode=Webhook",
                "--authorization-webhook-config-file=f",
                "--authorization-webhook-version=v2",
            ],
            "unsupported webhook authorizer version \"v2\", supported versions are \"v1\", \"v1beta1\"",
        ),
        (
            &[
                "--authorization-mode=Webhook",
                "--authorization-webhook-config-file=/none",
            ],
            "--authorization-webhook-config-file: /none: No such file or directory (os error 2)",
        ),
        (
            &[
                "--authorization-mode=ABAC",
                "--authorization-policy-file=/none",
            ],
            "error reading policy file /none: No such file or directory (os error 2)",
        ),
        (
            &["--authorization-config=/none"],
            "--authorization-config: /none: No such file or directory (os error 2)",
        ),
    ] {
        let found = authorizers(flags).err();
        assert_eq!(found.as_deref(), Some(expected));
    }
    let kinds = |flags: &[&str]| {
        let authorizers = authorizers(flags).ok().unwrap();
        let kinds = authorizers.modes.iter().map(AuthorizationMode::kind);
        kinds.collect::<Vec<_>>()
    };
    assert_eq!(kinds(&[]), DEFAULT);
    assert_eq!(kinds(&["--authorization-mode=AlwaysDeny"]), ["AlwaysDeny"]);
}
