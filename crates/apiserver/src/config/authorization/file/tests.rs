use super::*;

fn written(authorizers: &str) -> Vec<u8> {
    format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n{authorizers}\n").into_bytes()
}

/// A webhook, of which some lines are others.
fn webhook(changes: &[(&str, &str)]) -> Vec<u8> {
    let mut lines = vec![
        ("timeout", "3s"),
        ("subjectAccessReviewVersion", "v1"),
        ("failurePolicy", "Deny"),
        (
            "connectionInfo",
            "{type: KubeConfigFile, kubeConfigFile: /dev/null}",
        ),
    ];
    for (key, value) in changes {
        lines.retain(|(known, _)| known != key);
        if !value.is_empty() {
            lines.push((key, value));
        }
    }
    let lines = lines
        .iter()
        .map(|(key, value)| format!("    {key}: {value}\n"));
    let lines: String = lines.collect();
    written(&format!("- type: Webhook\n  name: w\n  webhook:\n{lines}"))
}

fn error(content: &[u8]) -> String {
    let Err(error) = read(content, None) else {
        panic!("{}", String::from_utf8_lossy(content));
    };
    error
}

#[test]
fn invalid_files_are_refused_as_upstream() {
    let at = "authorizers[0]";
    for (changes, expected) in [
        (
            &[("timeout", "")][..],
            format!("{at}.timeout: Required value"),
        ),
        (
            &[("timeout", "31s")],
            format!("{at}.timeout: Invalid value: \"31s\": must be > 0s and <= 30s"),
        ),
        (
            &[("timeout", "-1s")],
            format!("{at}.timeout: Invalid value: \"-1s\": must be > 0s and <= 30s"),
        ),
        (
            &[("authorizedTTL", "-1s")],
            format!("{at}.authorizedTTL: Invalid value: \"-1s\": must be > 0s"),
        ),
        (
            &[("unauthorizedTTL", "-1s")],
            format!("{at}.unauthorizedTTL: Invalid value: \"-1s\": must be > 0s"),
        ),
        (
            &[("subjectAccessReviewVersion", "")],
            format!("{at}.subjectAccessReviewVersion: Required value"),
        ),
        (
            &[("subjectAccessReviewVersion", "v2")],
            format!(
                "{at}.subjectAccessReviewVersion: Unsupported value: \"v2\": supported values: \"v1\", \"v1beta1\""
            ),
        ),
        (
            &[("failurePolicy", "")],
            format!("{at}.failurePolicy: Required value"),
        ),
        (
            &[("failurePolicy", "Ignore")],
            format!(
                "{at}.failurePolicy: Unsupported value: \"Ignore\": supported values: \"NoOpinion\", \"Deny\""
            ),
        ),
        (
            &[("matchConditions", "[{expression: 'true'}]")],
            format!(
                "{at}.matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified"
            ),
        ),
        (
            &[("matchConditionSubjectAccessReviewVersion", "v1beta1")],
            format!(
                "{at}.matchConditionSubjectAccessReviewVersion: Unsupported value: \"v1beta1\": supported values: \"v1\""
            ),
        ),
        (
            &[("connectionInfo", "")],
            format!("{at}.connectionInfo.type: Required value"),
        ),
        (
            &[("connectionInfo", "{type: KubeConfigFile}")],
            format!("{at}.connectionInfo.kubeConfigFile: Required value"),
        ),
        (
            &[(
                "connectionInfo",
                "{type: KubeConfigFile, kubeConfigFile: here}",
            )],
            format!(
                "{at}.connectionInfo.kubeConfigFile: Invalid value: \"here\": must be an absolute path"
            ),
        ),
        (
            &[(
                "connectionInfo",
                "{type: KubeConfigFile, kubeConfigFile: /none}",
            )],
            format!(
                "{at}.connectionInfo.kubeConfigFile: Invalid value: \"/none\": error loading file: "
            ),
        ),
        (
            &[],
            format!(
                "{at}.connectionInfo.kubeConfigFile: Invalid value: \"/dev/null\": must be a regular file"
            ),
        ),
        (
            &[("connectionInfo", "{type: InClusterConfig}")],
            format!("{at}.connectionInfo.type: Invalid value: \"InClusterConfig\""),
        ),
        (
            &[("connectionInfo", "{type: Url}")],
            format!("{at}.connectionInfo.type: Unsupported value: \"Url\""),
        ),
    ] {
        let found = error(&webhook(changes));
        assert!(
            found.trim_start_matches('[').starts_with(&expected),
            "{found}"
        );
    }
    let conditions = |list: &str| {
        let version = ("matchConditionSubjectAccessReviewVersion", "v1");
        error(&webhook(&[version, ("matchConditions", list)]))
    };
    let many = format!("[{}]", "{expression: 'true'},".repeat(65));
    for (list, expected) in [
        (
            "[{expression: ' '}]",
            "matchConditions[0].expression: Required value",
        ),
        (
            "[{expression: 'true'}, {expression: 'true'}]",
            "matchConditions[1].expression: Duplicate value: \"true\"",
        ),
        (
            "[{expression: request.user}]",
            "matchConditions[0].expression: Invalid value: \"request.user\": must evaluate to bool but got string",
        ),
        (
            "[{expression: request.x == 1}]",
            "matchConditions[0].expression: Invalid value: \"request.x == 1\": compilation failed: ",
        ),
        (
            &many,
            "matchConditions: Too many: 65: must have at most 64 items",
        ),
    ] {
        let found = conditions(list);
        assert!(found.contains(&format!("{at}.{expected}")), "{found}");
    }
}

#[test]
fn authorizers_have_types_and_names() {
    for (authorizers, expected) in [
        (
            "  []",
            "authorizers: Required value: at least one authorization mode must be defined",
        ),
        ("- {}", "authorizers[0].type: Required value"),
        (
            "- {type: Own, name: own}",
            "authorizers[0].type: Unsupported value: \"Own\": supported values: \"ABAC\", \"AlwaysAllow\", \"AlwaysDeny\", \"Node\", \"RBAC\", \"Webhook\"",
        ),
        (
            "- {type: RBAC, name: rbac}\n- {type: RBAC, name: b}",
            "authorizers[1].type: Duplicate value: \"RBAC\"",
        ),
        ("- {type: RBAC}", "authorizers[0].name: Required value"),
        (
            "- {type: RBAC, name: a}\n- {type: Node, name: a}",
            "authorizers[1].name: Duplicate value: \"a\"",
        ),
        (
            "- {type: RBAC, name: A b}",
            "authorizers[0].name: Invalid value: \"A b\": authorizer name is invalid: ",
        ),
        (
            "- {type: Webhook, name: w}",
            "authorizers[0].webhook: Required value: required when type=Webhook",
        ),
        (
            "- {type: RBAC, name: rbac, webhook: {}}",
            "authorizers[0].webhook: Invalid value: \"non-null\": may only be specified when type=Webhook",
        ),
        (
            "- {type: RBAC, name: roles}\n- {type: Node, name: nodes}",
            "[expected name rbac for authorizer RBAC instead of roles, expected name node for authorizer Node instead of nodes]",
        ),
        ("- {type: ABAC, name: abac}", "error reading policy file"),
    ] {
        let found = error(&written(authorizers));
        assert!(found.starts_with(expected), "{authorizers}: {found}");
    }
    let modes = "- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n- {type: AlwaysDeny, name: alwaysdeny}";
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let content = String::from_utf8(written(modes)).unwrap();
        let content = content.replacen("/v1", &format!("/{version}"), 1);
        let modes = read(content.as_bytes(), None).unwrap();
        let kinds: Vec<&str> = modes.iter().map(AuthorizationMode::kind).collect();
        assert_eq!(kinds, ["Node", "RBAC", "AlwaysDeny"]);
    }
}

/// A restriction that is misspelt must not be missing.
#[test]
fn files_are_read_strictly() {
    let start = "failed to load AuthorizationConfiguration from file: ";
    let other = |text: &str| text.as_bytes().to_vec();
    for (content, why) in [
        (other("{"), "strict decoding error"),
        (vec![0xff], "invalid utf-8"),
        (
            other("apiVersion: v1\nkind: Pod\n"),
            "no kind \"Pod\" is registered for version \"v1\"",
        ),
        (
            other("apiVersion: apiserver.config.k8s.io/v2\nkind: AuthorizationConfiguration\n"),
            "no kind \"AuthorizationConfiguration\" is registered for version \"apiserver.config.k8s.io/v2\"",
        ),
        (
            webhook(&[("failurepolicy", "Deny")]),
            "unknown field `failurepolicy`",
        ),
        (webhook(&[("timeout", "soon")]), "time: invalid duration"),
        (webhook(&[("timeout", "3")]), "strict decoding error"),
        (
            written("- {type: RBAC, type: Node, name: node}"),
            "duplicate",
        ),
        (
            written("- {type: RBAC, name: rbac, order: 1}"),
            "unknown field `order`",
        ),
    ] {
        let found = error(&content);
        assert!(found.starts_with(start), "{found}");
        assert!(found.contains(why), "{found}");
    }
}
